package cute

// MarkCompactShapeDynamic makes the extent of one mode dynamic and derives the strides of the compact
// layout from it. A stride that spans a dynamic extent becomes dynamic, with the known divisors of the
// extents inside it as its divisor. The strides of static modes of size 1 become 0. Several calls
// accumulate; a later call for the same mode replaces its divisibility.
//
// strideOrder lists the modes from the outermost to the innermost, like torch.Tensor.dim_order. nil stands
// for the order of an earlier call, or else for the order of descending strides. On equal strides the
// longer mode is the outer one. The order cannot be deduced with two modes of size 1, two strides of 1, or
// two modes of equal stride and extent. divisibility must be at least 1 and divide the extent; 1 states
// nothing.
//
// The checks run in this order, and a failure changes nothing: the form of strideOrder; the order of an
// earlier call or else the deduced one (ErrStrideOrder); the layout (ErrStrideOrder if it does not follow
// the given order, ErrNotCompact if no order was given and it has gaps or overlaps); the mode (ErrMode);
// the divisibility (ErrDivisibility); the width of the strides (ErrStride32).
func (s *Spec) MarkCompactShapeDynamic(mode int, strideOrder []int, divisibility int64) error {
	m := s.modes()
	var buffer [MaxRank]uint8
	order := buffer[:len(m.extent)]
	if err := s.chooseOrder(m, strideOrder, order); err != nil {
		return err
	}
	if mode < 0 || mode >= len(m.extent) {
		return fail(ErrMode, "Expected mode value to be in range [0, %d), but got %d.", len(m.extent), mode)
	}
	if divisibility < 1 {
		return fail(ErrDivisibility, "Expected divisibility to be at least 1, but got %d: 1 says nothing of the extent, n that it is a multiple of n.", divisibility)
	}
	if m.extent[mode]%divisibility != 0 {
		return fail(ErrDivisibility, "The shape(%d) of mode(%d) is not divisible by the divisibility(%d).", m.extent[mode], mode, divisibility)
	}
	if err := s.check32(m); err != nil {
		return err
	}
	m = s.own()
	copy(m.order, order)
	s.ordered = true
	m.shapeDiv[mode] = divisibility
	deriveStrides(m)
	return nil
}

// chooseOrder writes the valid stride order to order, after checking order and layout.
func (s *Spec) chooseOrder(m modes, given []int, order []uint8) error {
	if given != nil {
		if err := checkOrder(given, len(order)); err != nil {
			return err
		}
		for i, mode := range given {
			order[i] = uint8(mode)
		}
	}
	if s.ordered {
		// The earlier call checked that the layout is compact in this order.
		if given != nil && string(order) != string(m.order) {
			return fail(ErrStrideOrder, "The stride_order is not consistent with the last stride_order.")
		}
		copy(order, m.order)
		return nil
	}
	var buffer [MaxRank]uint8
	deduced := buffer[:len(order)]
	certain := deduceOrder(m, deduced)
	switch {
	case given == nil && !certain:
		return fail(ErrStrideOrder, "The layout could not be deduced, please specify the stride_order explicitly.")
	case given == nil:
		copy(order, deduced)
		return s.checkCompact(m, order)
	case certain && string(order) != string(deduced):
		return fail(ErrStrideOrder, "The stride_order is not consistent with the deduced stride_order.")
	}
	return checkFollows(m, order)
}

// checkOrder checks that a given order is a permutation of the modes.
func checkOrder(given []int, rank int) error {
	if len(given) != rank {
		return fail(ErrStrideOrder, "Expected stride_order to have %d elements, but got %d.", rank, len(given))
	}
	var seen uint64
	for _, mode := range given {
		if mode < 0 || mode >= rank {
			return fail(ErrStrideOrder, "Expected stride_order value to be in range [0, %d), but got %d.", rank, mode)
		}
		seen |= 1 << mode
	}
	for mode := range rank {
		if seen>>mode&1 == 0 {
			return fail(ErrStrideOrder, "Expected stride_order to contain all the dimensions of the tensor, but it doesn't contain %d.", mode)
		}
	}
	return nil
}

// deduceOrder sorts the modes by descending stride and then descending extent, and reports whether that
// order is unique.
func deduceOrder(m modes, order []uint8) bool {
	sizeOne, strideOne := 0, 0
	for i := range order {
		if m.extent[i] == 1 {
			sizeOne++
		}
		if m.stride[i] == 1 {
			strideOne++
		}
		at := i
		for at > 0 && outer(m, i, int(order[at-1])) {
			order[at] = order[at-1]
			at--
		}
		order[at] = uint8(i)
	}
	if sizeOne > 1 || strideOne > 1 {
		return false
	}
	for i := 1; i < len(order); i++ {
		if !outer(m, int(order[i-1]), int(order[i])) {
			return false
		}
	}
	return true
}

// outer reports whether mode a lies strictly outside mode b.
func outer(m modes, a, b int) bool {
	if m.stride[a] != m.stride[b] {
		return m.stride[a] > m.stride[b]
	}
	return m.extent[a] > m.extent[b]
}

// checkFollows applies CuTe DSL's check of a given order: from the innermost mode outwards each stride is
// the product of the extents inside it, or 1 for a mode of size 1.
func checkFollows(m modes, order []uint8) error {
	product := int64(1)
	for at := len(order) - 1; at >= 0; at-- {
		i := order[at]
		if m.stride[i] != product && (m.extent[i] != 1 || m.stride[i] != 1) {
			return fail(ErrStrideOrder, "The stride_order is not consistent with the layout")
		}
		product = times(product, m.extent[i])
	}
	return nil
}

// checkCompact applies this package's check of a deduced order: no gaps and no overlap, ignoring the
// strides of modes of size 1.
func (s *Spec) checkCompact(m modes, order []uint8) error {
	product := int64(1)
	for at := len(order) - 1; at >= 0; at-- {
		i := order[at]
		if m.stride[i] != product && m.extent[i] != 1 {
			return fail(ErrNotCompact, "The layout %s is not compact: mode(%d) has stride %d where a compact layout has %d. Use mark_layout_dynamic, or a compact copy of the tensor.",
				s.Layout(), i, m.stride[i], product)
		}
		product = times(product, m.extent[i])
	}
	return nil
}

// deriveStrides recomputes strides and their divisibility from the innermost
// mode outwards.
func deriveStrides(m modes) {
	product, known, dynamic := int64(1), int64(1), false
	for at := len(m.order) - 1; at >= 0; at-- {
		i := m.order[at]
		m.strideDiv[i] = 0
		if m.extent[i] == 1 && m.shapeDiv[i] == 0 {
			m.stride[i] = 0
			continue
		}
		m.stride[i] = product
		if dynamic {
			m.strideDiv[i] = known
		}
		factor := m.extent[i]
		if m.shapeDiv[i] != 0 {
			dynamic, factor = true, m.shapeDiv[i]
		}
		product = times(product, m.extent[i])
		known = times(known, factor)
	}
}

// times multiplies a running product by a divisibility or by an extent, where an extent of 0 counts as 1,
// as in the strides of the array libraries. Only divisibilities of empty tensors can overflow, since any
// number divides 0. The product so far is then kept, which is still a valid divisor.
func times(product, extent int64) int64 {
	if p, ok := mul(product, max(extent, 1)); ok {
		return p
	}
	return product
}
