package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
)

// New allocates an array from a resource; the elements are not initialized. The caller owns it and calls
// Release, unless r is memory of an arena (package memmgr/arena), which then releases it. If there is no
// room, New fails immediately; over memmgr.Waiting it waits. Errors: ErrLayout for an invalid shape, ErrType for a type with lanes, and the resource's own
// (memmgr.ErrOutOfMemory).
func New(r memmgr.Resource, dt DataType, shape []int, opts ...Option) (*Array, error) {
	return create("New", r, dt, shape, options{}.with(opts), nil)
}

// create allocates an array and, if fill is not nil, writes its elements by fill.
func create(op string, r memmgr.Resource, dt DataType, shape []int, o options, fill func(*Array) error) (*Array, error) {
	if r == nil {
		return nil, nilResource(op)
	}
	if classOf(dt) == classOther {
		return nil, opErr(op, ErrType, "an array cannot hold %s; see dlpack.DataTypes", dt)
	}
	if err := checkShape(shape); err != nil {
		return nil, opErr(op, ErrLayout, "%w", err)
	}
	n := Layout{shape: shape}
	size, ok := ceilBytes(n.Size(), dt.StorageBits(o.padded))
	if !ok {
		return nil, opErr(op, ErrLayout, "shape %s of %s takes more bytes than can be addressed", tuple(shape), dt)
	}
	buf, err := memmgr.New(r, memmgr.Request{Size: uintptr(size), Queue: o.queue, Tag: o.tag})
	if err != nil {
		return nil, wrapErr(op, nil, err)
	}
	flags := o.flags(dt)
	a := newArray(buf, buf.Place(), dt, len(shape), flagOwner|flags&^flagReadOnly)
	copy(a.layout.shape, shape)
	if o.fortran {
		fillFStrides(a.layout.strides, shape)
	} else {
		fillCStrides(a.layout.strides, shape)
	}
	a.watch()
	if fill != nil {
		if err := fill(a); err != nil {
			a.Release()
			return nil, err
		}
	}
	a.flags |= flags
	if m, ok := r.(adopter); ok && !o.kept { // last, because the owner may release the array at any time
		if err := m.Adopt(a); err != nil { // closed concurrently
			a.Release()
			return nil, wrapErr(op, nil, err)
		}
	}
	return a, nil
}

// adopter is a resource that owns its arrays, as memory of an arena does.
type adopter interface {
	Adopt(x interface {
		Release()
		Valid() bool
	}) error
}

// nilResource returns the error of an allocation from a nil resource.
func nilResource(op string) error {
	return opErr(op, memmgr.ErrRequest, "the resource is nil; memmgr.Host gives plain memory, memmgr.USM that of a queue")
}

// Zeros is New with every element set to 0.
func Zeros(r memmgr.Resource, dt DataType, shape []int, opts ...Option) (*Array, error) {
	return create("Zeros", r, dt, shape, options{}.with(opts), (*Array).fillZero)
}

// Full is New with every element set to v; see Fill.
func Full(r memmgr.Resource, dt DataType, shape []int, v any, opts ...Option) (*Array, error) {
	return create("Full", r, dt, shape, options{}.with(opts), func(a *Array) error { return a.Fill(v) })
}

// FromSlice allocates an array of the slice's type and copies the slice into it. A nil shape means one
// axis. The caller owns the array. Errors: ErrLayout if the sizes differ. [FromPinnedSlice] does not copy.
// Arrays of types that Go lacks, such as float8, are converted from others ([Array.AsType]).
func FromSlice[T dlpack.Element](r memmgr.Resource, data []T, shape []int, opts ...Option) (*Array, error) {
	if shape == nil {
		shape = []int{len(data)}
	}
	return create("FromSlice", r, dlpack.DataTypeOf[T](), shape, options{}.with(opts),
		func(a *Array) error { return CopyFromSlice(a, data) })
}

// Arange allocates a one-dimensional array with the n elements start, start+step, … The caller owns it.
func Arange[T dlpack.Element](r memmgr.Resource, start, step T, n int, opts ...Option) (*Array, error) {
	if n < 0 {
		return nil, opErr("Arange", ErrLayout, "%d elements; the number cannot be negative", n)
	}
	return create("Arange", r, dlpack.DataTypeOf[T](), []int{n}, options{}.with(opts), func(a *Array) error {
		data := make([]T, n) // create has refused sizes for which make panics
		if err := arange(data, start, step); err != nil {
			return err
		}
		return CopyFromSlice(a, data)
	})
}

// arange works on the bytes of a value, because Go has no arithmetic on a constraint that includes bool.
func arange[T dlpack.Element](data []T, start, step T) error {
	c := newCodec(dlpack.DataTypeOf[T]())
	if c.class == classBool {
		return opErr("Arange", ErrType, "bool has no arithmetic; use a number type")
	}
	size := int(unsafe.Sizeof(start))
	at := func(p *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), size) }
	x, dx := c.decode(at(&start), 0), c.decode(at(&step), 0)
	for i := range data {
		k := float64(i)
		e := element{re: x.re + k*dx.re, im: x.im + k*dx.im, bits: x.bits + uint64(i)*dx.bits}
		c.encode(at(&data[i]), 0, e)
	}
	return nil
}
