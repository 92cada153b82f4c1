//go:build linux && amd64 && !usmb_portable

package pin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	_ "unsafe" // for go:linkname
)

// Fast reports whether Pin gives exclusive use of the shard.
const Fast = true

// The runtime keeps these functions stable for packages that link to them.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Pin disables preemption of the goroutine and returns the number of its P. Until Unpin the goroutine
// must not block or allocate, nor call functions that may.
func Pin() int { return procPin() }

// Unpin enables preemption again.
func Unpin() { procUnpin() }

const (
	sysMembarrier              = 324
	cmdPrivateExpedited        = 1 << 3
	cmdRegisterPrivateExpedite = 1 << 4
)

// expedited is 1 while Barrier makes all running threads pass a fence. Register sets it, and the first
// failure of Barrier clears it for good.
var expedited uint32

// Expedited reports whether the user of a shard may omit its fence, because Barrier supplies it. It
// returns false on old kernels and in sandboxes, also in one that the process entered later. Call
// it after each Pin, while pinned.
func Expedited() bool { return atomic.LoadUint32(&expedited) != 0 }

// fenced.done is set once every P has read that Expedited is false.
var fenced struct {
	done atomic.Bool
	mu   sync.Mutex
}

// Register enables Barrier in the kernel, at its first call. It must return before the first Pin. It
// takes about 10 ms in a process with several threads, so it does not run at package
// initialisation.
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

// Barrier makes every running thread of the process pass a full memory barrier, unless the users of
// shards execute fences themselves. If the kernel refuses, as it does in a sandbox that the process
// has entered, Barrier clears Expedited and waits until each P has passed a safe point. A safe point
// is a barrier too, and no goroutine is pinned there, so every use of a shard that began without a
// fence has ended.
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

// safePoint returns after each P has been at a safe point, where no goroutine is pinned. Reading
// these statistics stops the world.
func safePoint() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
}
