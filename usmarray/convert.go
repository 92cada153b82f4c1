package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

// convertible returns an error if elements of one type cannot be converted to another.
func convertible(op string, to, from DataType) error {
	if !from.IsComplex() || to.IsComplex() || to == Bool {
		return nil
	}
	return opErr(op, ErrType, "%s to %s would drop the imaginary parts; take the real parts first (x.asnumpy().real; in Go, WrapBuffer of the same memory with the parts' type and the strides doubled)", from, to)
}

// converter returns the loop that converts rows of at most n elements: one of nativeRows, or several in
// sequence for types that Go lacks.
func converter(to, from DataType, n int) row {
	t, f := nativeOf(to), nativeOf(from)
	switch {
	case t >= 0 && f >= 0:
		return nativeRows[f][t]
	case to == from: // sub-byte types; other types are copied
		return lowRow(to)
	case from.IsComplex():
		return fromComplex(to, from, n)
	case to.IsComplex():
		return toComplex(to, from, n)
	case from.IsInteger() && f < 0: // sub-byte
		whole := DataType{Code: from.Code, Bits: 8, Lanes: 1}
		return through(1, n, extendRow(from), converter(to, whole, n))
	case from.IsFloat() && f < 0:
		if to == Float32 {
			return decodeRow(from)
		}
		return through(4, n, decodeRow(from), converter(to, Float32, n))
	case to.IsInteger():
		return toSubByte(to, from, n)
	}
	return toNarrow(to, from, n)
}

// toSubByte converts from a native type to a sub-byte integer.
func toSubByte(to, from DataType, n int) row {
	switch from {
	case Float32:
		return cutNarrowRow[float32](to)
	case Float64:
		return cutNarrowRow[float64](to)
	}
	return through(1, n, converter(Uint8, from, n), lowRow(to))
}

// toNarrow converts from a native type to a floating-point type that Go lacks, rounding once.
func toNarrow(to, from DataType, n int) row {
	switch from {
	case Float32:
		return encodeRow[float32](to)
	case Float64:
		return encodeRow[float64](to)
	case Int64:
		return through(8, n, oddRow[int64], encodeRow[float64](to))
	case Uint64:
		return through(8, n, oddRow[uint64], encodeRow[float64](to))
	}
	return through(8, n, converter(Float64, from, n), encodeRow[float64](to))
}

// partOf returns the type of the two parts of a complex type.
func partOf(dt DataType) DataType {
	return DataType{Code: dlpack.CodeFloat, Bits: dt.Bits / 2, Lanes: 1}
}

func toComplex(to, from DataType, n int) row {
	part := partOf(to)
	re, half := converter(part, from, n), part.Size()
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		re(dst, src, n, ds, ss)
		zeroRow(unsafe.Add(dst, half), n, ds, half)
	}
}

// fromComplex converts to complex or to bool, the only targets that convertible allows.
func fromComplex(to, from DataType, n int) row {
	part := partOf(from)
	half := part.Size()
	if to == Bool {
		truth := converter(Bool, part, n)
		im := make([]bool, n)
		return func(dst, src unsafe.Pointer, n, ds, ss int) {
			truth(dst, src, n, ds, ss)
			truth(unsafe.Pointer(unsafe.SliceData(im)), unsafe.Add(src, half), n, 1, ss)
			for i, b := range im[:n] {
				*at[bool](dst, i, ds) = *at[bool](dst, i, ds) || b
			}
		}
	}
	each, wide := converter(partOf(to), part, n), partOf(to).Size()
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		each(dst, src, n, ds, ss)
		each(unsafe.Add(dst, wide), unsafe.Add(src, half), n, ds, ss)
	}
}

// hostSpan is one side of a conversion: bytes on the host that hold the span of the elements.
type hostSpan struct {
	bytes []byte
	first int // offset of bytes in the buffer
	bits  int // distance between elements
	arr   *Array
	block []byte // unpacked sub-byte elements
}

