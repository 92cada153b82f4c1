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

// Array is a typed, strided view of a buffer. Arrays that New…, From…, Copy and Retain return own a
// reference of the buffer, which Release drops. Views (Index, Transpose, Reshape, Broadcast, AsReadOnly)
// and WrapBuffer borrow: they are valid while some owner is.
//
// Methods may be called from several goroutines. Element access is not synchronized.
type Array struct {
	buf    memmgr.Buffer
	place  *syclobj.Place // of the memory; valid while it is
	layout Layout
	dtype  DataType
	flags  arrayFlags
	state  atomic.Uint32 // 1 once released
	dims   [2 * inlineDims]int
}

// inlineDims is the number of dimensions whose shape and strides lie in the Array itself, so that creating
// one needs one allocation.
const inlineDims = 4

type arrayFlags uint8

const (
	flagOwner    arrayFlags = 1 << iota // Release drops a reference
	flagReadOnly                        // writing is refused
	flagPadded                          // elements of less than a byte take a byte each
	flagCopied                          // a copy that only one exported tensor holds
)

// newArray returns an Array with room for n dimensions. The caller fills in shape and strides, which have
// length n.
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

// view returns a borrowing array with another layout of the same memory.
func (a *Array) view(l Layout) *Array {
	v := newArray(a.buf, a.place, a.dtype, len(l.shape), a.flags&^flagOwner)
	copy(v.layout.shape, l.shape)
	copy(v.layout.strides, l.strides)
	v.layout.offset = l.offset
	return v
}

// viewUnless returns a view, or the error of the layout.
func (a *Array) viewUnless(l Layout, err error) (*Array, error) {
	if err != nil {
		return nil, err
	}
	return a.view(l), nil
}

// Buffer returns the memory, borrowed.
func (a *Array) Buffer() memmgr.Buffer {
	a.check("Buffer")
	return a.buf
}

// DataType returns the element type.
func (a *Array) DataType() DataType {
	a.notNil("DataType")
	return a.dtype
}

// Layout returns shape, strides and offset, in elements from the start of the buffer.
func (a *Array) Layout() Layout {
	a.notNil("Layout")
	return Layout{slices.Clone(a.layout.shape), slices.Clone(a.layout.strides), a.layout.offset}
}

// NDim returns the number of dimensions.
func (a *Array) NDim() int {
	a.notNil("NDim")
	return len(a.layout.shape)
}

// Shape returns a copy of the lengths of the axes.
func (a *Array) Shape() []int {
	a.notNil("Shape")
	return a.layout.Shape()
}

// Strides returns a copy of the strides, in elements.
func (a *Array) Strides() []int {
	a.notNil("Strides")
	return a.layout.Strides()
}

// Size returns the number of elements: 1 for a scalar, 0 for the zero Array, which has no element type.
func (a *Array) Size() int {
	a.notNil("Size")
	if a.dtype.Bits == 0 {
		return 0
	}
	return a.layout.Size()
}

// NBytes returns the size of the elements in bytes, without gaps.
func (a *Array) NBytes() int {
	a.notNil("NBytes")
	n, _ := ceilBytes(a.layout.Size(), a.elemBits()) // fits: checked at creation
	return n
}

// elemBits returns the distance between neighbouring elements in bits.
func (a *Array) elemBits() int { return a.dtype.StorageBits(a.flags&flagPadded != 0) }

// Padded reports whether each element of a sub-byte type occupies a whole byte. Otherwise they are packed.
func (a *Array) Padded() bool {
	a.notNil("Padded")
	return a.flags&flagPadded != 0
}

// IsC reports whether the elements are contiguous in row-major order. Axes of length 1 do not matter; an
// empty array is contiguous.
func (a *Array) IsC() bool {
	a.notNil("IsC")
	return a.layout.isC()
}

// IsF reports whether the elements are contiguous in column-major order, with the same rules as IsC.
func (a *Array) IsF() bool {
	a.notNil("IsF")
	return a.layout.isF()
}

// ReadOnly reports whether writes are refused, for this array or for its memory as a whole.
func (a *Array) ReadOnly() bool {
	a.hold("ReadOnly")
	defer a.buf.Release()
	return a.readOnly()
}

