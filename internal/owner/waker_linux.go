package owner

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// openWaker opens the eventfd of w and returns the function that waits for a signal, or nil if the
// process has no descriptor left. That function reads the same descriptor through Go's poller, so a
// waiting reaper occupies no thread. EFD_NONBLOCK and EFD_CLOEXEC have the values of O_NONBLOCK and
// O_CLOEXEC, which differ between architectures.
func openWaker(w *waker) (sleep func()) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil
	}
	f := os.NewFile(fd, "usmb-reaper")
	w.fd = int32(fd)
	buffer := make([]byte, 8)
	return func() {
		// The descriptor is never closed. Reading fails only if Go's poller did not accept it.
		if _, err := f.Read(buffer); err != nil {
			time.Sleep(pollTime)
		}
	}
}

func (w *waker) signal() {
	one := uint64(1)
	// EAGAIN means that the counter is full, so a signal is already pending.
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(&one)), 8)
}
