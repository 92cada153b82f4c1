//go:build linux

package share_test

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
)

// TestPathAddressCreatesNoFile checks that a path address creates no file and can be used by only
// one server at a time.
func TestPathAddressCreatesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arrays")
	for _, address := range []string{path, path + strings.Repeat("/deep", 40), abstractName()} {
		s := testenv.Must(share.Listen(background(t), address, share.Options{}))(t)
		require.ErrorIs(t, testenv.ErrorOf(os.Lstat(path)), os.ErrNotExist)
		hangUp(t, testenv.Must(share.Dial(background(t), address, share.Options{}))(t))
		hangUp(t, testenv.Must(share.Dial(background(t), s.Address(), share.Options{}))(t))
		require.ErrorIs(t, testenv.ErrorOf(share.Listen(background(t), address, share.Options{})), share.ErrAddress)
		require.NoError(t, s.Close())
		require.ErrorIs(t, testenv.ErrorOf(share.Dial(background(t), address, share.Options{})), share.ErrAddress)
	}
	for _, address := range []string{"@", "@" + strings.Repeat("x", 200), "unix:/" + strings.Repeat("x", 200), "@a\x00b"} {
		require.ErrorIs(t, testenv.ErrorOf(share.Listen(background(t), address, share.Options{})), share.ErrAddress, "%q", address)
	}
	require.ErrorIs(t, testenv.ErrorOf(share.Dial(background(t), "", share.Options{})), share.ErrAddress)
}

// TestSocketFile checks that Close removes the socket file, and that the next Listen replaces the
// socket file of a dead server.
func TestSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	address := "unix:" + path
	listenThere := func() (*share.Server, error) { return share.Listen(background(t), address, share.Options{}) }
	s := testenv.Must(listenThere())(t)
	require.Equal(t, address, s.Address())
	require.ErrorIs(t, testenv.ErrorOf(listenThere()), share.ErrAddress, "another server listens at the address")
	hangUp(t, testenv.Must(share.Dial(background(t), address, share.Options{}))(t))
	require.NoError(t, s.Close())
	require.ErrorIs(t, testenv.ErrorOf(os.Lstat(path)), os.ErrNotExist)

	dead := testenv.Must(net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	require.ErrorIs(t, testenv.ErrorOf(share.Dial(background(t), address, share.Options{})), share.ErrAddress)
	servers := make(chan *share.Server, 8)
	testenv.Together(t, 8, func(int) error { // exactly one of them succeeds
		if s, err := listenThere(); err == nil {
			servers <- s
		}
		return nil
	})
	require.Len(t, servers, 1)
	s = <-servers
	hangUp(t, testenv.Must(share.Dial(background(t), address, share.Options{}))(t))

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	require.NoError(t, s.Close())
	require.ErrorIs(t, testenv.ErrorOf(listenThere()), share.ErrAddress)
	require.Equal(t, "mine", string(testenv.Must(os.ReadFile(path))(t)), "a file that is not the server's socket was removed")
}

// TestSocketFileWhoseDirectoryIsLocked checks that a lock on the directory of a socket file does
// not block Listen, although every process that can read the directory can lock it. A lock file
// that is not a private file of this user is rejected without waiting, and Listen leaves no lock
// file.
func TestSocketFileWhoseDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	listenThere := func(ctx context.Context) (*share.Server, error) {
		return share.Listen(ctx, "unix:"+path, share.Options{})
	}
	o := start(t, "locker", dir)
	o.expect("locked")
	s := testenv.Must(listenThere(background(t)))(t)
	require.NoError(t, s.Close())
	o.finish()
	require.Empty(t, testenv.Must(os.ReadDir(dir))(t))

	lock := path + ".lock"
	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	o = start(t, "locker", lock) // a lock file of this user: Listen waits for it
	o.expect("locked")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, testenv.ErrorOf(listenThere(ctx)), context.DeadlineExceeded)
	waits := make(chan error, 1)
	go func() {
		s, err := listenThere(background(t))
		if err == nil {
			err = s.Close()
		}
		waits <- err
	}()
	o.kill()
	require.NoError(t, <-waits, "the lock file of a killed process is used again")

	for name, put := range map[string]func() error{
		"others may read it": func() error { return os.WriteFile(lock, nil, 0o644) },
		"a link":             func() error { return os.Symlink("/dev/null", lock) },
		"two names": func() error {
			other := t.TempDir() + "/other"
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				return err
			}
			return os.Link(other, lock)
		},
		"a directory": func() error { return os.Mkdir(lock, 0o700) },
		"a pipe":      func() error { return syscall.Mkfifo(lock, 0o600) },
	} {
		require.NoError(t, put())
		require.ErrorIs(t, testenv.ErrorOf(listenThere(background(t))), share.ErrAddress, name)
		require.ErrorIs(t, testenv.ErrorOf(os.Lstat(path)), os.ErrNotExist, name)
		require.NoError(t, os.Remove(lock))
	}
}

