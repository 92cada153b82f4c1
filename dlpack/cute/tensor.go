package cute

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

// Tensor is a Spec with the memory it describes. It owns its source until Release, or borrows it (Wrap).
// Several goroutines may read it at a time; a mark needs exclusive access.
//
// After Release, functions that return an error return one that matches ErrReleased. The others panic with
// it, except String.
type Tensor struct {
	spec     *Spec // does not share its large table
	data     unsafe.Pointer
	released atomic.Bool
	cloned   atomic.Bool // is a clone, or a clone may read spec: do not reuse it

	root  *Tensor // the tensor that holds the source: itself, or the original of a clone
	users atomic.Int64
	src   dlpack.Tensor
	owns  bool // src is held; false for wrapped memory
}

// specs holds the Specs of released tensors for reuse. A Spec is most of a tensor's size, and a loop that
// converts, passes on and releases tensors would otherwise burden the garbage collector.
var specs = sync.Pool{New: func() any { return new(Spec) }}

// FromDLPack converts a DLPack tensor without copying memory. The layout is fully static. On success the
// result owns t and its Release releases t; on failure t stays the caller's. Errors: those of NewSpec;
// ErrElementType for padded sub-byte elements, which CuTe packs; ErrReleased for a t that was released or
// taken over.
//
// CuTe DSL's implicit conversion of a kernel's arguments marks this result with MarkLayoutDynamic(Deduce).
func FromDLPack(t dlpack.Tensor, o Options) (*Tensor, error) {
	// Take it before reading it: otherwise a second conversion or t.Release could run concurrently.
	mine, ok := t.Take()
	if !ok {
		return nil, errReleased("FromDLPack")
	}
	c, err := taken(mine, &o)
	if err != nil {
		mine.Take() // it is the caller's again
		return nil, err
	}
	return c, nil
}

func taken(t dlpack.Tensor, o *Options) (*Tensor, error) {
	dt := t.DataType()
	if err := CheckFlags(dt, t.Flags()); err != nil {
		return nil, err
	}
	view := dlpack.View{Data: t.Data(), Shape: t.Shape(), Strides: t.Strides(), DataType: dt, Device: t.Device()}
	c, err := newTensor(&view, o)
	if err != nil {
		return nil, err
	}
	c.src, c.owns = t, true
	return c, nil
}

// Wrap describes memory that the caller owns and keeps alive until the tensor and its clones are released.
// The layout is fully static. Errors: those of NewSpec.
func Wrap(v dlpack.View, o Options) (*Tensor, error) { return newTensor(&v, &o) }

// CheckFlags refuses flags of a DLPack tensor that a View cannot express, with ErrElementType: padded
// sub-byte elements. FromDLPack calls it; callers of NewSpec and Wrap call it if they have flags.
func CheckFlags(dt dlpack.DataType, flags dlpack.Flags) error {
	if flags&dlpack.SubBytePadded != 0 && dt.IsSubByte() {
		return fail(ErrElementType, "the %s elements are padded to a byte each (IS_SUBBYTE_TYPE_PADDED), but CuTe packs them: pack them, or view the memory as Uint8", dt)
	}
	return nil
}

func newTensor(v *dlpack.View, o *Options) (*Tensor, error) {
	spec := specs.Get().(*Spec)
	*spec = Spec{large: spec.large}
	if err := spec.describe(v, o); err != nil {
		specs.Put(spec)
		return nil, err
	}
	c := &Tensor{spec: spec, data: v.Data}
	if v.ByteOffset != 0 {
		c.data = unsafe.Add(c.data, v.ByteOffset)
	}
	c.root = c
	c.users.Store(1)
	return c, nil
}

// Clone returns a tensor of the same memory with its own marks. The source is released when both are. It
// is safe while another goroutine releases.
func (t *Tensor) Clone() (*Tensor, error) {
	// Release sets released before it reads cloned. So either Release does not reuse the
	// spec that is copied here, or the check below finds released.
	t.cloned.Store(true)
	root := t.root
	for {
		n := root.users.Load()
		if n <= 0 || t.released.Load() {
			return nil, errReleased("Clone")
		}
		if root.users.CompareAndSwap(n, n+1) {
			spec := t.spec.copied()
			c := &Tensor{spec: &spec, data: t.data, root: root}
			c.cloned.Store(true)
			return c, nil
		}
	}
}

// Release releases an owned source when no clone needs it. Further calls do nothing.
func (t *Tensor) Release() {
	if t.released.Swap(true) {
		return
	}
	if !t.cloned.Load() {
		specs.Put(t.spec)
	}
	if root := t.root; root.users.Add(-1) == 0 && root.owns {
		root.src.Release()
	}
}

func errReleased(what string) error {
	return fail(ErrReleased, "%s was called on a tensor after its Release: keep it until the last use, or Clone it", what)
}

// live returns the Spec, or panics for a released tensor.
func (t *Tensor) live(what string) *Spec {
	if t.released.Load() {
		panic(errReleased(what))
	}
	return t.spec
}

// MarkLayoutDynamic marks the tensor in place; see Spec.MarkLayoutDynamic.
func (t *Tensor) MarkLayoutDynamic(leadingDim int) error {
	if t.released.Load() {
		return errReleased("MarkLayoutDynamic")
	}
	return t.spec.markLayout(leadingDim, true)
}

// MarkCompactShapeDynamic marks the tensor in place; see Spec.MarkCompactShapeDynamic.
func (t *Tensor) MarkCompactShapeDynamic(mode int, strideOrder []int, divisibility int64) error {
	if t.released.Load() {
		return errReleased("MarkCompactShapeDynamic")
	}
	return t.spec.markCompact(mode, strideOrder, divisibility, true)
}

// Data returns the address of the first element, valid until Release.
func (t *Tensor) Data() (unsafe.Pointer, error) {
	if t.released.Load() {
		return nil, errReleased("Data")
	}
	return t.data, nil
}

// Spec returns a copy of the tensor's description, which is valid after Release too.
func (t *Tensor) Spec() Spec { return t.live("Spec").copied() }

// Key returns the cache key of the tensor with its current marks.
func (t *Tensor) Key() Key { return t.live("Key").Key() }

// Layout returns the layout as CuTe DSL prints it, "(?,20):(?,1)".
func (t *Tensor) Layout() string { return t.live("Layout").Layout() }

// String returns CuTe DSL's text, "Tensor<0x000000000875f580@generic o (30,20):(20,1)>", and
// "Tensor<released>" after Release.
func (t *Tensor) String() string {
	if t.released.Load() {
		return "Tensor<released>"
	}
	return t.spec.TensorString(t.data)
}
