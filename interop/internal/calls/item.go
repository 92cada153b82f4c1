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

// Item is one call. It is made by [New], for as many calls as one likes, one after the other;
// what is said of a method's thread holds besides what State says.
type Item struct {
	c         *C.usmb_item
	arguments Arguments

	ctx    context.Context
	mu     sync.Mutex
	within context.Context // what functions of Go that the call runs have of ctx; nil: none asked
	cancel context.CancelCauseFunc
	cause  error // of Interrupt, where ctx has not ended
}

// items finds Items by their numbers.
var items struct {
	sync.RWMutex
	last  uint64
	known map[uint64]weak.Pointer[Item]
}

// New makes an item; nil when there is no memory. It lives as long as it is reachable.
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
		if i == nil { // its batch holds it
			return context.Background()
		}
		return i.contextWithin()
	}
}

// Begin makes it a call that waits, of a context. The item is nobody else's.
func (i *Item) Begin(ctx context.Context) { i.ctx = ctx }

// End gives up what the call still holds, and makes the item ready for another. The item is
// nobody else's.
func (i *Item) End() {
	if i.cancel != nil {
		i.cancel(nil)
	}
	C.usmb_item_drop(i.c)
	C.usmb_item_clear(i.c)
	i.ctx, i.within, i.cancel, i.cause = nil, nil, nil, nil
}

func (i *Item) state() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&i.c.state)) }

// State is who has the say.
func (i *Item) State() State { return State(i.state().Load()) }

// Move gives the say to another, if from has it. Any thread.
func (i *Item) Move(from, to State) bool {
	return i.state().CompareAndSwap(uint32(from), uint32(to))
}

// MoveToRunning begins a call whose arguments have still to be written. Its batch's own thread.
func (i *Item) MoveToRunning() bool {
	if !i.Move(Waiting, Running) {
		return false
	}
	i.c.begun = 1
	return true
}

// Ran reports whether the function was called, or could not be, in a batch that is over. Else
// somebody had moved the call out of Waiting before.
func (i *Item) Ran() bool { return i.c.call.state != C.USMB_CALL_WAITS || i.c.result.code != 0 }

// Took is how long the call took, in nanoseconds, once it is over.
func (i *Item) Took() int64 { return int64(i.c.nanoseconds) }

// contextWithin is the context of the call for functions of Go that it runs: it ends with the
// call, and with Interrupt.
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

// Interrupt asks a call to stop, if it runs, as python.Object.CallContext does when its context
// ends: this is for who notices that. cause is why, where the context has not ended. It waits
// for the GIL; any thread that does not hold it, until End.
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

// endedBy is the context that a call was interrupted for.
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

// Plain reports whether Result needs no Python.
func (i *Item) Plain() bool {
	r := &i.c.result
	return r.code != C.USMB_PYE_EXCEPTION && r.val == nil && r.num == 0
}

// Result is the result of a call that is over, once. Other values than None, bool, int, float
// and complex are Python's still: an *python.Object, owned by who gets it. For those, and for
// exceptions, the GIL is held ([Item.Plain]).
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
