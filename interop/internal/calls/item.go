//go:build cgo && linux

package calls

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -I${SRCDIR}/../../python -I${SRCDIR}/../../pymodule -I${SRCDIR}/../../../dlpack -I${SRCDIR}/../../../internal/owner -I${SRCDIR}/../../../syclobj
#include "usmb_calls.h"
#include "usmb_pyvalues.h"
*/
import "C"

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/python"
)

// Item is one call. [New] makes it; it can be reused for any number of calls, one after the other.
// Methods that name no thread are for the owner of the call (State).
type Item struct {
	c         *C.usmb_item
	arguments arguments

	ctx    context.Context
	mu     sync.Mutex
	within context.Context // the context for Go functions that the call runs; nil: not requested yet
	cancel context.CancelCauseFunc
	cause  error // the cause of Interrupt if ctx had not ended
}

// items maps the numbers of calls to Items.
var items struct {
	sync.RWMutex
	last  uint64
	known map[uint64]weak.Pointer[Item]
}

// New returns an item, or nil if memory is exhausted. Its memory of C is freed when the item is
// unreachable.
func New() *Item {
	items.Lock()
	defer items.Unlock()
	items.last++
	c := C.usmb_item_new(C.uint64_t(items.last))
	if c == nil {
		return nil
	}
	i := &Item{c: c}
	i.arguments.init(i)
	if items.known == nil {
		items.known = map[uint64]weak.Pointer[Item]{}
	}
	items.known[items.last] = weak.Make(i)
	runtime.AddCleanup(i, func(c *C.usmb_item) {
		items.Lock()
		delete(items.known, uint64(c.call.number))
		items.Unlock()
		C.usmb_item_clear(c)
		C.usmb_item_free(c)
	}, c)
	return i
}

func init() {
	calling.Numbered = func(number uint64) context.Context {
		items.RLock()
		i := items.known[number].Value()
		items.RUnlock()
		if i == nil { // Not for a running call: its batch refers to it.
			return context.Background()
		}
		return i.contextWithin()
	}
}

// Begin makes it a waiting call with a context. Only the caller has the item.
func (i *Item) Begin(ctx context.Context) { i.ctx = ctx }

// End releases the arguments and the result of the call, and makes the item ready for another.
// Only the caller has the item.
func (i *Item) End() {
	if i.cancel != nil {
		i.cancel(nil)
	}
	C.usmb_item_drop(i.c)
	C.usmb_item_clear(i.c)
	i.ctx, i.within, i.cancel, i.cause = nil, nil, nil, nil
}

func (i *Item) state() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&i.c.state)) }

// State returns which side owns the call. Any thread.
func (i *Item) State() State { return State(i.state().Load()) }

// Move changes the state from one to another, and reports whether it was from. Any thread.
func (i *Item) Move(from, to State) bool {
	return i.state().CompareAndSwap(uint32(from), uint32(to))
}

// MoveToRunning begins a call whose arguments are not written yet. For the thread of its batch.
func (i *Item) MoveToRunning() bool {
	if !i.Move(Waiting, Running) {
		return false
	}
	i.c.begun = 1
	return true
}

// Ran reports, after its batch has run, whether the call was made or failed to enter Python. If not,
// it had been moved out of Waiting before.
func (i *Item) Ran() bool { return i.c.call.state != C.USMB_CALL_WAITS || i.c.result.code != 0 }

// Took returns the duration of a completed call in nanoseconds.
func (i *Item) Took() int64 { return int64(i.c.nanoseconds) }

// contextWithin returns the context for Go functions that the call runs. It ends with the call and
// with Interrupt.
func (i *Item) contextWithin() context.Context {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.within == nil {
		i.within, i.cancel = context.WithCancelCause(i.ctx)
		if i.cause != nil {
			i.cancel(i.cause)
		}
	}
	return i.within
}

// Interrupt asks a running call to stop, as python.Object.CallContext does when its context ends.
// cause is the reason if the context has not ended. It waits for the GIL. Any thread that does not
// hold the GIL may call it until End.
func (i *Item) Interrupt(cause error) {
	i.mu.Lock()
	if cause != nil && i.cause == nil {
		i.cause = cause
		if i.cancel != nil {
			i.cancel(cause)
		}
	}
	i.mu.Unlock()
	C.usmb_pyop_interrupt(&i.c.call)
	runtime.KeepAlive(i)
}

// endedBy returns the ended context for which the call was interrupted.
func (i *Item) endedBy() context.Context {
	i.mu.Lock()
	cause := i.cause
	i.mu.Unlock()
	if cause == nil || i.ctx.Err() != nil {
		return i.ctx
	}
	ctx, cancel := context.WithCancelCause(i.ctx)
	cancel(cause)
	return ctx
}

// Plain reports whether Result works without Python.
func (i *Item) Plain() bool {
	r := &i.c.result
	return r.code != C.USMB_PYE_EXCEPTION && r.val == nil && r.num == 0
}

// Result returns the result of a completed call, once. None, bool, int, float and complex are
// converted; other values are a *python.Object that the caller owns. For these and for exceptions
// the GIL must be held ([Item.Plain]).
func (i *Item) Result() (any, error) {
	r := &i.c.result
	defer runtime.KeepAlive(i)
	if r.code != 0 || !i.Plain() {
		result := *r
		r.val, r.exc = nil, nil
		o, err := calling.Result(i.endedBy(), unsafe.Pointer(&result))
		if err != nil {
			return nil, err
		}
		return o.(*python.Object), nil
	}
	switch r.kind {
	case C.USMB_PYK_BOOL:
		return i.c.number != 0, nil
	case C.USMB_PYK_INT:
		return int64(i.c.number), nil
	case C.USMB_PYK_FLOAT:
		return float64(r.re), nil
	case C.USMB_PYK_COMPLEX:
		return complex(float64(r.re), float64(r.im)), nil
	}
	return nil, nil
}
