package dlpack

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// MaxNDim is the number of dimensions that this package accepts; the standard has no limit.
const MaxNDim = 64

// Owner keeps exported memory alive: a C function and its context. It is a value that stands for one
// reference. The block that [Export] builds takes over that reference and drops it with one call of
// Drop(Ctx), on the thread of the last consumer. Drop is the address of a C function void(*)(void*) that
// may be called on any thread, with or without foreign locks held: it must not block and must not enter
// Go.
//
// The zero Owner is for memory without an owner that outlives every consumer.
type Owner struct {
	Drop uintptr
	Ctx  unsafe.Pointer
}

// View describes memory to export. It is a value that owns nothing: shape and strides are copied and
// nothing is retained. Strides count elements; nil means C order. ByteOffset leads from Data to the first
// element and is a multiple of the item size. Data is C memory, or Go memory that stays pinned until the
// owner is dropped.
type View struct {
	Data       unsafe.Pointer
	Device     Device
	DataType   DataType
	Shape      []int64
	Strides    []int64
	ByteOffset uint64
}

// Span describes the memory that a tensor covers. It is a value that owns nothing.
type Span struct {
	First      unsafe.Pointer // address of the first element (index 0, 0, ...) including the byte offset, or the handle
	Count      int64          // number of elements
	Lo, Hi     int64          // bytes relative to First: [Lo, Hi), Lo <= 0
	ItemBits   uint32         // bits from one element to the next
	contig     uint32
	ByteOffset uint64 // handle devices: the byte offset; else 0
}

// isC reports whether the elements are contiguous in row-major order. Dimensions of extent 1 do
// not matter; empty tensors are contiguous.
func (s Span) isC() bool { return s.contig&1 != 0 }

// isF reports whether the elements are contiguous in column-major order.
func (s Span) isF() bool { return s.contig&2 != 0 }

// Tensor is an owned managed tensor: a small value that refers to the tensor's slot. Copies refer to the
// same tensor. The zero Tensor refers to none.
//
// Exactly one call of Release, Detach or a function that takes the tensor over ends it. After that every
// method except Valid, Take, Release and String panics with an [*OpError] that matches [ErrReleased], on
// all copies. Methods may be called from several goroutines, but Release and Detach must not run
// concurrently with a method that reads.
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

// slot is usmb_dl_slot: one tensor, in C memory that is never freed. The fields of an imported tensor were
// read from the producer's struct once.
type slot struct {
	word       atomic.Uint64 // generation<<1 | live
	next       atomic.Uint32 // index+1 of the next free slot
	index      uint32        // own index+1
	managed    unsafe.Pointer
	more       unsafe.Pointer // C memory for the dimensions if dims is too small, or nil
	flags      Flags
	versioned  uint32
	version    Version
	hasStrides uint32
	t          *ctensor
	span       Span
	own        ctensor
	drop       uintptr        // the Drop of an Owner, if this library exported the tensor
	owner      unsafe.Pointer // the Ctx for drop
	dims       [2 * slotNDim]int64
}

// slotNDim is USMB_DL_SLOT_NDIM.
const slotNDim = 5

// Valid reports whether the tensor is held: neither released nor detached.
func (t Tensor) Valid() bool {
	return t.slot != nil && t.slot.word.Load() == t.gen<<1|1
}

func (t Tensor) get() *slot {
	if !t.Valid() {
		panic(stale("Tensor"))
	}
	return t.slot
}

// OwnerContext returns the Ctx of the Owner that [Export] was given, if this process exported the tensor
// with this Drop; else nil. The tensor still holds its reference of the owner. C's exports count too.
func (t Tensor) OwnerContext(drop uintptr) unsafe.Pointer {
	if s := t.get(); s.drop == drop {
		return s.owner
	}
	return nil
}

func stale(op string) error {
	return opErr(op, ErrReleased, "it was released, detached or taken over, or is the zero Tensor: keep it until its last use")
}

// end makes all handles stale. It returns true to exactly one caller.
func (t Tensor) end() bool {
	return t.slot != nil && t.slot.word.CompareAndSwap(t.gen<<1|1, (t.gen+1)<<1)
}

// Release calls the producer's deleter, once. It does nothing on a released or detached tensor and on the
// zero Tensor, so that it can be deferred.
func (t Tensor) Release() {
	if !t.end() {
		return
	}
	managed, versioned, more := t.slot.managed, t.slot.versioned, t.slot.more
	t.slot.pushFree()
	deleteManaged(managed, versioned != 0, more)
}

// Detach ends the tensor and gives the managed struct (DLManagedTensorVersioned if versioned, else
// DLManagedTensor) to the caller, who passes it on or calls [Delete].
func (t Tensor) Detach() (managed unsafe.Pointer, versioned bool) {
	s := t.get()
	managed, versioned = s.managed, s.versioned != 0
	more := s.more
	if !t.end() {
		panic(stale("Tensor.Detach")) // a concurrent call ended it
	}
	s.pushFree()
	if more != nil {
		freeMore(more)
	}
	return managed, versioned
}

// takenBit distinguishes the handle that Take returns from the one it was called on. A slot's generation
// never reaches this bit.
const takenBit = 1 << 62

// Take claims the tensor: all handles except the returned one become stale. If several goroutines try at
// once, one succeeds; ok is false for all other calls and for a tensor that has ended. Calling Take on the
// result makes the former handles valid again and the result stale, for a caller that cannot use the
// tensor.
func (t Tensor) Take() (taken Tensor, ok bool) {
	taken = Tensor{t.slot, t.gen ^ takenBit}
	return taken, t.slot != nil && t.slot.word.CompareAndSwap(t.gen<<1|1, taken.gen<<1|1)
}

// Managed returns the managed struct, borrowed: it is valid until the tensor ends.
func (t Tensor) Managed() (managed unsafe.Pointer, versioned bool) {
	s := t.get()
	return s.managed, s.versioned != 0
}

// Version returns the version that the producer wrote, zero for legacy tensors, which have none.
func (t Tensor) Version() Version { return t.get().version }

// Flags returns the tensor's flags. Legacy tensors have none.
func (t Tensor) Flags() Flags { return t.get().flags }

// Device returns the device of the memory.
func (t Tensor) Device() Device { return t.get().t.device }

// DataType returns the element type.
func (t Tensor) DataType() DataType { return t.get().t.dtype }

// NDim returns the number of dimensions, 0 to 64.
func (t Tensor) NDim() int { return int(t.get().t.ndim) }

// Shape returns the number of elements in each dimension. The slice belongs to the tensor: it is valid
// until the tensor ends and must not be written. For an imported tensor it holds the values read at
// import.
func (t Tensor) Shape() []int64 {
	ct := t.get().t
	return unsafe.Slice(ct.shape, ct.ndim)
}

// Strides returns the steps in elements from one index to the next, by dimension. The rules for the slice
// are those of Shape. If an older producer wrote no strides, it holds those of C order.
func (t Tensor) Strides() []int64 {
	ct := t.get().t
	return unsafe.Slice(ct.strides, ct.ndim)
}

// Span returns the memory that the tensor covers, its first element and contiguity.
func (t Tensor) Span() Span { return t.get().span }

// Data returns the address of the first element including the byte offset, or the handle for handle
// devices ([DeviceType.IsHandle]).
func (t Tensor) Data() unsafe.Pointer { return t.get().span.First }

// String returns the form "float32[480,640] on kDLCPU:0", or "released tensor".
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
