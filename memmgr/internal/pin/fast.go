//go:build linux && amd64 && !race && !usmb_portable

package pin

import (
	"fmt"
	"sync"
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

// Expedited reports whether Barrier works, from Register on. Where it does not (an
// old kernel, a sandbox), the shard's user must fence by itself.
var Expedited bool

// Register asks the kernel for Barrier, the first time that it is called; before
// that nobody may Pin. The kernel takes some ten milliseconds for it in a process
// with threads, which is why merely importing this package does not ask.
var Register = sync.OnceFunc(func() {
	_, _, errno := syscall.RawSyscall(sysMembarrier, cmdRegisterPrivateExpedite, 0, 0)
	Expedited = errno == 0
})

// Barrier makes every running thread of the process pass a full memory barrier.
// It panics when the kernel breaks its promise, because nothing is safe then.
func Barrier() {
	if !Expedited {
		return
	}
	if _, _, errno := syscall.RawSyscall(sysMembarrier, cmdPrivateExpedited, 0, 0); errno != 0 {
		panic(fmt.Errorf("pin: membarrier was registered and fails: %w", errno))
	}
}
