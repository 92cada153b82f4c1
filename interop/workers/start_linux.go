package workers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

// self is this program, even if its file was replaced or removed.
const self = "/proc/self/exe"

// starter starts all processes on one thread. The kernel signals a worker when the thread that
// started it ends (PR_SET_PDEATHSIG), so that thread must last as long as the workers.
type starter struct{ work chan func() }

func newStarter() *starter {
	s := &starter{make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

// end ends the thread. It is called when no process is left.
func (s *starter) end() { close(s.work) }

// start starts a worker: a process in its own process group, with the ends of two connections as
// descriptors 3 and 4 and its output in out. The kernel kills it when this process ends.
func (s *starter) start(program, env []string, out *os.File) (cmd *exec.Cmd, conns [2]*net.UnixConn, err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		for _, c := range conns {
			if err != nil && c != nil {
				_ = c.Close()
			}
		}
	}()
	for i := range conns {
		var f *os.File
		if conns[i], f, err = connection(); err != nil {
			return nil, conns, err
		}
		theirs = append(theirs, f)
	}
	cmd = &exec.Cmd{Path: self, Args: os.Args[:1], Env: env, Stdout: out, Stderr: out, ExtraFiles: theirs}
	if len(program) > 0 {
		cmd = exec.Command(program[0], program[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = env, out, out, theirs
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	done := make(chan error)
	s.work <- func() { done <- cmd.Start() }
	return cmd, conns, <-done
}

// connection returns both ends of a stream. Other child processes do not inherit them.
func connection() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "worker")
	ours, err = connectionOf(os.NewFile(uintptr(fds[0]), "worker"))
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// connectionOf returns the connection of a file and takes ownership of the file.
func connectionOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("the descriptor is not a Unix socket")
	}
	return u, nil
}

// inherited returns the worker's ends of the connections.
func inherited() (calls, control stream, err error) {
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	control, err = connectionOf(os.NewFile(4, "control"))
	return blocking(3), control, err
}

// blocking is a socket whose reads and writes block the thread. A thread that waits for a call in recv
// and answers it needs no other thread of the Go runtime, which would be woken if the runtime's poller
// reported the socket ready.
type blocking int

func (b blocking) Read(p []byte) (int, error) {
	n, err := b.retry(func() (int, error) { return syscall.Read(int(b), p) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (b blocking) Write(p []byte) (done int, err error) {
	for done < len(p) && err == nil {
		var n int
		n, err = b.retry(func() (int, error) { return syscall.Write(int(b), p[done:]) })
		done += n
	}
	return done, err
}

// retry repeats a system call that a signal interrupted.
func (b blocking) retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err
		}
	}
}

func (b blocking) CloseRead() error  { return syscall.Shutdown(int(b), syscall.SHUT_RD) }
func (b blocking) CloseWrite() error { return syscall.Shutdown(int(b), syscall.SHUT_WR) }
func (b blocking) Close() error      { return syscall.Close(int(b)) }

// awaitExit waits until a child has ended but does not reap it, so that its process ID and the ID
// of its group are not used again yet.
func awaitExit(pid int) error {
	const exited, noReap, byPID = 4, 0x1000000, 1
	var info [128]byte
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), exited|noReap, 0, 0)
		if e == 0 {
			return nil
		}
		if e != syscall.EINTR {
			return e
		}
	}
}

// killGroup kills a worker and its child processes.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// killOwnGroup kills this worker and its child processes after the end of the Pool's process.
func killOwnGroup() {
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	os.Exit(1)
}

// deaf makes a worker ignore signals that a terminal or a service manager sends to all processes:
// the Pool decides when the worker ends. Programs that the worker starts do not ignore them.
var deaf = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
