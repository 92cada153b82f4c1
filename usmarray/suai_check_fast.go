package usmarray

// Bounds below which no product or sum of resolveSmall can leave an int64:
// dimensions and strides below 2^28 and at most four of them make an extent
// below 2^58 elements, times 16 bytes at most 2^62.
const (
	smallDims   = 4
	smallNumber = 1 << 28
	smallCount  = 1 << (intBits / 2)
	smallMemory = 1 << (intBits - 2)
)

// resolveSmall is Check for nearly every dictionary there is: few dimensions
// of moderate size and a frequent type, and nothing wrong. It gives up (false)
// on everything else, errors included; a fuzz test holds it against resolveAny.
func (d *USMInterface) resolveSmall(s *USMSpan) bool {
	n := len(d.Shape)
	if intBits < 64 || d.Version != InterfaceVersion || n > smallDims || d.Data-1 >= smallMemory ||
		uint(d.Offset)+smallNumber >= 2*smallNumber || (d.Strides != nil && len(d.Strides) != n) ||
		(len(d.TypeDescr) != 0 && (len(d.TypeDescr) != 1 || d.TypeDescr[0].Type != d.TypeStr ||
			d.TypeDescr[0].Name != "" || len(d.TypeDescr[0].Shape) != 0)) {
		return false
	}
	item := 4
	switch d.TypeStr {
	case "<f4":
		s.DataType = Float32
	case "<i4":
		s.DataType = Int32
	case "<f8":
		s.DataType, item = Float64, 8
	case "|u1":
		s.DataType, item = Uint8, 1
	default:
		return false
	}
	count, lo, hi, dense := 1, 0, 0, true
	for i := n - 1; i >= 0; i-- {
		dim := d.Shape[i]
		if uint(dim) >= smallNumber {
			return false
		}
		stride := count
		if d.Strides != nil {
			stride = d.Strides[i]
			if uint(stride)+smallNumber >= 2*smallNumber {
				return false
			}
			dense = dense && (stride == count || dim == 1)
		}
		if ext := (dim - 1) * stride; ext < 0 {
			lo += ext
		} else {
			hi += ext
		}
		if count *= dim; count >= smallCount || count == 0 {
			return false
		}
	}
	base := int(d.Data) + d.Offset*item
	if base+lo*item <= 0 {
		return false
	}
	s.Elements, s.IsC = count, dense
	s.First, s.Lo, s.Hi = uintptr(base), uintptr(base+lo*item), uintptr(base+(hi+1)*item)
	a := &d.Allocation
	return a.Base == 0 || s.Lo >= a.Base && s.Hi <= a.Base+a.Size && a.Base+a.Size >= a.Base
}
