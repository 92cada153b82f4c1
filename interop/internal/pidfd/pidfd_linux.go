package pidfd

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// sysPidfdOpen is pidfd_open, Linux 5.3; the same number on amd64 and arm64.
const sysPidfdOpen = 434

// Process is a descriptor of a process, which becomes readable when that ends. Its methods may
// be called from any goroutine.
type Process struct {
	file *os.File
	raw  syscall.RawConn
}

// Open opens the process of a number. Who may reap it keeps it from being reaped meanwhile, or
// accepts that the number may mean another. An error of syscall.ESRCH: it is gone already.
func Open(pid int) (*Process, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("pidfd_open(%d): %w", pid, syscall.ESRCH)
	}
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return nil, fmt.Errorf("pidfd_open(%d): %w", pid, errno)
	}
	syscall.CloseOnExec(int(fd))
	return Of(int(fd))
}

// Of takes a descriptor over that the kernel gave otherwise.
func Of(fd int) (*Process, error) {
	if err := syscall.SetNonblock(fd, true); err != nil { // so that the runtime's poller waits for it, and no thread
		_ = syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &Process{file: os.NewFile(uintptr(fd), "pidfd")}
	var err error
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Wait returns nil when the process has ended, and an error when Close was called, or
// os.ErrDeadlineExceeded.
func (p *Process) Wait() error { return p.raw.Read(ended) }

// WaitUntil is Wait for a time at most.
func (p *Process) WaitUntil(t time.Time) error {
	if err := p.file.SetReadDeadline(t); err != nil {
		return err
	}
	err := p.Wait()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return err
}

// Close ends the waiting. It may be called again.
func (p *Process) Close() { _ = p.file.Close() }

// ended asks whether a process has ended.
func ended(pidfd uintptr) bool {
	p := struct {
		fd              int32
		events, revents int16
	}{int32(pidfd), 1 /* POLLIN */, 0}
	var now syscall.Timespec
	n, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1
}
