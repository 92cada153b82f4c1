//go:build cgo && linux

package calls

/*
#include <stdlib.h>
#include "usmb_calls.h"
*/
import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/python"
)

// Batch is calls in a row.
type Batch struct {
	c     *C.usmb_batch
	items [Size]*Item // reachable while they are in it
}

// NewBatch makes an empty one; nil when there is no memory.
func NewBatch() *Batch {
	c := (*C.usmb_batch)(C.calloc(1, C.sizeof_usmb_batch))
	if c == nil {
		return nil
	}
	b := &Batch{c: c}
	runtime.AddCleanup(b, func(c *C.usmb_batch) { C.free(unsafe.Pointer(c)) }, c)
	b.Reset()
	return b
}

// Reset empties it. No other method may run.
func (b *Batch) Reset() {
	for i := range b.items[:b.c.n] {
		b.slot(i).Store(nil)
		b.items[i] = nil
	}
	b.c.n = 0
	b.ended().Store(0)
	b.current().Store(-1)
}

func (b *Batch) slot(i int) *atomic.Pointer[C.usmb_item] {
	return (*atomic.Pointer[C.usmb_item])(unsafe.Pointer(&b.c.items[i]))
}
func (b *Batch) ended() *atomic.Uint32  { return (*atomic.Uint32)(unsafe.Pointer(&b.c.ended)) }
func (b *Batch) current() *atomic.Int32 { return (*atomic.Int32)(unsafe.Pointer(&b.c.current)) }
func (b *Batch) began() *atomic.Int64   { return (*atomic.Int64)(unsafe.Pointer(&b.c.began)) }

// Add puts a call of a function at the end, before Run: at most [Size]. The function stays
// until Run has returned.
func (b *Batch) Add(i *Item, function *python.Object) {
	i.c.function = function.Pointer()
	b.items[b.c.n] = i
	b.slot(int(b.c.n)).Store(i.c)
	b.c.n++
}

// Run makes the calls that are not taken back: in one entry into C, on this thread.
func (b *Batch) Run() {
	C.usmb_batch_run(b.c)
	runtime.KeepAlive(b)
}

// Ended is how many of the calls are over by now. Any thread, until Reset.
func (b *Batch) Ended() int { return int(b.ended().Load()) }

// At is the place of the call that was the nth to be over; n is less than Ended.
func (b *Batch) At(n int) int { return int(b.c.order[n]) }

// TakeBack takes a call out that has not begun, and reports whether it has. Any thread, until
// Reset.
func (b *Batch) TakeBack(at int) bool { return b.slot(at).Swap(nil) != nil }

// Current is the place of the call that runs, and for how long it has; -1 for none. Any
// thread, until Reset.
func (b *Batch) Current() (at int, age time.Duration) {
	at = int(b.current().Load())
	if at < 0 {
		return -1, 0
	}
	return at, time.Duration(int64(C.usmb_calls_now()) - b.began().Load())
}
