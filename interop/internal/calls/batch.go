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

// Batch is a row of calls.
type Batch struct {
	c     *C.usmb_batch
	items [Size]*Item // keeps the items of c reachable
}

// NewBatch returns an empty batch, or nil if memory is exhausted.
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

// Reset removes all calls. No other method may run at the same time.
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

// Add appends a call of a function, before Run; at most [Size] calls. The caller keeps the function
// until Run has returned.
func (b *Batch) Add(i *Item, function *python.Object) {
	i.c.function = function.Pointer()
	b.items[b.c.n] = i
	b.slot(int(b.c.n)).Store(i.c)
	b.c.n++
}

// Run makes the calls that are not taken back, in one entry into C, on this thread.
func (b *Batch) Run() {
	C.usmb_batch_run(b.c)
	runtime.KeepAlive(b)
}

// Ended returns the number of completed calls. Any thread, until Reset.
func (b *Batch) Ended() int { return int(b.ended().Load()) }

// At returns the place of the call that completed as number n, which is less than Ended.
func (b *Batch) At(n int) int { return int(b.c.order[n]) }

// TakeBack removes the call at a place if it has not begun, and reports whether it did. Any thread,
// until Reset.
func (b *Batch) TakeBack(at int) bool { return b.slot(at).Swap(nil) != nil }

// Current returns the place of the running call, -1 for none, and how long it has run. Any thread,
// until Reset.
func (b *Batch) Current() (at int, age time.Duration) {
	at = int(b.current().Load())
	if at < 0 {
		return -1, 0
	}
	return at, time.Duration(int64(C.usmb_calls_now()) - b.began().Load())
}
