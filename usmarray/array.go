package usmarray

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Array is a typed, strided view of a buffer. What makes one of a resource, of
// foreign memory or by Retain gives an array that owns a reference of the
// buffer, ended by Release; views (Index, Transpose, Reshape, …) borrow and are
// valid while some owner is.
//
// The methods that read the description may be called from several goroutines;
// the elements are guarded by nobody.
type Array struct {
	buf    memmgr.Buffer
	place  *syclobj.Place // of the memory; valid while it is
	layout Layout
	dtype  DataType
	flags  arrayFlags
	state  atomic.Uint32 // 1 once released
	dims   [2 * inlineDims]int
}

// inlineDims is the number of dimensions whose shape and strides lie in the
// Array itself, so that making one is one allocation.
const inlineDims = 4

type arrayFlags uint8

const (
	flagOwner    arrayFlags = 1 << iota // Release gives back a reference
	flagReadOnly                        // writing is refused
	flagPadded                          // elements of less than a byte take a byte each
	flagCopied                          // a copy that one exported tensor alone holds
)

// newArray makes the object with room for n dimensions; shape and strides have
// length n and are to be filled in.
func newArray(buf memmgr.Buffer, place *syclobj.Place, dt DataType, n int, flags arrayFlags) *Array {
	a := &Array{buf: buf, place: place, dtype: dt, flags: flags}
	if n <= inlineDims {
		a.layout.shape = a.dims[:n:n]
		a.layout.strides = a.dims[inlineDims : inlineDims+n : inlineDims+n]
		return a
	}
	d := make([]int, 2*n)
	a.layout.shape, a.layout.strides = d[:n:n], d[n:]
	return a
}

// view makes a borrowing array with another layout of the same memory.
func (a *Array) view(l Layout) *Array {
	v := newArray(a.buf, a.place, a.dtype, len(l.shape), a.flags&^flagOwner)
	copy(v.layout.shape, l.shape)
	copy(v.layout.strides, l.strides)
	v.layout.offset = l.offset
	return v
}

// viewUnless is view of a layout whose making may have failed.
func (a *Array) viewUnless(l Layout, err error) (*Array, error) {
	if err != nil {
		return nil, err
	}
	return a.view(l), nil
}

// Buffer is the memory; borrowed.
func (a *Array) Buffer() memmgr.Buffer {
	a.check("Buffer")
	return a.buf
}

// DataType is the element type.
func (a *Array) DataType() DataType {
	a.notNil("DataType")
	return a.dtype
}

// Layout is shape, strides and offset, in elements from the start of the
// buffer.
func (a *Array) Layout() Layout {
	a.notNil("Layout")
	return Layout{slices.Clone(a.layout.shape), slices.Clone(a.layout.strides), a.layout.offset}
}

// NDim is the number of dimensions.
func (a *Array) NDim() int {
	a.notNil("NDim")
	return len(a.layout.shape)
}

// Shape is a copy of the lengths of the axes.
func (a *Array) Shape() []int {
	a.notNil("Shape")
	return a.layout.Shape()
}

// Strides is a copy of the strides, in elements.
func (a *Array) Strides() []int {
	a.notNil("Strides")
	return a.layout.Strides()
}

// Size is the number of elements: 1 for a scalar, 0 for the zero Array, which has
// no element type.
func (a *Array) Size() int {
	a.notNil("Size")
	if a.dtype.Bits == 0 {
		return 0
	}
	return a.layout.Size()
}

// NBytes is the size of the elements in bytes, without gaps.
func (a *Array) NBytes() int {
	a.notNil("NBytes")
	n, _ := ceilBytes(a.layout.Size(), a.elemBits()) // fits: checked at creation
	return n
}

// elemBits is the distance between neighbouring elements in bits.
func (a *Array) elemBits() int { return a.dtype.StorageBits(a.flags&flagPadded != 0) }

// Padded reports whether elements of a sub-byte type take a byte each; else
// they are packed.
func (a *Array) Padded() bool {
	a.notNil("Padded")
	return a.flags&flagPadded != 0
}

// IsC reports whether the elements lie densely in C order.
func (a *Array) IsC() bool {
	a.notNil("IsC")
	return a.layout.isC()
}

// IsF reports whether the elements lie densely in Fortran order.
func (a *Array) IsF() bool {
	a.notNil("IsF")
	return a.layout.isF()
}

