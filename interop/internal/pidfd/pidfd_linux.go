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
