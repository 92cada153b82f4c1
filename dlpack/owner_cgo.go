//go:build linux && cgo

package dlpack

/*
#include <stdlib.h>
#include "usmb_dl_internal.h"

static void *usmb_dl_gofunc_drop_address(void) { return (void *)usmb_dl_gofunc_drop; }

static void usmb_dl_call_drop(uintptr_t drop, void *ctx)
{
	((usmb_drop_fn)drop)(ctx);
}
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// ownerFuncs holds the Go functions that C nodes name by number.
var ownerFuncs struct {
	sync.Mutex
	next    uint64
	byID    map[uint64]func()
	started bool
}

// OwnerFunc makes an owner with one reference whose drop runs release: once, in
// a goroutine of this package (or in [RunDropped]), some time after the last
// consumer's deleter ran. The deleter itself never enters Go, so that it may
// run on any thread. release must not block for long: it holds up the others.
//
// An owner that never reaches a successful [Export] is given back with
// [Owner.Release].
func OwnerFunc(release func()) (Owner, error) {
	if release == nil {
		return Owner{}, &Error{Op: "owner", Err: ErrNull, Detail: "the release function is nil: use the zero Owner for memory that nobody owns"}
	}
	if err := startDropper(); err != nil {
		return Owner{}, err
	}
	ownerFuncs.Lock()
	defer ownerFuncs.Unlock()
	ownerFuncs.next++
	id := ownerFuncs.next
	node := C.usmb_dl_gofunc_new(C.uint64_t(id))
	if node == nil {
		return Owner{}, codeError("owner", C.USMB_DL_ENOMEM, nil)
	}
	ownerFuncs.byID[id] = release
	return Owner{Drop: uintptr(C.usmb_dl_gofunc_drop_address()), Ctx: unsafe.Pointer(node)}, nil
}

// Release gives back the owner's reference by calling Drop, for an owner that
// no tensor has taken over.
func (o Owner) Release() {
	if o.Drop != 0 {
		C.usmb_dl_call_drop(C.uintptr_t(o.Drop), o.Ctx)
	}
}

// startDropper makes the eventfd and the goroutine, on first use.
func startDropper() error {
	ownerFuncs.Lock()
	defer ownerFuncs.Unlock()
	if ownerFuncs.started {
		return nil
	}
	fd := C.usmb_dl_gofunc_wakefd()
	if fd < 0 {
		return &Error{Op: "owner", Err: syscall.EMFILE, Detail: "no eventfd to wake the goroutine that runs release functions: raise the limit of open files"}
	}
	ownerFuncs.started = true
	ownerFuncs.byID = map[uint64]func(){}
	// A non-blocking descriptor waits in the runtime's poller: no thread sleeps.
	go runDropper(os.NewFile(uintptr(fd), "dlpack-owners"))
	return nil
}

func runDropper(wake *os.File) {
	var buf [8]byte
	for {
		RunDropped()
		if C.usmb_dl_gofunc_arm() == 0 {
			continue
		}
		if _, err := wake.Read(buf[:]); err != nil {
			panic(fmt.Sprintf("dlpack: reading the eventfd of dropped owners: %v", err))
		}
	}
}

// RunDropped runs the release functions of owners that were dropped and not
// run yet, in the calling goroutine, and returns how many. They run without it
// too; it is for those who want them done now.
func RunDropped() int {
	n := 0
	node := C.usmb_dl_gofunc_take()
	// A release function that panics must not take the others with it: those
	// go back to be run by whoever comes next.
	defer func() {
		for node != nil {
			next := node.next
			C.usmb_dl_gofunc_drop(unsafe.Pointer(node))
			node = next
		}
	}()
	for ; node != nil; n++ {
		id, next := uint64(node.id), node.next
		C.free(unsafe.Pointer(node))
		node = next
		ownerFuncs.Lock()
		release := ownerFuncs.byID[id]
		delete(ownerFuncs.byID, id)
		ownerFuncs.Unlock()
		release()
	}
	return n
}
