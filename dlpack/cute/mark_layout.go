package cute

import "math"

// noLeading is the leading dimension of a layout in which no stride is 1.
const noLeading = -1

// MarkLayoutDynamic makes all extents dynamic, and all strides except two kinds: the stride of the leading
// dimension stays 1, and strides of 0 (broadcast) stay 0.
//
// leadingDim is the leading dimension, where negative numbers count from the last mode, or Deduce. With
// Deduce, the only mode of stride 1 leads. Without such a mode all strides become dynamic; with several,
// the LeadingRule of the Options decides. The divisibilities of earlier marks are discarded.
//
// Errors: ErrLeadingDim, or ErrStride32 under Strides32 if the layout may overflow int32. A failure
// changes nothing.
func (s *Spec) MarkLayoutDynamic(leadingDim int) error {
	m := s.modes()
	lead, err := s.leadingOf(m, leadingDim)
	if err != nil {
		return err
	}
	if err := s.check32(m); err != nil {
		return err
	}
	m = s.own()
	for i, stride := range m.stride {
		m.shapeDiv[i] = 1
		m.strideDiv[i] = 1
		if i == lead || stride == 0 {
			m.strideDiv[i] = 0
		}
	}
	return nil
}

// leadingOf returns the leading dimension, or noLeading.
func (s *Spec) leadingOf(m modes, asked int) (int, error) {
	if asked == Deduce {
		return s.deduceLeading(m)
	}
	rank := len(m.stride)
	if asked < -rank || asked >= rank {
		return 0, fail(ErrLeadingDim, "Expected leading_dim to be in range [0, %d) or [%d, -1], but got %d.", rank, -rank, asked)
	}
	if asked < 0 {
		asked += rank
	}
	if m.stride[asked] != 1 {
		return 0, fail(ErrLeadingDim, "Expected strides[leading_dim] == 1, but got %d.", m.stride[asked])
	}
	return asked, nil
}

func (s *Spec) deduceLeading(m modes) (int, error) {
	lead, ones, larger := noLeading, 0, 0
	for i, stride := range m.stride {
		if stride != 1 {
			continue
		}
		ones++
		if m.extent[i] > 1 {
			larger++
			lead = i
		} else if larger == 0 {
			lead = i
		}
	}
	switch {
	case ones <= 1:
		return lead, nil
	case s.leading == LeadingUnique:
		return 0, fail(ErrLeadingDim, "Can't deduce the leading dimension from layout, please specify the leading_dim explicitly.")
	case larger == 0:
		return 0, fail(ErrLeadingDim, "Can't deduce the leading dimension from layout (multiple dimensions have stride 1 but none has size > 1), please specify leading_dim explicitly.")
	case larger > 1:
		return 0, fail(ErrLeadingDim, "Can't deduce the leading dimension from layout (multiple dimensions have stride 1 and size > 1), please specify leading_dim explicitly.")
	}
	return lead, nil
}

// check32 refuses 32-bit strides for a layout with an offset or a stride that does not fit int32. The
// stride of a mode of size 1 does not contribute to the span, but the kernel receives it too.
func (s *Spec) check32(m modes) error {
	if s.width != Strides32 {
		return nil
	}
	fits := s.span <= math.MaxInt32
	for _, stride := range m.stride {
		fits = fits && stride == int64(int32(stride))
	}
	if !fits {
		return fail(ErrStride32, "Layout in DLTensorWrapper has int32 overflow risk. Please set use_32bit_stride to False.")
	}
	return nil
}
