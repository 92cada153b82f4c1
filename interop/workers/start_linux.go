package workers

import (
	"errors"
	"fmt"
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

// start starts a worker: a process in its own process group, with one end of a connection as
// descriptor 3 and its output in out. The kernel kills it when this process ends.
func (s *starter) start(program, env []string, out *os.File) (cmd *exec.Cmd, conn *net.UnixConn, err error) {
	ours, theirs, err := connection()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	cmd = &exec.Cmd{Path: self, Args: os.Args[:1], Env: env, Stdout: out, Stderr: out, ExtraFiles: []*os.File{theirs}}
	if len(program) > 0 {
		cmd = exec.Command(program[0], program[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = env, out, out, []*os.File{theirs}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	done := make(chan error)
	s.work <- func() { done <- cmd.Start() }
	if err := <-done; err != nil {
		_ = ours.Close()
		return nil, nil, err
	}
	return cmd, ours, nil
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
		return nil, errors.New("descriptor 3 is no Unix socket")
	}
	return u, nil
}

// inherited returns the worker's end of the connection.
func inherited() (*net.UnixConn, error) {
	syscall.CloseOnExec(3)
	return connectionOf(os.NewFile(3, "maker"))
}

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
