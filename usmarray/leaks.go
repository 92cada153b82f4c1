package usmarray

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/memmgr"
)

// watchLeaks is whether arrays that own memory are watched: USMBRIDGE_DEBUG=leaks.
var watchLeaks = diag.Enabled.Leaks

// owners are the watched arrays that were not released.
var owners = watchedArrays{all: map[uintptr]*watchedArray{}}

// watchedArrays finds watched arrays by their address, which keeps none of them
// alive. An array that is collected leaves its entry, and that is the leak.
type watchedArrays struct {
	mu     sync.Mutex
	all    map[uintptr]*watchedArray
	leaked int64
	bytes  uint64
}

// watchedArray is what is told of an array that is gone.
type watchedArray struct {
	what  string
	bytes uint64
	pcs   []uintptr
}

// watch looks out for the end of an array that owns its memory and is complete.
func (a *Array) watch() {
	if watchLeaks {
		owners.watch(a)
	}
}

// unwatch ends that: the array gives its reference up.
func (a *Array) unwatch() {
	if watchLeaks {
		owners.forget(a)
	}
}

func (w *watchedArrays) watch(a *Array) {
	var pcs [16]uintptr
	n := runtime.Callers(4, pcs[:]) // from the caller of the function that made it
	entry := &watchedArray{
		what:  fmt.Sprintf("%v %v", a.dtype, a.layout.shape),
		bytes: a.buf.Requested(), pcs: append([]uintptr(nil), pcs[:n]...),
	}
	at := uintptr(unsafe.Pointer(a))
	w.mu.Lock()
	former := w.all[at] // collected, and its cleanup has not run yet
	w.all[at] = entry
	w.mu.Unlock()
	if former != nil {
		w.report(former)
	}
	runtime.AddCleanup(a, func(entry *watchedArray) { w.collected(at, entry) }, entry)
}

func (w *watchedArrays) forget(a *Array) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, uintptr(unsafe.Pointer(a)))
}

// collected is called after the collector took an array: it was forgotten when its
// entry is still there.
func (w *watchedArrays) collected(at uintptr, entry *watchedArray) {
	w.mu.Lock()
	leaked := w.all[at] == entry
	if leaked {
		delete(w.all, at)
	}
	w.mu.Unlock()
	if leaked {
		w.report(entry)
	}
}

// report counts a leak and tells of it.
func (w *watchedArrays) report(e *watchedArray) {
	w.mu.Lock()
	w.leaked++
	w.bytes += e.bytes
	w.mu.Unlock()
	diag.Found(fmt.Sprintf("an array %s was collected without Release; its memory of %d bytes stays allocated", e.what, e.bytes), memmgr.Stack(e.pcs).String())
}

// Leaked returns how many arrays that owned memory were collected without Release so
// far, and the bytes that they were asked for, which stay allocated. It counts with
// USMBRIDGE_DEBUG=leaks only ([memmgr.DebugEnv]).
func Leaked() (arrays int64, bytes uint64) {
	owners.mu.Lock()
	defer owners.mu.Unlock()
	return owners.leaked, owners.bytes
}
