package usmarray

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/memmgr"
)

// watchLeaks reports whether arrays that own memory are watched: USMBRIDGE_DEBUG=leaks.
var watchLeaks = diag.Enabled.Leaks

// owners holds the watched arrays that were not released.
var owners = watchedArrays{all: map[uintptr]*watchedArray{}}

// watchedArrays finds watched arrays by address, which does not keep them alive. If an array is collected,
// its entry remains, and that is the leak.
type watchedArrays struct {
	mu     sync.Mutex
	all    map[uintptr]*watchedArray
	leaked int64
	bytes  uint64
}

// watchedArray describes an array for the report of a leak.
type watchedArray struct {
	what  string
	bytes uint64
	pcs   []uintptr
}

// watch registers a complete array that owns its memory.
func (a *Array) watch() {
	if watchLeaks {
		owners.watch(a)
	}
}

// unwatch removes the entry: the array drops its reference.
func (a *Array) unwatch() {
	if watchLeaks {
		owners.forget(a)
	}
}

func (w *watchedArrays) watch(a *Array) {
	var pcs [16]uintptr
	n := runtime.Callers(4, pcs[:]) // from the caller of the function that created it
	entry := &watchedArray{
		what:  fmt.Sprintf("%v %v", a.dtype, a.layout.shape),
		bytes: a.buf.Requested(), pcs: append([]uintptr(nil), pcs[:n]...),
	}
	at := uintptr(unsafe.Pointer(a))
	w.mu.Lock()
	former := w.all[at] // collected, but its cleanup has not run yet
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

// collected runs after an array was collected. If its entry is still there, the array was leaked.
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

// report counts and prints a leak.
func (w *watchedArrays) report(e *watchedArray) {
	w.mu.Lock()
	w.leaked++
	w.bytes += e.bytes
	w.mu.Unlock()
	diag.Found(fmt.Sprintf("an array %s was collected without Release; its memory of %d bytes stays allocated", e.what, e.bytes), memmgr.Stack(e.pcs).String())
}

// Leaked returns the number of arrays that were collected without Release although they owned memory, and
// their requested bytes, which stay allocated. It counts with USMBRIDGE_DEBUG=leaks only
// ([memmgr.DebugEnv]).
func Leaked() (arrays int64, bytes uint64) {
	owners.mu.Lock()
	defer owners.mu.Unlock()
	return owners.leaked, owners.bytes
}
