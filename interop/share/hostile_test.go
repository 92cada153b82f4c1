//go:build linux

package share_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
)

// olderKernelEnv makes a role behave as on a kernel without SO_PASSRIGHTS.
const olderKernelEnv = "USMBRIDGE_TEST_SHARE_OLDER_KERNEL"

func init() {
	roles["refuse"] = roleRefuse
	roles["refused"] = roleRefused
	roles["silent"] = roleSilent
	roles["crowd"] = roleCrowd
}

var errNotAdmitted = errors.New("this test admits no process")

// roleRefuse serves and admits no process. Decisions wait for the first line of standard input.
// For each further line it prints its number of threads. Idle threads of a Go program do not end,
// so that this is also the highest number so far.
func roleRefuse(string) error {
	decide := make(chan struct{})
	s, err := share.Listen(context.Background(), "", share.Options{Admit: func(share.Credentials) error {
		<-decide
		return errNotAdmitted
	}})
	if err != nil {
		return err
	}
	fmt.Println(s.Address())
	nextLine()
	close(decide)
	for nextLine() {
		tasks := must(os.ReadDir("/proc/self/task"))
		fmt.Println(len(tasks))
	}
	return s.Close()
}

// roleRefused dials an address repeatedly and rejects the listener there each time. Each
// decision waits for a line of standard input. It prints the result of each attempt.
func roleRefused(address string) error {
	for {
		p, err := share.Dial(context.Background(), address, share.Options{Admit: func(share.Credentials) error {
			nextLine()
			return errNotAdmitted
		}})
		switch {
		case err == nil:
			return fmt.Errorf("connected with %v", p)
		case errors.Is(err, share.ErrRefused):
			fmt.Println("refused")
		case errors.Is(err, share.ErrLimit):
			fmt.Println("limit")
		case errors.Is(err, share.ErrAddress):
			return nil
		default:
			return err
		}
	}
}

// roleSilent opens one connection more than MaxPeers of the server and does not greet. It
// reports when the server has refused the first one.
func roleSilent(address string) error {
	refused := make(chan error, crowdedPeers+1)
	for range crowdedPeers + 1 {
		c := must(net.Dial("unixpacket", address))
		go func() { refused <- testenv.ErrorOf(c.Read(make([]byte, 1<<14))) }()
	}
	<-refused
	fmt.Println("full")
	nextLine()
	return nil
}

// roleCrowd connects as often as it can and prints how often that was.
func roleCrowd(address string) error {
	for n := 0; ; n++ {
		_, err := share.Dial(context.Background(), address, share.Options{})
		if errors.Is(err, share.ErrLimit) {
			fmt.Println(n)
			nextLine()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// crowdedPeers is MaxPeers of a server under test. A process may have a quarter of them.
const crowdedPeers = 16

// lingeringFor returns a TCP socket whose close sleeps: until release is called, but at most for
// a number of seconds.
func lingeringFor(t testing.TB, seconds int32) (fd int, release func()) {
	t.Helper()
	small := func(fd int) error {
		return errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1<<12),
			syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1<<12))
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = small(int(fd)) }), err)
	}}
	l := testenv.Opened(config.Listen(context.Background(), "tcp4", "127.0.0.1:0"))(t)
	fd = testenv.Must(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	require.NoError(t, small(fd))
	at, ok := l.Addr().(*net.TCPAddr)
	require.True(t, ok)
	require.NoError(t, syscall.Connect(fd, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}}))
	end := testenv.Must(l.Accept())(t)
	t.Cleanup(func() { _ = end.Close() })
	require.NoError(t, syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: seconds}))
	require.NoError(t, syscall.SetNonblock(fd, true))
	var err error
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 1<<16))
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	return fd, func() { _ = end.Close() } // It has unread data, so that this resets the connection.
}

// withoutSignals disables asynchronous preemption in the processes that the test starts. The
// runtime preempts threads by signals, and a signal just before a close would end the sleep of that
// close.
func withoutSignals(t *testing.T) {
	t.Setenv("GODEBUG", strings.TrimPrefix(os.Getenv("GODEBUG")+",asyncpreemptoff=1", ","))
}

// whileStopped runs f while the process is stopped. The process receives nothing during f.
func (o *other) whileStopped(f func()) {
	o.t.Helper()
	require.NoError(o.t, o.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(o.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.cmd.Process.Pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(state, "T")
	}, "the process is not stopped")
	f()
	require.NoError(o.t, o.cmd.Process.Signal(syscall.SIGCONT))
}

// pass sends a datagram with descriptors and closes them in this process. If the receiver is
// stopped meanwhile, the message in flight holds the last references.
func pass(t testing.TB, c *net.UnixConn, b []byte, fds ...int) error {
	t.Helper()
	_, _, err := c.WriteMsgUnix(b, syscall.UnixRights(fds...), nil)
	for _, fd := range fds {
		if err != nil { // The last reference is here: do not sleep in this process.
			require.NoError(t, syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{}))
		}
		require.NoError(t, syscall.Close(fd))
	}
	return err
}

// squat passes a socket whose close sleeps before the greeting. A guarded connection refuses it.
func squat(t *testing.T, c net.Conn, guarded bool) (release func()) {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	fd, release := lingeringFor(t, 600)
	err := pass(t, c.(*net.UnixConn), []byte("x"), fd)
	if guarded {
		require.ErrorIs(t, err, syscall.EPERM)
	} else {
		require.NoError(t, err)
	}
	return release
}

// onKernels runs a test for the running kernel, and for one without SO_PASSRIGHTS. guarded
// reports whether the kernel keeps descriptors from a process that is not admitted.
func onKernels(t *testing.T, f func(t *testing.T, guarded bool)) {
	t.Helper()
	t.Run("this kernel", func(t *testing.T) {
		fd := testenv.Must(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0))(t)
		defer func() { require.NoError(t, syscall.Close(fd)) }()
		const soPassRights = 83
		if errors.Is(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soPassRights, 0), syscall.ENOPROTOOPT) {
			t.Skip("the kernel has no SO_PASSRIGHTS (Linux 6.16)")
		}
		f(t, true)
	})
	t.Run("older kernel", func(t *testing.T) {
		t.Setenv(olderKernelEnv, "1")
		f(t, false)
	})
}

// TestRefusedProcessesOccupyFewThreads checks that a process that is not admitted cannot occupy the
// threads of a server, even if each of its connections holds a socket whose close sleeps.
func TestRefusedProcessesOccupyFewThreads(t *testing.T) {
	onKernels(t, func(t *testing.T, guarded bool) {
		const connections = 160
		withoutSignals(t)
		o := start(t, "refuse", "")
		address := o.line()
		over := make(chan struct{}, connections)
		var releases []func()
		for range connections {
			c := testenv.Must(net.Dial("unixpacket", address))(t)
			releases = append(releases, squat(t, c, guarded))
			go func() {
				b := make([]byte, 1<<14)
				for {
					n, err := c.Read(b)
					if n == 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
						break
					}
				}
				over <- struct{}{}
			}()
		}
		o.say("") // The server decides.
		begun := 0
		await := func(n int, most time.Duration) bool {
			for ; begun < n; begun++ {
				select {
				case <-over:
				case <-time.After(most):
					return false
				}
			}
			return true
		}
		if !guarded { // Each close sleeps until its release.
			require.True(t, await(share.MaxUnadmitted, soon))
			require.False(t, await(connections, time.Second/2), "more than MaxUnadmitted connections are being closed")
			require.Equal(t, share.MaxUnadmitted, begun)
			for _, release := range releases {
				release()
			}
		}
		require.True(t, await(connections, soon), "a connection that was refused stays")
		o.say("")
		require.Less(t, testenv.Must(strconv.Atoi(o.line()))(t), share.MaxUnadmitted+40, "threads of the server")
		require.ErrorIs(t, testenv.ErrorOf(share.Dial(background(t), address, share.Options{})), share.ErrRefused, "the server no longer answers")
		o.finish()
	})
}

// TestDialIsNotDelayedByTheListener checks that a listener that is not admitted and sends sockets
// whose close sleeps cannot delay Dial, and cannot occupy the threads of a process that dials it
// repeatedly.
func TestDialIsNotDelayedByTheListener(t *testing.T) {
	onKernels(t, func(t *testing.T, guarded bool) {
		l := testenv.Must(net.ListenUnix("unixpacket", &net.UnixAddr{Name: abstractName(), Net: "unixpacket"}))(t)
		withoutSignals(t)
		o := start(t, "refused", l.Addr().String())
		next := func() (release func()) {
			release = squat(t, testenv.Must(l.AcceptUnix())(t), guarded)
			o.say("") // The process rejects the listener.
			return release
		}
		releases := []func(){next()}
		o.expect("refused")
		if guarded {
			for range 2 * share.MaxReleasing {
				next()
				o.expect("refused")
			}
		} else {
			for range share.MaxReleasing - 1 {
				releases = append(releases, next())
				o.expect("refused")
			}
			o.expect("limit")
			for _, release := range releases {
				release()
			}
			o.say("")
			for again := o.line(); again != "refused"; again = o.line() {
				require.Equal(t, "limit", again)
			}
		}
		require.NoError(t, l.Close())
		o.kill()
	})
}

// TestDescriptorsBeforeTheGreeting checks that an admitted process can send descriptors after the
// greetings but not before.
func TestDescriptorsBeforeTheGreeting(t *testing.T) {
	onKernels(t, func(t *testing.T, guarded bool) {
		o := start(t, "serve", "")
		address := o.line()
		open := func() (*net.UnixConn, int) {
			c := testenv.Must(net.Dial("unixpacket", address))(t)
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
			fd, release := lingeringFor(t, 600)
			t.Cleanup(release)
			return c.(*net.UnixConn), fd
		}
		b := make([]byte, 1<<14)
		c, fd := open()
		var err error
		o.whileStopped(func() { err = pass(t, c, greetingFrame(), fd) })
		if guarded {
			require.ErrorIs(t, err, syscall.EPERM)
			require.NoError(t, testenv.ErrorOf(c.Write(greetingFrame())))
			require.NoError(t, testenv.ErrorOf(c.Read(b)))
			require.EqualValues(t, 1, b[0], "a greeting")
			f := testenv.Must(os.Open(os.DevNull))(t)
			fd = testenv.Must(syscall.Dup(int(f.Fd())))(t)
			require.NoError(t, f.Close())
			require.NoError(t, pass(t, c, frameOf(7, 1, []byte("\x01a")), fd), "descriptors are allowed after the greeting")
		} else {
			require.NoError(t, err)
			n := testenv.Must(c.Read(b))(t)
			require.EqualValues(t, 2, b[0], "a refusal")
			require.Contains(t, string(b[:n]), "a descriptor")
		}
		cutOff(t, c)
		p, err := share.Dial(background(t), address, share.Options{})
		require.NoError(t, err, "other connections are not served")
		hangUp(t, p)
		o.finish()
	})
}

// greetingFrame is the greeting of a process that follows the protocol.
func greetingFrame() []byte {
	return frameOf(1, 0, slices.Concat([]byte("USM1"), []byte{share.ProtocolVersion, 0, 0, 0}))
}

// TestOneProcessLeavesConnectionsToOthers checks that an admitted process can use only a share of
// the connections of a server, whether or not it greets.
func TestOneProcessLeavesConnectionsToOthers(t *testing.T) {
	for _, role := range []string{"silent", "crowd"} {
		t.Run(role, func(t *testing.T) {
			s := listen(t, share.Options{MaxPeers: crowdedPeers})
			o := start(t, role, s.Address())
			if role == "silent" {
				o.expect("full")
				require.Zero(t, s.Stats().Peers, "it did not greet")
			} else {
				o.expect(strconv.Itoa(crowdedPeers / 4))
			}
			hangUp(t, testenv.Must(share.Dial(background(t), s.Address(), share.Options{}))(t))
			o.finish()
		})
	}
}

// TestSurplusDescriptorsLeaveTheSchedulerAlone checks that the kernel's close of surplus
// descriptors does not hold a processor of the receiver's scheduler while it sleeps.
func TestSurplusDescriptorsLeaveTheSchedulerAlone(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	o := start(t, "serve", "")
	address := o.line()
	c := testenv.Must(net.Dial("unixpacket", address))(t)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, testenv.ErrorOf(c.Write(greetingFrame())))
	require.NoError(t, testenv.ErrorOf(c.Read(make([]byte, 1<<14))))
	var fds []int
	var releases []func()
	for range 8 {
		fd, release := lingeringFor(t, 600)
		fds, releases = append(fds, fd), append(releases, release)
	}
	o.whileStopped(func() { require.NoError(t, pass(t, c.(*net.UnixConn), frameOf(7, 1, []byte("\x01a")), fds...)) })
	for range 3 {
		p, err := share.Dial(background(t), address, share.Options{})
		require.NoError(t, err, "other connections are not served")
		testenv.Must(p.Attach(background(t), "a"))(t).Release()
		hangUp(t, p)
	}
	// A thread that holds a processor is interrupted by a signal after 10 ms, which ends the sleep.
	raw := testenv.Must(c.(*net.UnixConn).SyscallConn())(t)
	var err error
	require.NoError(t, raw.Control(func(fd uintptr) {
		_, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}))
	require.ErrorIs(t, err, syscall.EAGAIN, "it is cut off: the sleep was interrupted")
	for _, release := range releases {
		release()
	}
	cutOff(t, c.(*net.UnixConn))
	o.finish()
}

// TestUnmappedUserIsRejected checks that Dial rejects a peer whose user has no mapping in the user
// namespace. The kernel reports the same overflow user ID for all such users, and a process that
// runs under this ID itself must not take them for its own user.
func TestUnmappedUserIsRejected(t *testing.T) {
	text := testenv.Must(os.ReadFile("/proc/sys/kernel/overflowuid"))(t)
	overflow := testenv.Must(strconv.Atoi(strings.TrimSpace(string(text))))(t)
	o := startAs(t, "serve", "", &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: overflow, HostID: os.Geteuid(), Size: 1}},
	})
	testenv.Failed(t, testenv.ErrorOf(share.Dial(background(t), o.line(), share.Options{})), share.ErrRefused, "user namespace")
	o.finish()
}
