//go:build linux && amd64 && !usmb_portable

package pin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	_ "unsafe" // for go:linkname
)

// Fast tells that Pin excludes all others on the shard.
const Fast = true

// The runtime keeps these two for the packages that link to them.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Pin stops preemption of the goroutine and returns the number of its P. Until
// Unpin it must not block, allocate or call what may.
func Pin() int { return procPin() }

// Unpin ends Pin.
func Unpin() { procUnpin() }

const (
	sysMembarrier              = 324
	cmdPrivateExpedited        = 1 << 3
	cmdRegisterPrivateExpedite = 1 << 4
)

// expedited is 1 while Barrier reaches all processors. It changes once, from 1 to 0.
var expedited uint32

// Expedited reports whether the shard's user may leave the fence to Barrier. Where it
// does not (an old kernel, a sandbox, even one entered in mid-run), the user must fence
// by itself. It is asked while pinned, each time.
func Expedited() bool { return atomic.LoadUint32(&expedited) != 0 }

// fenced: every P knows that Expedited is false.
var fenced struct {
	done atomic.Bool
	mu   sync.Mutex
}

// Register asks the kernel for Barrier, the first time that it is called; before
// that nobody may Pin. The kernel takes some ten milliseconds for it in a process
// with threads, which is why merely importing this package does not ask.
var Register = sync.OnceFunc(func() {
	if membarrier(cmdRegisterPrivateExpedite) {
		atomic.StoreUint32(&expedited, 1)
		return
	}
	fenced.done.Store(true)
})

func membarrier(command uintptr) bool {
	_, _, errno := syscall.RawSyscall(sysMembarrier, command, 0, 0)
	return errno == 0
}

// Barrier has every running thread of the process pass a full memory barrier, unless
// the users of shards fence by themselves. When the kernel refuses it after all, as it
// does once the process is in a sandbox, users are told to fence; Barrier returns when
// each P has passed a safe point since, which is a barrier as well: nobody is in the
// middle of what it began without a fence.
func Barrier() {
	if fenced.done.Load() || membarrier(cmdPrivateExpedited) {
		return
	}
	fenced.mu.Lock()
	defer fenced.mu.Unlock()
	if fenced.done.Load() {
		return
	}
	atomic.StoreUint32(&expedited, 0)
	safePoint()
	fenced.done.Store(true)
}

// safePoint returns after each P has been at a safe point, where nothing is pinned:
// reading these statistics stops the world.
func safePoint() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
}
