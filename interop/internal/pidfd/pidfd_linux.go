package pidfd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// sysPidfdOpen is the number of pidfd_open (Linux 5.3). System calls as new as that have one number
// on all architectures, to which MIPS adds the base of its ABI.
var sysPidfdOpen = 434 + map[string]uintptr{"mips": 4000, "mipsle": 4000, "mips64": 5000, "mips64le": 5000}[runtime.GOARCH]

// Process is a process descriptor, which becomes readable when the process ends. Its methods can be
// called from any goroutine.
type Process struct {
	file *os.File
	raw  syscall.RawConn
}

// Open opens the process with a number. If the process can be reaped during the call, the number may
// refer to another process. The error is syscall.ESRCH if the process does not exist.
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

// Of takes ownership of a process descriptor from another source.
func Of(fd int) (*Process, error) {
	if err := syscall.SetNonblock(fd, true); err != nil { // The poller of the runtime waits for it, without a thread.
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

// Wait returns nil when the process has ended. It returns an error after Close, and
// os.ErrDeadlineExceeded after the time of an earlier WaitUntil.
func (p *Process) Wait() error { return p.raw.Read(ended) }

// WaitUntil is Wait until a time. After that it returns os.ErrDeadlineExceeded.
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

// Close ends all waits. It can be called again.
func (p *Process) Close() { _ = p.file.Close() }

// ended reports whether a process has ended.
func ended(pidfd uintptr) bool {
	p := struct {
		fd              int32
		events, revents int16
	}{int32(pidfd), 1 /* POLLIN */, 0}
	var now syscall.Timespec
	n, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1
}
