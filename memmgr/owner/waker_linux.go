package owner

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	efdNonblock = 0x800
	efdCloexec  = 0x80000
)

// openWaker gives the waker an eventfd and returns the function that sleeps on
// it. The read end is the same descriptor, parked in Go's poller, so a sleeping
// reaper holds no thread.
func openWaker(w *waker) (sleep func()) {
	fd, _, errno := syscall.RawSyscall(sysEventfd2, 0, efdNonblock|efdCloexec, 0)
	if errno != 0 {
		panic(os.NewSyscallError("eventfd2", errno))
	}
	f := os.NewFile(fd, "usmb-reaper")
	w.fd = int32(fd)
	buffer := make([]byte, 8)
	return func() {
		// An error here would mean a closed descriptor, and nobody closes it.
		_, _ = f.Read(buffer)
	}
}

func (w *waker) signal() {
	one := uint64(1)
	// EAGAIN means that the counter is full: the reaper has its wake-up.
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(&one)), 8)
}
