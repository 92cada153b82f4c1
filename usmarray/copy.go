package usmarray

import (
	"math"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
)

// CopyFrom copies the elements of src, broadcast to the shape of a, between any two memories: plain host
// memory and all kinds of USM, of any device and context, with any strides on both sides. Overlapping
// memory is copied as if through a temporary. If elements of a overlap each other, as in a broadcast, it is
// not defined which of their values remains; no other memory changes. CopyFrom waits for pending work on both arrays. Two kinds of
// copies are left pending (see Wait): those between contiguous device memories of one context, and those
// of one element to all of device memory. All others are complete on return.
//
// Writing a strided view of device memory in many small pieces reads the span of the view and writes it
// back as a whole. No other work may write to the elements in between during that time.
//
// Errors: ErrType if the element types differ (AsType converts), ErrLayout if src does not broadcast,
// ErrReadOnly.
func (a *Array) CopyFrom(src *Array) error {
	const op = "CopyFrom"
	a.hold(op)
	defer a.buf.Release()
	src.hold(op)
	defer src.buf.Release()
	return a.copyFrom(op, src)
}

// copyFrom is CopyFrom for arrays whose memory is held.
func (a *Array) copyFrom(op string, src *Array) error {
	if a.dtype != src.dtype {
		return opErr(op, ErrType, "cannot copy %s into %s; convert with ConvertFrom or AsType", src.dtype, a.dtype)
	}
	return a.assignFrom(op, src)
}

// ConvertFrom is CopyFrom with a conversion between element types as by AsType. It is complete on return
// if the types differ. Errors: ErrLayout, ErrReadOnly, and ErrType for complex to real.
func (a *Array) ConvertFrom(src *Array) error {
	const op = "ConvertFrom"
	a.hold(op)
	defer a.buf.Release()
	src.hold(op)
	defer src.buf.Release()
	return a.assignFrom(op, src)
}

// assignFrom is ConvertFrom for arrays whose memory is held.
func (a *Array) assignFrom(op string, src *Array) error {
	if err := a.writable(op); err != nil {
		return err
	}
	from := src.layout
	if !slices.Equal(from.shape, a.layout.shape) {
		l, err := from.broadcast(a.layout.shape...)
		if err != nil {
			return err
		}
		from = l
	}
	if err := convertible(op, a.dtype, src.dtype); err != nil || a.Size() == 0 {
		return err
	}
	for _, b := range []memmgr.Buffer{a.buf, src.buf} {
		if err := b.Wait(); err != nil {
			return wrapErr(op, nil, err)
		}
	}
	if src.Size() == 1 && a.Size() > 1 {
		return a.fillFrom(op, src)
	}
	if a.dtype != src.dtype || a.elemBits()%8 != 0 || src.elemBits()%8 != 0 {
		return convertElements(op, a, src, &from)
	}
	return copyEnds(op, a.end(), src.endWith(from))
}

// Copy allocates an array from a resource and copies the elements into it, in Fortran order if a is in
// Fortran order, else in C order. The caller owns the copy.
func (a *Array) Copy(r memmgr.Resource, opts ...Option) (*Array, error) {
	const op = "Copy"
	a.hold(op)
	defer a.buf.Release()
	return a.copyInto(op, r, opts)
}

// copyInto is Copy for an array whose memory is held.
func (a *Array) copyInto(op string, r memmgr.Resource, opts []Option) (*Array, error) {
	o := options{fortran: !a.IsC() && a.IsF(), padded: a.Padded()}.with(opts)
	return create(op, r, a.dtype, a.layout.shape, o, func(b *Array) error { return b.copyFrom(op, a) })
}

// ToDevice returns the elements in memory of a resource's place (context, device and kind): a retained
// reference of the same memory if a is there already, else a Copy. The caller owns the result.
func (a *Array) ToDevice(r memmgr.Resource) (*Array, error) {
	const op = "ToDevice"
	a.hold(op)
	defer a.buf.Release()
	if r == nil {
		return nil, nilResource(op)
	}
	if a.place == r.Place() {
		return a.Retain(), nil
	}
	return a.copyInto(op, r, nil)
}