// readOnly is ReadOnly for an array whose memory is held.
func (a *Array) readOnly() bool { return a.flags&flagReadOnly != 0 || a.buf.ReadOnly() }

// Place returns the description of the memory (context, device, kind, DLPack device), borrowed.
func (a *Array) Place() *syclobj.Place {
	a.check("Place")
	return a.place
}

// Pointer returns the address of element (0, …, 0), in memory outside the Go heap. Pass it to C; do not
// dereference it if the host cannot read the memory (see syclobj.Place.HostReadable). If a packed sub-byte
// element does not begin at a byte, it is the address of the byte that holds it. The address is valid
// while the array is. Work that this library submitted may be pending on the memory, and on a new array that of a former
// user ([WithQueue]): call [Array.Wait] before you use the address elsewhere.
func (a *Array) Pointer() unsafe.Pointer {
	a.hold("Pointer")
	defer a.buf.Release()
	return a.first()
}

// first is Pointer for an array whose memory is held.
func (a *Array) first() unsafe.Pointer {
	return unsafe.Add(a.base(), a.layout.offset*a.elemBits()/8)
}

// base returns the start of the buffer.
func (a *Array) base() unsafe.Pointer { return a.buf.Data() }

// Wait blocks until the work that this library submitted on the memory is complete. [Array.Synchronize]
// also waits for the memory's queue; [Array.PendingEvent] returns an event instead of blocking.
func (a *Array) Wait() error {
	a.hold("Wait")
	defer a.buf.Release()
	if err := a.buf.Wait(); err != nil {
		return wrapErr("Wait", nil, err)
	}
	return nil
}

// AsReadOnly returns a view that refuses writes.
func (a *Array) AsReadOnly() *Array {
	a.check("AsReadOnly")
	v := a.view(a.layout)
	v.flags |= flagReadOnly
	return v
}

// Index returns the view that a basic index selects: Index(IndexAt(0), All, IndexFrom(2)) is NumPy's x[0,
// :, 2:]. Axes without an item are kept. Errors: ErrLayout for too many items, two ellipses or a step of
// 0; ErrIndex for an IndexAt out of range.
func (a *Array) Index(items ...Index) (*Array, error) {
	a.check("Index")
	return a.viewUnless(a.layout.index(items...))
}

// Transpose returns the view with permuted axes; without arguments it reverses them. Negative axes count
// from the end. Errors: ErrLayout if axes is not a permutation.
func (a *Array) Transpose(axes ...int) (*Array, error) {
	a.check("Transpose")
	return a.viewUnless(a.layout.transpose(axes...))
}

// Reshape returns the view of the same elements, in C order, with another shape. One dimension may be -1
// and is computed. Errors: ErrLayout if the sizes differ or if the elements would have to move; then Copy
// first.
func (a *Array) Reshape(shape ...int) (*Array, error) {
	a.check("Reshape")
	return a.viewUnless(a.layout.reshape(shape...))
}

// Broadcast returns the read-only view that repeats axes of length 1, and adds leading axes, to obtain the
// shape, by NumPy's rules. Errors: ErrLayout, also if the number of bytes does not fit an int.
func (a *Array) Broadcast(shape ...int) (*Array, error) {
	a.check("Broadcast")
	l, err := a.layout.broadcast(shape...)
	if err != nil {
		return nil, err
	}
	if _, ok := ceilBytes(l.Size(), a.elemBits()); !ok {
		return nil, opErr("Broadcast", ErrLayout, "%v elements of %s take more bytes than an int can count", tuple(shape), a.dtype)
	}
	v := a.view(l)
	v.flags |= flagReadOnly
	return v, nil
}

// String formats the elements as NumPy's str does, including device memory. For a released array it
// returns "<released array>" instead of panicking, so that printing is safe in debugging.
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

// Synchronize blocks until the work that this library submitted on the memory, and all work submitted to
// the memory's own queue, is complete, or until ctx ends. Consumers that must wait before they read (the
// xpu protocol) call it. It does not wait for work that other libraries submitted to their own queues.
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