// rogue returns a raw connection, on which the test can violate the protocol.
func rogue(t *testing.T, s *share.Server, greets bool) *net.UnixConn {
	t.Helper()
	c := testenv.Must(net.Dial("unixpacket", s.Address()))(t)
	t.Cleanup(func() { _ = c.Close() })
	if greets {
		_, err := c.Write(greetingFrame())
		require.NoError(t, err)
		b := make([]byte, 100)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
		require.NoError(t, testenv.ErrorOf(c.Read(b)))
		eventually(t, func() bool { return s.Stats().Peers > 0 }, "not connected")
	}
	return c.(*net.UnixConn)
}

func frameOf(kind byte, call uint64, payload []byte) []byte {
	b := []byte{kind, 0, 0, 0}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint64(b, call)
	return append(b, payload...)
}

// TestProtocolViolations checks that a violation of the protocol closes only the connection that it
// arrived on, and that descriptors received with it are closed.
func TestProtocolViolations(t *testing.T) {
	pool, s := serving(t, share.Options{})
	publish(t, s, pool, "a", 3)
	good := dial(t, s, share.Options{})
	f := testenv.Opened(os.Open(os.DevNull))(t)
	attach := func(call uint64) []byte { return frameOf(7, call, []byte("\x01a")) }
	many := []byte{}
	for range 9 {
		many = append(many, frameOf(11, 0, nil)...)
	}
	for name, c := range map[string]struct {
		b     []byte
		files int
	}{
		"unknown frame":         {frameOf(99, 0, nil), 0},
		"frame zero":            {frameOf(0, 0, nil), 0},
		"second greeting":       {frameOf(1, 0, nil), 0},
		"cut off":               {attach(1)[:17], 0},
		"too long":              {make([]byte, 17<<10), 0},
		"length beyond the end": {[]byte{7, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
		"reserved bits":         {[]byte{7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
		"too many frames":       {many, 0},
		"stray descriptor":      {attach(1), 1},
		"several descriptors":   {attach(1), 2},
		"a hundred descriptors": {attach(1), 100},
		"segment without one":   {frameOf(3, 0, append(make([]byte, 16), 0, 16, 0, 0, 0, 0, 0, 0, 0, 0)), 0},
		"array of no segment":   {frameOf(8, 0, make([]byte, 80)), 0},
		"half a lease":          {frameOf(11, 0, make([]byte, 7)), 0},
		"a board of no maker":   {frameOf(18, 0, make([]byte, 8)), 0},
		"half a board":          {frameOf(18, 0, make([]byte, 7)), 0},
		"short name of segment": {frameOf(12, 0, make([]byte, 15)), 0},
		"half a description":    {frameOf(15, 8, make([]byte, 60)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			r := rogue(t, s, true)
			var oob []byte
			for range c.files {
				oob = append(oob, make([]byte, 4)...)
			}
			if c.files > 0 {
				fds := make([]int, c.files)
				for i := range fds {
					fds[i] = int(f.Fd())
				}
				oob = syscall.UnixRights(fds...)
			}
			_, _, err := r.WriteMsgUnix(c.b, oob, nil)
			require.NoError(t, err)
			require.NoError(t, r.SetReadDeadline(time.Now().Add(soon)))
			for err == nil { // until the server closes the connection
				var n int
				if n, err = r.Read(make([]byte, 1<<14)); n == 0 {
					break
				}
			}
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, r.Close())
			eventually(t, func() bool { return s.Stats().Peers == 1 && descriptors(t) <= before }, "something stays")
		})
	}
	testenv.Must(good.Attach(background(t), "a"))(t).Release()
}

// TestStuckPeers checks that a peer that never reads and a peer that sends nothing do not delay
// other connections, and that the first is closed when its queue reaches MaxQueued.
func TestStuckPeers(t *testing.T) {
	pool, s := serving(t, share.Options{MaxQueued: 64 << 10, MaxLeases: 1 << 20})
	publish(t, s, pool, "a", 3)
	rogue(t, s, false)
	r := rogue(t, s, true)
	cut := false
	for i := range uint64(1 << 20) {
		require.NoError(t, r.SetWriteDeadline(time.Now().Add(soon)))
		if _, err := r.Write(frameOf(7, i, []byte("\x01a"))); err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server does not read requests")
			cut = true
			break
		}
		if i%256 == 0 {
			p := testenv.Must(share.Dial(background(t), s.Address(), share.Options{}))(t)
			testenv.Must(p.Attach(background(t), "a"))(t).Release()
			require.NoError(t, p.Close())
		}
	}
	require.True(t, cut)
	eventually(t, func() bool { return s.Stats().Leases == 0 }, "leases of the closed connection stay")
}