// AsType allocates an array of another element type and converts the elements. The caller owns the
// result. Errors: ErrType for complex to real.
//
// AsType, ConvertFrom, and asarray and similar functions in Python convert alike: as NumPy does, and as
// ml_dtypes does for the types that NumPy lacks, wherever they define a result.
//
//	integer to integer      wraps: the low bits are kept, also of int4 and similar
//	anything to bool        true unless it is 0; NaN is true; a complex number is true
//	                        if one of its parts is
//	bool to anything        0 and 1
//	to floating point       rounded to nearest even, once
//	above the largest       infinity if the format has it, else NaN if it has that
//	                        (float8), else the largest number (float6, float4)
//	NaN                     NaN; 0 in float6 and float4, which have no NaN
//	to float8_e8m0fnu       the nearest power of two, the larger of two equally near;
//	                        all but positive finite numbers become NaN
//	floating to integer     truncated; out-of-range values become the nearest end of
//	                        the range, and NaN 0
//	real to complex         with imaginary part 0
//	complex to complex      the parts, each as real numbers
//	complex to real         refused
//
// Where NumPy leaves the result to the processor (floating to integer out of range), it is the same on
// every machine here. ml_dtypes converts float64 and wide integers by way of float32 and so rounds twice,
// and it rounds all numbers between the two smallest powers of float8_e8m0fnu up; here the result is the
// nearest. Packed and padded sub-byte elements have the same values.
func (a *Array) AsType(r memmgr.Resource, dt DataType, opts ...Option) (*Array, error) {
	const op = "AsType"
	a.hold(op)
	defer a.buf.Release()
	if dt == a.dtype {
		return a.copyInto(op, r, opts)
	}
	if err := convertible(op, dt, a.dtype); err != nil {
		return nil, err
	}
	return create(op, r, dt, a.layout.shape, options{}.with(opts), func(b *Array) error { return b.assignFrom(op, a) })
}

// CopyFromSlice copies a Go slice, in C order, to an array in any memory. It is complete on return.
// Errors: ErrType, ErrReadOnly, and ErrLayout if the lengths differ.
func CopyFromSlice[T dlpack.Element](a *Array, data []T) error {
	const op = "CopyFromSlice"
	a.hold(op)
	defer a.buf.Release()
	if err := a.writable(op); err != nil {
		return err
	}
	e, err := sliceEnd(op, a, data)
	if err != nil || len(data) == 0 {
		return err
	}
	if err := a.buf.Wait(); err != nil {
		return wrapErr(op, nil, err)
	}
	return copyEnds(op, a.end(), e)
}

// longest is a number of bytes that no slice can have: half of a 47-bit address space, or of a 32-bit one.
const longest = min(1<<46, math.MaxInt)

// ToSlice copies the elements, in C order, to a new Go slice. Errors: ErrType for another element type,
// and ErrLayout for packed elements and for a view (such as a broadcast) with more elements than a slice
// can have.
func ToSlice[T dlpack.Element](a *Array) ([]T, error) {
	const op = "ToSlice"
	a.hold(op)
	defer a.buf.Release()
	if a.NBytes() >= longest {
		return nil, opErr(op, ErrLayout, "the view has %d bytes of elements, more than a slice can have; use smaller views", a.NBytes())
	}
	data := make([]T, a.Size())
	e, err := sliceEnd(op, a, data)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return data, nil
	}
	if err := a.buf.Wait(); err != nil {
		return nil, wrapErr(op, nil, err)
	}
	if err := copyEnds(op, e, a.end()); err != nil {
		return nil, err
	}
	return data, nil
}

// sliceEnd describes Go memory with the shape of an array.
func sliceEnd[T dlpack.Element](op string, a *Array, data []T) (end, error) {
	if want := dlpack.DataTypeOf[T](); a.dtype != want {
		return end{}, opErr(op, ErrType, "the array holds %s, the slice is of %s", a.dtype, want)
	}
	if len(data) != a.Size() {
		return end{}, opErr(op, ErrLayout, "the array has %d elements, the slice %d", a.Size(), len(data))
	}
	return end{base: unsafe.Pointer(unsafe.SliceData(data)), layout: rowMajor(a.layout.shape), size: a.dtype.Size(), kind: endGo}, nil
}
