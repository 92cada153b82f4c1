package usmarray

import (
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Option is an option of the functions that make an array. It is immutable and may be used by several
// goroutines. Functions that allocate (New, Zeros, Full, FromSlice, Arange, Copy and AsType) accept all
// options. FromBuffer, WrapBuffer and FromPinnedSlice describe existing memory: they accept Padded and
// ReadOnly, and refuse all other options with memmgr.ErrRequest.
//
// No option sets the alignment: use memmgr.New and FromBuffer for one larger than the resource's.
type Option func(*options)

type options struct {
	padded   bool
	readOnly bool
	// The rest concerns new memory only.
	fortran bool
	queue   *syclobj.Queue
	tag     string
	kept    bool // the caller owns the array even if the resource adopts arrays
}

// Padded stores each element of a sub-byte type in a whole byte.
func Padded() Option { return func(o *options) { o.padded = true } }

// ReadOnly makes the array refuse writes, once the function that makes it has filled it.
func ReadOnly() Option { return func(o *options) { o.readOnly = true } }

// FortranOrder stores the elements in column-major order: the first axis varies fastest.
func FortranOrder() Option { return func(o *options) { o.fortran = true } }

// WithQueue sets the queue that will use the memory first. Work of the memory's former user may still be pending on an
// in-order queue: work that is submitted on it comes afterwards. Before any other use of the address ([Array.Pointer]),
// on the host or on another queue, call [Array.Wait]. The functions of this package wait themselves. Without WithQueue
// no work is pending on new memory.
func WithQueue(q *syclobj.Queue) Option { return func(o *options) { o.queue = q } }

// WithTag names the user of the memory in statistics. A process has at most 1024 tags, and further ones
// count as "other": use names of purposes, not of requests.
func WithTag(tag string) Option { return func(o *options) { o.tag = tag } }

// with returns o with more options applied. It allocates only if there are any.
func (o options) with(opts []Option) options {
	if len(opts) == 0 {
		return o
	}
	applied := new(options)
	*applied = o
	for _, set := range opts {
		set(applied)
	}
	return *applied
}

// flags returns the flags that the options set for arrays of the type.
func (o *options) flags(dt DataType) (f arrayFlags) {
	if o.padded && dt.IsSubByte() {
		f |= flagPadded
	}
	if o.readOnly {
		f |= flagReadOnly
	}
	return f
}

// checkMemoryGiven refuses options that only an allocation can apply.
func (o *options) checkMemoryGiven(op string) error {
	if o.fortran || o.queue != nil || o.tag != "" {
		return opErr(op, memmgr.ErrRequest, "FortranOrder, WithQueue and WithTag apply to new memory; omit them for existing memory")
	}
	return nil
}
