package dlpack

import "errors"

// What can be wrong with a tensor, a view or a type. Errors of this package are
// *[Error] with one of these inside, so that errors.Is tells them apart; so are its
// panics, which misuse gets where no error is returned: the use of a tensor that
// ended, an index out of range, [Strided.Set] on read-only memory.
var (
	// ErrVersion: the major version is not ours; the tensor may only be deleted.
	ErrVersion = errors.New("another DLPack major version")
	// ErrShape: the number of dimensions, or an extent.
	ErrShape = errors.New("bad shape")
	// ErrStrides: the strides reach outside of what can be addressed.
	ErrStrides = errors.New("bad strides")
	// ErrOverflow: the element count or the size in bits does not fit 63 bits.
	ErrOverflow = errors.New("size overflow")
	// ErrDataType: an element type that cannot be exchanged, or not the one asked for.
	ErrDataType = errors.New("unsupported element type")
	// ErrAlignment: the first element is not at a multiple of the item size.
	ErrAlignment = errors.New("misaligned data")
	// ErrNull: no memory where there are elements, or no tensor at all.
	ErrNull = errors.New("no data")
	// ErrReadOnly: read-only memory where it could be written.
	ErrReadOnly = errors.New("read-only memory")
	// ErrDevice: not a device, or not one whose memory Go may touch.
	ErrDevice = errors.New("unsupported device")
	// ErrLayout: not contiguous, packed, or otherwise not what a view needs.
	ErrLayout = errors.New("unsupported layout")
	// ErrLegacy: a property that the legacy struct has no field for.
	ErrLegacy = errors.New("not expressible as a legacy tensor")
	// ErrFlags: flags that DLPack 1.3 does not define.
	ErrFlags = errors.New("unknown flags")
	// ErrIndex: an index outside of the shape.
	ErrIndex = errors.New("index out of range")
	// ErrReleased: a tensor that was released, detached or taken over, or none.
	ErrReleased = errors.New("released tensor")
	// ErrOutOfMemory: no C memory for the block.
	ErrOutOfMemory = errors.New("out of memory")
)

// Error says which operation failed, why (Err, one of the sentinels above, or
// errors.ErrUnsupported), and in Detail what was found and what to do.
type Error struct {
	Op     string // "export", "import", "view", "data type", ...
	Err    error
	Detail string
}

// Error is "dlpack: op: reason: detail".
func (e *Error) Error() string {
	s := "dlpack: " + e.Op + ": " + e.Err.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }
