// Package syscall has no direct socket calls for 386.
//go:build !386

package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/userid"
	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
)

// link is a connected SOCK_SEQPACKET socket: datagrams with at most one descriptor. One
// goroutine may receive and one send at a time.
type link struct {
	conn *net.UnixConn
	raw  syscall.RawConn

	// The system calls of the receiver and of the sender. They are allocated once, so that a message
	// allocates no closure.
	in, out attempt
	peek    syscall.Msghdr

	receiving sync.Mutex // held while receive runs
	unusable  []int      // received descriptors that are not memory files; guarded by receiving
}

// attempt is a non-blocking system call. The runtime repeats it when the socket is ready.
type attempt struct {
	try    func(fd uintptr) bool
	wait   bool // wait if the socket is not ready
	header syscall.Msghdr
	vector syscall.Iovec
	oob    []byte
	n      int
	errno  syscall.Errno
}

// prepare sets the arguments of the call.
func (a *attempt) prepare(b, oob []byte) {
	a.vector.Base = unsafe.SliceData(b)
	a.vector.SetLen(len(b))
	a.header = syscall.Msghdr{Iov: &a.vector, Iovlen: 1, Control: unsafe.SliceData(oob)}
	a.header.SetControllen(len(oob))
}

// message calls sendmsg or recvmsg and repeats it if a signal interrupts it. If sleeps is false, the call
// bypasses the runtime's scheduler, which would double its cost.
func message(number, fd uintptr, header *syscall.Msghdr, flags uintptr, sleeps bool) (int, syscall.Errno) {
	for {
		var n uintptr
		var errno syscall.Errno
		if sleeps {
			n, _, errno = syscall.Syscall(number, fd, uintptr(unsafe.Pointer(header)), flags)
		} else {
			n, _, errno = syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(header)), flags)
		}
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

func newLink(conn *net.UnixConn) (*link, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, raw: raw}
	l.in.oob = make([]byte, syscall.CmsgSpace(4))
	l.in.try, l.out.try = l.tryReceive, l.trySend
	return l, nil
}

// close closes the socket in the background. The kernel then releases the descriptors that were sent and
// not received. Their sender can delay that: the release of a TCP socket with SO_LINGER sleeps. close
// calls released at the end. It must be called once.
func (l *link) close(released func()) {
	go func() {
		_ = l.conn.Close()
		l.receiving.Lock() // waits until receive has returned
		defer l.receiving.Unlock()
		for _, fd := range l.unusable {
			_ = syscall.Close(fd)
		}
		released()
	}()
}

// interrupt makes receive return os.ErrDeadlineExceeded, until interrupted is called. The receiver calls
// interrupted first and then checks its condition, so that no interrupt is missed.
func (l *link) interrupt()   { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) }
func (l *link) interrupted() { _ = l.conn.SetReadDeadline(time.Time{}) }

// tryReceive first peeks without a buffer for descriptors. MSG_CTRUNC then reports whether the datagram
// has descriptors, and the kernel releases none. If it has some, the second recvmsg may release the
// descriptors that do not fit into the buffer or into the limit of this process. Releasing can sleep, so
// the scheduler must know of that call.
func (l *link) tryReceive(fd uintptr) bool {
	a := &l.in
	l.peek = syscall.Msghdr{}
	a.n, a.errno = message(syscall.SYS_RECVMSG, fd, &l.peek, syscall.MSG_DONTWAIT|syscall.MSG_PEEK, false)
	if a.errno == 0 {
		descriptors := l.peek.Flags&syscall.MSG_CTRUNC != 0
		a.n, a.errno = message(syscall.SYS_RECVMSG, fd, &a.header, syscall.MSG_DONTWAIT|syscall.MSG_CMSG_CLOEXEC, descriptors)
	}
	return a.errno != syscall.EAGAIN
}

// receive waits for a datagram. file is the memory file that was sent with it, which the caller closes, or
// nil. missing reports that a descriptor was sent, but this process had no free one. io.EOF means that the
// other process has closed the socket.
func (l *link) receive(b []byte) (n int, file *os.File, missing bool, err error) {
	l.receiving.Lock()
	defer l.receiving.Unlock()
	a := &l.in
	for try := 0; ; try++ {
		a.prepare(b, a.oob)
		if err := l.raw.Read(a.try); err != nil {
			return 0, nil, false, err
		}
		// A process that closes the socket before it has read everything resets the connection. The
		// kernel reports the reset once, before the data that the process had sent.
		if try > 0 || a.errno != syscall.ECONNRESET {
			break
		}
	}
	if a.errno != 0 {
		return 0, nil, false, os.NewSyscallError("recvmsg", a.errno)
	}
	if n := a.header.Controllen; n > 0 {
		if file, err = l.oneDescriptor(a.oob[:n]); err != nil {
			return 0, nil, false, err
		}
	}
	// The kernel drops descriptors that do not fit into the buffer or into the limit of this process. The
	// buffer has room for one. So if no descriptor was received, the limit was the reason.
	cut := a.header.Flags&syscall.MSG_CTRUNC != 0
	missing = cut && file == nil
	if a.header.Flags&syscall.MSG_TRUNC != 0 || cut && !missing {
		if file != nil {
			_ = file.Close()
		}
		return 0, nil, false, fmt.Errorf("%w: a datagram of more than %d bytes, or with more than one descriptor", ErrProtocol, len(b))
	}
	if a.n == 0 {
		if file != nil {
			_ = file.Close()
		}
		return 0, nil, false, io.EOF
	}
	return a.n, file, missing, nil
}

// fcntlGetSeals is F_GET_SEALS, which only memory files support.
const fcntlGetSeals = 1034

// isMemory reports whether a descriptor is a memory file. Stat and close of such a file never wait, unlike
// those of a socket or of a file in other file systems.
func isMemory(fd int) bool {
	_, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), fcntlGetSeals, 0)
	return errno == 0
}

// oneDescriptor returns the descriptor in a control message, or nil if there is none. It fails if there
// are several, or if the descriptor is not a memory file. The link keeps such descriptors, and close
// closes them.
func (l *link) oneDescriptor(oob []byte) (*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	var all []int
	for i := range messages {
		if fds, bad := syscall.ParseUnixRights(&messages[i]); bad == nil {
			all = append(all, fds...)
		}
	}
	if err == nil && len(all) == 1 && isMemory(all[0]) {
		// Only for memory files: os.NewFile adds other non-blocking files to the runtime's poller.
		return os.NewFile(uintptr(all[0]), "segment"), nil
	}
	l.unusable = append(l.unusable, all...)
	switch {
	case len(all) == 0 && err == nil:
		return nil, nil
	case len(all) == 1 && err == nil:
		return nil, fmt.Errorf("%w: a descriptor that is not a memory file", ErrProtocol)
	}
	return nil, fmt.Errorf("%w: %d descriptors in one datagram, want at most 1", ErrProtocol, len(all))
}

func (l *link) trySend(fd uintptr) bool {
	a := &l.out
	a.n, a.errno = message(syscall.SYS_SENDMSG, fd, &a.header, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, false)
	return a.errno != syscall.EAGAIN || !a.wait
}

// send sends one datagram with an optional descriptor. If the socket is full, send waits if wait is true,
// and returns false otherwise.
func (l *link) send(b []byte, file *os.File, wait bool) (sent bool, err error) {
	a := &l.out
	a.oob, a.wait = nil, wait
	if file != nil {
		a.oob = syscall.UnixRights(int(file.Fd())) //nolint:gosec // descriptors are small
	}
	for {
		a.prepare(b, a.oob)
		if err := l.raw.Write(a.try); err != nil {
			return false, err
		}
		switch a.errno {
		case 0:
			return true, nil
		case syscall.EAGAIN:
			return false, nil
		case syscall.ETOOMANYREFS: // this user has too many descriptors in transit
			if !wait {
				return false, nil
			}
			time.Sleep(time.Millisecond)
		default:
			return false, os.NewSyscallError("sendmsg", a.errno)
		}
	}
}

// maxHeld returns the maximum number of segment descriptors of other processes, over all connections: half
// of the process's limit. The other half remains for package segment.
func maxHeld() int64 {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil || r.Cur/2 > math.MaxInt32 {
		return math.MaxInt32
	}
	return int64(r.Cur / 2) //nolint:gosec // just checked
}

// credentials returns the credentials that the kernel recorded for the other side.
func (l *link) credentials() (c Credentials, err error) {
	failed := l.raw.Control(func(fd uintptr) {
		var u *syscall.Ucred
		if u, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			c = Credentials{PID: int(u.Pid), UID: u.Uid, GID: u.Gid}
		}
	})
	return c, errors.Join(failed, os.NewSyscallError("getsockopt(SO_PEERCRED)", err))
}

// soPeerPidfd is SO_PEERPIDFD (Linux 6.5). It has the same value on amd64 and arm64.
const soPeerPidfd = 77

// watchPeer opens a pidfd of the other process. It asks the socket, which always identifies that process.
// On kernels without SO_PEERPIDFD it uses the process ID, which another process may have if the peer has
// ended since it connected. watchPeer returns ErrDied if the process has ended.
func (l *link) watchPeer(pid int) (*pidfd.Process, error) {
	fd, errno := -1, syscall.Errno(0)
	err := l.raw.Control(func(s uintptr) {
		var v int32
		n := uint32(unsafe.Sizeof(v))
		if _, _, errno = syscall.Syscall6(syscall.SYS_GETSOCKOPT, s, syscall.SOL_SOCKET, soPeerPidfd,
			uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&n)), 0); errno == 0 {
			fd = int(v)
		}
	})
	if err != nil {
		return nil, err
	}
	switch errno {
	case 0, syscall.ENOPROTOOPT:
	case syscall.ESRCH, syscall.EINVAL: // which of them depends on the kernel's version
		return nil, opError("connect", ErrDied, "process %d: getsockopt(SO_PEERPIDFD): %w", pid, errno)
	default:
		return nil, os.NewSyscallError("getsockopt(SO_PEERPIDFD)", errno)
	}
	if fd >= 0 {
		return pidfd.Of(fd)
	}
	if pid <= 0 {
		return nil, fmt.Errorf("the other process is in another PID namespace, so that its end cannot be detected; use Linux 6.5 or later, or one PID namespace")
	}
	p, err := pidfd.Open(pid)
	if errors.Is(err, syscall.ESRCH) {
		return nil, opError("connect", ErrDied, "process %d: %w", pid, err)
	}
	return p, err
}

// soPassRights is SO_PASSRIGHTS (Linux 6.16). Tests set it to an option that no kernel has.
var soPassRights = 83

// passDescriptors sets whether a socket accepts descriptors. If it does not, the sender's sendmsg fails
// with EPERM. On older kernels without the option, sockets always accept them.
func passDescriptors(raw syscall.RawConn, pass bool) error {
	value := 0
	if pass {
		value = 1
	}
	var err error
	failed := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soPassRights, value)
	})
	if errors.Is(err, syscall.ENOPROTOOPT) {
		err = nil
	}
	return errors.Join(failed, os.NewSyscallError("setsockopt(SO_PASSRIGHTS)", err))
}

// refuseDescriptors is the Control function of new sockets. They accept no descriptors. The connections of
// a listener inherit this option.
func refuseDescriptors(_, _ string, raw syscall.RawConn) error { return passDescriptors(raw, false) }

// takeDescriptors makes the socket accept descriptors. It is called after the other process was admitted
// and before the greeting is sent to it.
func (l *link) takeDescriptors() error { return passDescriptors(l.raw, true) }

// listen opens the socket of an address.
func listen(ctx context.Context, name, file string) (*listener, error) {
	lc := net.ListenConfig{Control: refuseDescriptors}
	if file == "" {
		l, err := lc.Listen(ctx, "unixpacket", name)
		if err != nil {
			return nil, err
		}
		return &listener{Listener: l}, nil
	}
	// A lock serializes the creation of this socket file, so that no process removes the file of
	// another one that is starting.
	lock, err := lockFile(ctx, file)
	if err != nil {
		return nil, err
	}
	defer lock.release()
	l, err := lc.Listen(ctx, "unixpacket", file)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err = removeStale(ctx, file); err == nil {
			l, err = lc.Listen(ctx, "unixpacket", file)
		}
	}
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) //nolint:forcetypeassert // of that network
	made := &listener{Listener: l, file: file}
	if made.info, err = os.Lstat(file); err != nil {
		_ = l.Close()
		return nil, err
	}
	return made, nil
}

func dial(ctx context.Context, name string) (*net.UnixConn, error) {
	d := net.Dialer{Control: refuseDescriptors}
	c, err := d.DialContext(ctx, "unixpacket", name)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil //nolint:forcetypeassert // of that network
}

// exiting is PF_EXITING, the flag of exiting processes.
const exiting = 0x4

// ending reports whether a process is exiting or has ended, so that none of its threads runs user code.
// Threads are marked as exiting before the sockets of the process are closed. The pidfd reports the end
// later. All threads are checked, because the first thread may end while the process goes on.
func ending(pid int) bool {
	if pid <= 0 { // of another pid namespace
		return false
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false
	}
	for _, thread := range threads {
		if !threadEnding(tasks + thread.Name() + "/stat") {
			return false
		}
	}
	return true
}

// threadEnding reports whether the thread with this stat file is exiting, or is gone.
func threadEnding(file string) bool {
	stat, err := os.ReadFile(file)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // after the name: state, 5 further fields, flags
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return err == nil && flags&exiting != 0 || fields[0][0] == 'Z'
}

// removeStale removes the socket file of a process that has ended: a socket of this user at which no
// process listens. The caller has the lock.
func removeStale(ctx context.Context, file string) error {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket; remove it, or use another path", file)
	}
	if err := userid.CheckOwn(st.Uid); err != nil {
		return fmt.Errorf("%s is a socket of user %d; use another path: %w", file, st.Uid, err)
	}
	c, err := dial(ctx, file)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("another process listens at %s", file)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(file)
}

// duplicate returns a second descriptor of a file, closed on exec.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd uintptr
	var errno syscall.Errno
	if err := raw.Control(func(of uintptr) {
		fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, of, syscall.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	return os.NewFile(fd, f.Name()), nil
}
