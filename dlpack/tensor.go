package dlpack

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Owner is what keeps exported memory alive: a C function and its context. The
// block that [Export] builds takes over one reference, and gives it back by one
// call of Drop(Ctx), on whichever thread the last consumer runs. Drop is the
// address of a C function void(*)(void*) that may be called on any thread,
// with or without foreign locks held: it must not block and must not enter Go.
//
// The zero Owner is memory that nobody owns and that outlives every consumer.
type Owner struct {
	Drop uintptr
	Ctx  unsafe.Pointer
}

// View describes memory to export. Shape and strides are copied; nothing of the
// view is kept. Strides count elements; nil means C order. ByteOffset leads from
// Data to the first element and is a multiple of the item size. Data is C
// memory, or Go memory that stays pinned until the owner is dropped.
type View struct {
	Data       unsafe.Pointer
	Device     Device
	DataType   DataType
	Shape      []int64
	Strides    []int64
	ByteOffset uint64
}

// Span says which memory a tensor touches.
type Span struct {
	First      unsafe.Pointer // the first element (index 0, 0, ...), byte offset folded in; a handle as it is
	Count      int64          // elements
	Lo, Hi     int64          // bytes touched, relative to First: [Lo, Hi), Lo <= 0
	ItemBits   uint32         // from one element to the next
	contig     uint32
	ByteOffset uint64 // of handle devices, where it cannot be folded in; else 0
}

// CContiguous reports whether elements lie in row-major order without gaps
// (extents of 1 do not matter, empty tensors are contiguous).
func (s Span) CContiguous() bool { return s.contig&1 != 0 }

// FContiguous is the same for column-major order.
func (s Span) FContiguous() bool { return s.contig&2 != 0 }

// Tensor is an owned managed tensor: a small value that names a place where the
// tensor is kept. Copies name the same tensor. The zero Tensor is none.
//
// Exactly one of Release, Detach or whoever takes the tensor over ends it;
// after that every method but Valid, Take, Release and String panics with an
// [*Error] that is [ErrReleased], on all copies. Methods
// may be called from several goroutines, but Release and Detach must not run
// beside a method that reads.
type Tensor struct {
	slot *slot
	gen  uint64
}

// ctensor is DLTensor.
type ctensor struct {
	data       unsafe.Pointer
	device     Device
	ndim       int32
	dtype      DataType
	shape      *int64
	strides    *int64
	byteOffset uint64
}

// slot is usmb_dl_slot: one tensor's place, in C memory that is never freed. What
// it says of an imported tensor was read from the producer's struct once.
type slot struct {
	word       atomic.Uint64 // generation<<1 | live
	next       atomic.Uint32 // index+1 of the next free slot
	index      uint32        // own index+1
	managed    unsafe.Pointer
	more       unsafe.Pointer // C memory of the tensor's dimensions when dims is too small, or nil
	flags      Flags
	versioned  uint32
	version    Version
	hasStrides uint32
	t          *ctensor
	span       Span
	own        ctensor
	dims       [2 * slotNDim]int64
}

// slotNDim is USMB_DL_SLOT_NDIM.
const slotNDim = 6

// Valid reports whether the tensor is held and was not released or detached.
func (t Tensor) Valid() bool {
	return t.slot != nil && t.slot.word.Load() == t.gen<<1|1
}

func (t Tensor) get() *slot {
	if !t.Valid() {
		panic(stale("use"))
	}
	return t.slot
}

func stale(op string) *Error {
	return &Error{Op: op, Err: ErrReleased,
		Detail: "it was released, detached or taken over, or never made: keep it until its last use"}
}

// end makes all handles stale; true for the one caller that did it.
func (t Tensor) end() bool {
	return t.slot != nil && t.slot.word.CompareAndSwap(t.gen<<1|1, (t.gen+1)<<1)
}

// Release runs the producer's deleter, once. Releasing again, or after Detach,
// or the zero Tensor, does nothing, so that it can be deferred.
func (t Tensor) Release() {
	if !t.end() {
		return
	}
	managed, versioned, more := t.slot.managed, t.slot.versioned, t.slot.more
	t.slot.pushFree()
	deleteManaged(managed, versioned != 0, more)
}

// Detach gives up the tensor: the caller now owns the managed struct
// (DLManagedTensorVersioned when versioned, else DLManagedTensor), to hand it
// on or to [Delete] it.
func (t Tensor) Detach() (managed unsafe.Pointer, versioned bool) {
	s := t.get()
	managed, versioned = s.managed, s.versioned != 0
	more := s.more
	if !t.end() {
		panic(stale("detach")) // somebody else was quicker
	}
	s.pushFree()
	if more != nil {
		freeMore(more)
	}
	return managed, versioned
}

// takenBit tells the handle that Take returns from the one it was called on. No
// slot is used so often that counting its tensors reaches this bit.
const takenBit = 1 << 62

// Take claims the tensor: every handle becomes stale but the one returned, also
// when several goroutines try at once; ok is false for those that come late, and
// for a tensor that ended. Taking the result once more gives the former handles
// their validity back and returns theirs: so does a taker who cannot use it.
func (t Tensor) Take() (taken Tensor, ok bool) {
	taken = Tensor{t.slot, t.gen ^ takenBit}
	return taken, t.slot != nil && t.slot.word.CompareAndSwap(t.gen<<1|1, taken.gen<<1|1)
}

// Managed is the managed struct, borrowed: valid until the tensor ends.
func (t Tensor) Managed() (managed unsafe.Pointer, versioned bool) {
	s := t.get()
	return s.managed, s.versioned != 0
}

// Version is the version the producer wrote; zero for legacy tensors, which
// carry none.
func (t Tensor) Version() Version { return t.get().version }

// Flags are the tensor's flags; legacy tensors have none.
func (t Tensor) Flags() Flags { return t.get().flags }

// Device is where the memory lives.
func (t Tensor) Device() Device { return t.get().t.device }

// DataType is the element type.
func (t Tensor) DataType() DataType { return t.get().t.dtype }

// NDim is the number of dimensions, 0 to 64.
func (t Tensor) NDim() int { return int(t.get().t.ndim) }

// Shape is the number of elements in each dimension. The slice is the tensor's:
// valid until the tensor ends, and not to be written. That of an imported tensor
// is what the producer's struct said when it was taken over.
func (t Tensor) Shape() []int64 {
	ct := t.get().t
	return unsafe.Slice(ct.shape, ct.ndim)
}

// Strides are the steps in elements from one index to the next, by dimension. The
// slice is as for Shape, and has C-order strides when an older producer left them
// out.
func (t Tensor) Strides() []int64 {
	ct := t.get().t
	return unsafe.Slice(ct.strides, ct.ndim)
}

// Span says which memory the tensor touches, its first element and contiguity.
func (t Tensor) Span() Span { return t.get().span }

// Data is the address of the first element, byte offset folded in; for handle
// devices ([DeviceType.IsHandle]) the handle itself.
func (t Tensor) Data() unsafe.Pointer { return t.get().span.First }

// String is "float32[480,640] on kDLCPU:0", or "released tensor".
func (t Tensor) String() string {
	if !t.Valid() {
		return "released tensor"
	}
	text := "["
	for i, n := range t.Shape() {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprint(n)
	}
	return t.DataType().String() + text + "] on " + t.Device().String()
}