// spanOf makes the bytes of an array's span accessible to the host. read requests their contents.
func spanOf(op string, a *Array, l *Layout, read bool) (*hostSpan, error) {
	lo, hi := l.bounds()
	s := &hostSpan{bits: a.elemBits(), arr: a}
	s.first = lo * s.bits / 8
	n := (hi*s.bits+7)/8 - s.first
	if a.buf.HostReadable() {
		s.bytes = unsafe.Slice((*byte)(unsafe.Add(a.base(), s.first)), n)
		return s, nil
	}
	s.bytes = make([]byte, n)
	if !read {
		return s, nil
	}
	return s, a.readBytes(op, s.bytes, s.first)
}

// coversBytes reports whether writing all elements writes every byte of the span.
func (a *Array) coversBytes() bool {
	lo, hi := a.layout.bounds()
	bits := a.elemBits()
	return a.layout.gapless() && lo*bits%8 == 0 && hi*bits%8 == 0
}

// store writes changed bytes back to device memory.
func (s *hostSpan) store(op string) error {
	if s.arr.buf.HostReadable() {
		return nil
	}
	return s.arr.writeBytes(op, s.bytes, s.first)
}

// bitsAt returns the bytes that hold the element at a position, and its lowest bit in the first of them.
func (s *hostSpan) bitsAt(position int) (raw []byte, shift int) {
	first := position * s.bits
	i := first/8 - s.first
	return s.bytes[i : i+(first%8+s.bits+7)/8], first % 8
}

func (s *hostSpan) packed() bool { return s.bits%8 != 0 }

// row returns the address and the step in bytes of elements at a position and a step apart: in the block
// if they are packed.
func (s *hostSpan) row(position, step int) (p unsafe.Pointer, bytes int) {
	if s.packed() {
		return unsafe.Pointer(unsafe.SliceData(s.block)), 1
	}
	size := s.bits / 8
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.bytes)), position*size-s.first), step * size
}

// unpack copies packed elements to the block.
func (s *hostSpan) unpack(c *codec, position, step, n int) {
	if s.packed() {
		for i := range n {
			raw, shift := s.bitsAt(position + i*step)
			s.block[i] = byte(c.loadBits(raw, shift))
		}
	}
}

// pack copies packed elements from the block.
func (s *hostSpan) pack(c *codec, position, step, n int) {
	if s.packed() {
		for i := range n {
			raw, shift := s.bitsAt(position + i*step)
			c.storeBits(raw, shift, uint64(s.block[i]))
		}
	}
}

// shares reports whether two spans overlap in memory. Spans of two buffers can overlap, because exported
// memory can be imported again.
func (s *hostSpan) shares(t *hostSpan) bool {
	p, q := uintptr(unsafe.Pointer(unsafe.SliceData(s.bytes))), uintptr(unsafe.Pointer(unsafe.SliceData(t.bytes)))
	return p < q+uintptr(len(t.bytes)) && q < p+uintptr(len(s.bytes))
}

// convertElements writes every element of src, with the layout from, to dst, converting between types and
// between packed and padded storage. There is at least one element.
func convertElements(op string, dst, src *Array, from *Layout) error {
	to, err := spanOf(op, dst, &dst.layout, !dst.coversBytes())
	if err != nil {
		return err
	}
	in, err := spanOf(op, src, from, true)
	if err != nil {
		return err
	}
	if to.shares(in) { // copy the source before writing
		in.bytes = append([]byte(nil), in.bytes...)
	}
	w := planWalk(&dst.layout, from)
	n, ds, ss := w.row()
	k := n
	if to.packed() || in.packed() {
		k = min(n, blockLen)
		to.block, in.block = make([]byte, k), make([]byte, k)
	}
	convert := converter(dst.dtype, src.dtype, k)
	cd, cs := newCodec(dst.dtype), newCodec(src.dtype)
	// The callback never fails.
	_ = w.each(func(pd, ps int) error {
		for i := 0; i < n; i += k {
			m, d, s := min(k, n-i), pd+i*ds, ps+i*ss
			in.unpack(&cs, s, ss, m)
			p, dstep := to.row(d, ds)
			q, sstep := in.row(s, ss)
			convert(p, q, m, dstep, sstep)
			to.pack(&cd, d, ds, m)
		}
		return nil
	})
	return to.store(op)
}