// ReadOnly reports whether writing is refused: for this array, or for its
// memory as a whole.
func (a *Array) ReadOnly() bool {
	a.hold("ReadOnly")
	defer a.buf.Release()
	return a.readOnly()
}

// readOnly is ReadOnly of an array whose memory is held.
func (a *Array) readOnly() bool { return a.flags&flagReadOnly != 0 || a.buf.ReadOnly() }

// Place is the facts of the memory: context, device, kind, DLPack device;
// borrowed.
func (a *Array) Place() *syclobj.Place {
	a.check("Place")
	return a.place
}

// Pointer is where element (0, …, 0) lies, in memory outside the Go heap: to be
// handed to C, and not to be followed when the host cannot read the memory (see
// syclobj.Place.HostReadable). For packed sub-byte types that do not begin at a
// byte it is the byte that holds the element.
func (a *Array) Pointer() unsafe.Pointer {
	a.hold("Pointer")
	defer a.buf.Release()
	return a.first()
}

// first is Pointer of an array whose memory is held.
func (a *Array) first() unsafe.Pointer {
	return unsafe.Add(a.base(), a.layout.offset*a.elemBits()/8)
}

// base is the start of the buffer.
func (a *Array) base() unsafe.Pointer { return a.buf.Data() }

// Wait blocks until the work that this library submitted on the memory is
// complete.
func (a *Array) Wait() error {
	a.hold("Wait")
	defer a.buf.Release()
	if err := a.buf.Wait(); err != nil {
		return wrapErr("Wait", nil, err)
	}
	return nil
}

// AsReadOnly is a view through which nothing can be written.
func (a *Array) AsReadOnly() *Array {
	a.check("AsReadOnly")
	v := a.view(a.layout)
	v.flags |= flagReadOnly
	return v
}

// Index is the view that a basic index selects; see Layout.Index.
func (a *Array) Index(items ...Index) (*Array, error) {
	a.check("Index")
	return a.viewUnless(a.layout.index(items...))
}

// Transpose is the view with permuted axes, reversed without arguments.
func (a *Array) Transpose(axes ...int) (*Array, error) {
	a.check("Transpose")
	return a.viewUnless(a.layout.transpose(axes...))
}

// Reshape is the view with another shape; see Layout.Reshape. Errors: ErrLayout
// when the elements would have to move, then Copy first.
func (a *Array) Reshape(shape ...int) (*Array, error) {
	a.check("Reshape")
	return a.viewUnless(a.layout.reshape(shape...))
}

// Broadcast is the read-only view that repeats axes of length 1 to the shape;
// see Layout.Broadcast. Errors: ErrLayout, also for more bytes than an int counts.
func (a *Array) Broadcast(shape ...int) (*Array, error) {
	a.check("Broadcast")
	l, err := a.layout.broadcast(shape...)
	if err != nil {
		return nil, err
	}
	if _, ok := ceilBytes(l.Size(), a.elemBits()); !ok {
		return nil, opErr("Broadcast", ErrLayout, "%v elements of %s are more bytes than can be counted", tuple(shape), a.dtype)
	}
	v := a.view(l)
	v.flags |= flagReadOnly
	return v, nil
}

// String prints the elements as NumPy's str does, device memory included. After
// a release it says so instead of panicking, because printing is for debugging.
func (a *Array) String() string {
	if !a.tryHold() {
		return "<released array>"
	}
	defer a.buf.Release()
	s, err := a.format(PrintOptions{})
	if err != nil {
		return fmt.Sprintf("<%s array of shape %s: %v>", a.dtype, tuple(a.layout.shape), err)
	}
	return s
}

// Synchronize blocks until the work that this library submitted on the memory
// is complete, and everything submitted to the memory's own queue: what a
// consumer that waits (the xpu contract) calls before it reads. Work that
// others submitted to queues of theirs is theirs to wait for.
func (a *Array) Synchronize(ctx context.Context) error {
	const op = "Synchronize"
	a.hold(op)
	defer a.buf.Release()
	if err := a.buf.WaitContext(ctx); err != nil {
		return wrapErr(op, nil, err)
	}
	if a.place.IsHost() {
		return ctx.Err()
	}
	q, err := a.copyQueue(op)
	if err != nil {
		return err
	}
	if err := q.Wait(ctx); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}
