package usmarray

import (
	"context"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Option is an option of New, Zeros, Full, FromSlice, Arange, Copy and AsType. It is an immutable value.
// For an alignment larger than the resource's, use memmgr.New and FromBuffer.
type Option struct{ set func(*createOptions) }

type createOptions struct {
	fortran bool
	queue   *syclobj.Queue
	tag     string
	ctx     context.Context
	padded  bool
}

// FortranOrder stores the elements in column-major order: the first axis varies fastest.
func FortranOrder() Option { return Option{func(o *createOptions) { o.fortran = true }} }

// WithQueue sets the queue that will use the memory first.
func WithQueue(q *syclobj.Queue) Option {
	return Option{func(o *createOptions) { o.queue = q }}
}

// WithTag names the user of the memory in statistics.
func WithTag(tag string) Option { return Option{func(o *createOptions) { o.tag = tag }} }

// WithContext lets an allocation wait for free memory until the context ends, if the resource can wait
// (memmgr.Pool). Without it, an allocation fails immediately if there is no room.
func WithContext(ctx context.Context) Option {
	return Option{func(o *createOptions) { o.ctx = ctx }}
}

// Padded stores each element of a sub-byte type in a whole byte.
func Padded() Option { return Option{func(o *createOptions) { o.padded = true }} }

// New allocates an array from a resource; the elements are not initialized. The caller owns it and calls
// Release, unless the resource is a memmgr.Adopter such as an arena's memory, which then releases it.
// Errors: ErrLayout for an invalid shape, ErrType for a type with lanes, and the resource's own
// (memmgr.ErrOutOfMemory).
func New(r memmgr.Resource, dt DataType, shape []int, opts ...Option) (*Array, error) {
	var o createOptions
	for _, f := range opts {
		f.set(&o)
	}
	return create("New", r, dt, shape, &o)
}

func create(op string, r memmgr.Resource, dt DataType, shape []int, o *createOptions) (*Array, error) {
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
	buf, err := memmgr.New(r, memmgr.Request{Size: uintptr(size), Queue: o.queue, Tag: o.tag, Context: o.ctx})
	if err != nil {
		return nil, wrapErr(op, nil, err)
	}
	flags := flagOwner
	if o.padded && dt.IsSubByte() {
		flags |= flagPadded
	}
	a := newArray(buf, buf.Place(), dt, len(shape), flags)
	copy(a.layout.shape, shape)
	if o.fortran {
		fillFStrides(a.layout.strides, shape)
	} else {
		fillCStrides(a.layout.strides, shape)
	}
	a.watch()
	if m, ok := r.(memmgr.Adopter); ok {
		if err := m.Adopt(a); err != nil { // closed concurrently
			a.Release()
			return nil, wrapErr(op, nil, err)
		}
	}
	return a, nil
}

// nilResource returns the error of an allocation from a nil resource.
func nilResource(op string) error {
	return opErr(op, memmgr.ErrRequest, "the resource is nil; memmgr.Host gives plain memory, memmgr.USM that of a queue")
}

// newLike allocates an array with the shape and type of another, in Fortran order if that is the order of
// its elements, else in C order.
func newLike(op string, r memmgr.Resource, a *Array, opts []Option) (*Array, error) {
	var o createOptions
	if !a.IsC() && a.IsF() {
		o.fortran = true
	}
	o.padded = a.Padded()
	for _, f := range opts {
		f.set(&o)
	}
	return create(op, r, a.dtype, a.layout.shape, &o)
}

// Zeros is New with every element set to 0.
func Zeros(r memmgr.Resource, dt DataType, shape []int, opts ...Option) (*Array, error) {
	a, err := New(r, dt, shape, opts...)
	if err != nil {
		return nil, err
	}
	return filled(a, a.fillZero())
}

// Full is New with every element set to v; see Fill.
func Full(r memmgr.Resource, dt DataType, shape []int, v any, opts ...Option) (*Array, error) {
	a, err := New(r, dt, shape, opts...)
	if err != nil {
		return nil, err
	}
	return filled(a, a.Fill(v))
}

// filled releases a if filling it failed.
func filled(a *Array, err error) (*Array, error) {
	if err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}

// FromSlice allocates an array of the slice's type and copies the slice into it. A nil shape means one
// axis. The caller owns the array. Errors: ErrLayout if the sizes differ. [FromPinnedSlice] does not copy.
func FromSlice[T Element](r memmgr.Resource, data []T, shape []int, opts ...Option) (*Array, error) {
	if shape == nil {
		shape = []int{len(data)}
	}
	a, err := New(r, dlpack.DataTypeOf[T](), shape, opts...)
	if err != nil {
		return nil, err
	}
	return filled(a, CopyFromSlice(a, data))
}

// Arange allocates a one-dimensional array with the n elements start, start+step, … The caller owns it.
func Arange[T Element](r memmgr.Resource, start, step T, n int, opts ...Option) (*Array, error) {
	if n < 0 {
		return nil, opErr("Arange", ErrLayout, "%d elements; the number cannot be negative", n)
	}
	// Allocate first: New returns an error for an excessive size, make panics.
	a, err := New(r, dlpack.DataTypeOf[T](), []int{n}, opts...)
	if err != nil {
		return nil, err
	}
	data := make([]T, n)
	if err := arange(data, start, step); err != nil {
		return filled(a, err)
	}
	return filled(a, CopyFromSlice(a, data))
}

// arange works on the bytes of a value, because Go has no arithmetic on a constraint that includes bool.
func arange[T Element](data []T, start, step T) error {
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
