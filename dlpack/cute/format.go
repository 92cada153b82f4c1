package cute

import (
	"strconv"
)

// Layout returns the layout as CuTe DSL prints it: extents and strides in elements, and "?" for dynamic
// ones, as in "(?,4,?{div=2}):(?{i64 div=8},?{i64},1)".
func (s *Spec) Layout() string {
	var buffer [256]byte
	return string(s.appendLayout(buffer[:0]))
}

// String returns the tensor type without an address: "Float32@generic o (30,20):(20,1)".
func (s *Spec) String() string {
	var buffer [256]byte
	dst := append(buffer[:0], s.element.String()...)
	dst = append(dst, '@')
	dst = append(dst, s.space.String()...)
	dst = append(dst, " o "...)
	return string(s.appendLayout(dst))
}

// widthTag returns the printed width of dynamic strides. CuTe DSL does not print 32 bits.
func (s *Spec) widthTag() string {
	if s.width == Strides64 {
		return "i64"
	}
	return ""
}

func (s *Spec) appendLayout(dst []byte) []byte {
	m := s.modes()
	dst = appendTuple(dst, m.extent, m.shapeDiv, "")
	dst = append(dst, ':')
	return appendTuple(dst, m.stride, m.strideDiv, s.widthTag())
}

// appendTuple prints one half of a layout. div is 0 for static values.
func appendTuple(dst []byte, values, div []int64, width string) []byte {
	dst = append(dst, '(')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		if div[i] == 0 {
			dst = strconv.AppendInt(dst, v, 10)
			continue
		}
		dst = appendDynamic(dst, div[i], width)
	}
	return append(dst, ')')
}

// appendDynamic prints "?", "?{i64}", "?{div=4}" or "?{i64 div=4}".
func appendDynamic(dst []byte, div int64, width string) []byte {
	dst = append(dst, '?')
	if width == "" && div == 1 {
		return dst
	}
	dst = append(dst, '{')
	dst = append(dst, width...)
	if div != 1 {
		if width != "" {
			dst = append(dst, ' ')
		}
		dst = append(dst, "div="...)
		dst = strconv.AppendInt(dst, div, 10)
	}
	return append(dst, '}')
}

// appendHex16 prints an address as 16 hexadecimal digits.
func appendHex16(dst []byte, address uintptr) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[uint64(address)>>shift&15])
	}
	return dst
}
