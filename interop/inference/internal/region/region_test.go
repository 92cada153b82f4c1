//go:build cgo && linux

package region

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestMain(m *testing.M) { testsycl.Main(m) }

// self is a local client that runs as the user of the test. network is a client of a network.
var (
	self    = peercred.Client{Local: true, Known: true, UID: uint32(os.Geteuid())}
	network peercred.Client
)

// shared creates shared memory like a client, filled with the bytes 1, 2, … 251, 1, ….
func shared(t testing.TB, size int) (key string, f *os.File) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "usmbridge-region-")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no POSIX shared memory: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, os.Remove(f.Name()))
		require.NoError(t, f.Close())
	})
	require.NoError(t, testenv.ErrorOf(f.Write(pattern(size))))
	return filepath.Base(f.Name()), f
}

func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i%251 + 1)
	}
	return b
}

// registry returns a registry, and checks when the test ends that no mapping or descriptor is left.
func registry(t testing.TB, o Options) *Registry {
	t.Helper()
	mappings, descriptors := segment.InUse()
	r := New(o)
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		regions, bytes, leases := r.InUse()
		require.Zero(t, regions)
		require.Zero(t, bytes)
		require.Zero(t, leases)
		m, d := segment.InUse()
		require.Equal(t, mappings, m, "mappings")
		require.Equal(t, descriptors, d, "descriptors")
	})
	return r
}

// kind returns the kind of an error, or 255 for nil.
func kind(err error) oip.Kind {
	if err == nil {
		return 255
	}
	return oip.As(err).Kind
}

func bytesOf(t testing.TB, l memmgr.Buffer) []byte {
	t.Helper()
	return testenv.Must(l.Bytes())(t)
}

// A region is exactly the range of the client's memory, and both sides see the same bytes.
func TestRegionIsShared(t *testing.T) {
	key, f := shared(t, 10000)
	r := registry(t, Options{})
	require.NoError(t, r.Register(self, "a", "/"+key, 100, 9000))
	require.NoError(t, r.Register(self, "b", key, 0, 10000))
	l, check, err := r.Acquire(self, "a", 50, 500, false)
	require.NoError(t, err)
	require.Equal(t, pattern(10000)[150:650], bytesOf(t, l))
	require.True(t, l.ReadOnly())
	w, _, err := r.Acquire(self, "b", 150, 4, true)
	require.NoError(t, err)
	require.False(t, w.ReadOnly())
	copy(bytesOf(t, w), "here")
	require.Equal(t, "here", string(bytesOf(t, l)[:4]))
	got := make([]byte, 4)
	require.NoError(t, testenv.ErrorOf(f.ReadAt(got, 150)))
	require.Equal(t, "here", string(got))
	require.NoError(t, check())
	require.Equal(t, oip.InUse, kind(r.Unregister(self, "a")))
	_, _, leases := r.InUse()
	require.Equal(t, 2, leases)
	l.Release()
	require.NoError(t, r.Unregister(self, "a"))
	require.Equal(t, oip.NotFound, kind(r.Unregister(self, "a")))
	w.Release()

	empty, _, err := r.Acquire(self, "b", 10000, 0, true)
	require.NoError(t, err)
	require.Empty(t, bytesOf(t, empty))
	empty.Release()
}

func TestStatus(t *testing.T) {
	key, _ := shared(t, 100)
	r := registry(t, Options{})
	all := testenv.Must(r.Status(self, ""))(t)
	require.NotNil(t, all)
	require.Empty(t, all)
	for _, name := range []string{"b", "a", "ä/b c"} {
		require.NoError(t, r.Register(self, name, "/"+key, 1, 2))
	}
	all = testenv.Must(r.Status(self, ""))(t)
	require.Equal(t, []Info{{"a", "/" + key, 1, 2}, {"b", "/" + key, 1, 2}, {"ä/b c", "/" + key, 1, 2}}, all)
	require.Equal(t, []Info{{"b", "/" + key, 1, 2}}, testenv.Must(r.Status(self, "b"))(t))
	_, err := r.Status(self, "c")
	require.Equal(t, oip.NotFound, kind(err))
	require.NoError(t, r.Unregister(self, ""))
	all = testenv.Must(r.Status(self, ""))(t)
	require.Empty(t, all)
}

// Invalid registrations are refused with an error without details of the server, and leave nothing.
func TestRefused(t *testing.T) {
	key, f := shared(t, 8192)
	link, dir, pipe, fake := key+"-link", key+"-dir", key+"-pipe", "sem."+key
	require.NoError(t, os.Symlink(f.Name(), "/dev/shm/"+link))
	require.NoError(t, os.Mkdir("/dev/shm/"+dir, 0o700))
	require.NoError(t, syscall.Mkfifo("/dev/shm/"+pipe, 0o600))
	require.NoError(t, os.WriteFile("/dev/shm/"+fake, make([]byte, 64), 0o600))
	t.Cleanup(func() {
		for _, n := range []string{link, dir, pipe, fake} {
			require.NoError(t, os.Remove("/dev/shm/"+n))
		}
	})
	r := registry(t, Options{MaxBytes: 1 << 40})
	require.NoError(t, r.Register(self, "taken", key, 0, 1))
	long := strings.Repeat("x", 256)
	for what, c := range map[string]struct {
		name, key    string
		offset, size uint64
		want         oip.Kind
	}{
		"no name":              {"", key, 0, 1, oip.Invalid},
		"a long name":          {long, key, 0, 1, oip.Invalid},
		"a name of no text":    {"\xff", key, 0, 1, oip.Invalid},
		"a name with a zero":   {"a\x00b", key, 0, 1, oip.Invalid},
		"a name with a line":   {"a\nb", key, 0, 1, oip.Invalid},
		"twice":                {"taken", key, 0, 1, oip.Invalid},
		"no key":               {"n", "", 0, 1, oip.Invalid},
		"a slash":              {"n", "/", 0, 1, oip.Invalid},
		"two slashes":          {"n", "//" + key, 0, 1, oip.Invalid},
		"a path":               {"n", "/dev/shm/" + key, 0, 1, oip.Invalid},
		"a way up":             {"n", "..", 0, 1, oip.Invalid},
		"a way up and down":    {"n", "/../shm/" + key, 0, 1, oip.Invalid},
		"a way round":          {"n", "../dev/shm/" + key, 0, 1, oip.Invalid},
		"the directory":        {"n", ".", 0, 1, oip.Invalid},
		"a slash behind":       {"n", key + "/", 0, 1, oip.Invalid},
		"a zero byte":          {"n", key + "\x00", 0, 1, oip.Invalid},
		"a long key":           {"n", long, 0, 1, oip.Invalid},
		"no such key":          {"n", key + "-not", 0, 1, oip.Invalid},
		"a link":               {"n", link, 0, 1, oip.Invalid},
		"a directory":          {"n", dir, 0, 1, oip.Invalid},
		"a pipe":               {"n", pipe, 0, 1, oip.Invalid},
		"a semaphore":          {"n", fake, 0, 1, oip.Invalid},
		"no bytes":             {"n", key, 0, 0, oip.Invalid},
		"a byte beyond":        {"n", key, 0, 8193, oip.Invalid},
		"at the end":           {"n", key, 8192, 1, oip.Invalid},
		"all beyond":           {"n", key, 1 << 30, 1, oip.Invalid},
		"an offset that wraps": {"n", key, math.MaxUint64, 2, oip.Invalid},
		"a size that wraps":    {"n", key, 2, math.MaxUint64, oip.Invalid},
		"half of all":          {"n", key, 1 << 63, 1 << 39, oip.Invalid},
		"too many bytes":       {"n", key, 0, 1<<40 + 1, oip.TooLarge},
		"bytes that are taken": {"n", key, 0, 1 << 40, oip.Busy},
	} {
		t.Run(what, func(t *testing.T) {
			err := r.Register(self, c.name, c.key, c.offset, c.size)
			e, ok := errors.AsType[*oip.Error](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.want, e.Kind, "%v", err)
			for _, inside := range []string{"segment", "memmgr", "MapForeign", "lstat", "open", "errno", "0x", "user", "exist", "symbolic"} {
				require.NotContains(t, e.Message, inside)
			}
			require.Less(t, len(e.Message), 600)
			regions, bytes, _ := r.InUse()
			require.Equal(t, 1, regions)
			require.EqualValues(t, os.Getpagesize(), bytes)
		})
	}
	for what, key := range map[string]string{"missing": key + "-not", "link": link, "pipe": pipe} {
		err := r.Register(self, "n", key, 0, 1)
		require.Equal(t, strings.ReplaceAll(oip.As(r.Register(self, "n", "other", 0, 1)).Message, `"other"`, oip.Quote(key)), oip.As(err).Message,
			"what is not there and what is refused cannot be told apart: %s", what)
	}
}

// TestLocalClients checks that clients of a Unix socket can register and use memory of their own
// user, independently of the server's user and the file mode. Memory of another user is reported as
// not found.
func TestLocalClients(t *testing.T) {
	key, f := shared(t, 100)
	r := registry(t, Options{})
	stranger := peercred.Client{Local: true, Known: true, UID: 12345}
	unknown := peercred.Client{Local: true, UID: self.UID}
	missing := strings.ReplaceAll(oip.As(r.Register(self, "n", key+"-not", 0, 1)).Message, key+"-not", key)
	require.NoError(t, f.Chmod(0o666))
	for _, c := range []peercred.Client{stranger, unknown} {
		err := r.Register(c, "n", key, 0, 1)
		require.Equal(t, oip.Invalid, kind(err))
		require.Equal(t, missing, oip.As(err).Message)
	}
	require.NoError(t, r.Register(self, "n", key, 0, 100))
	for _, c := range []peercred.Client{stranger, unknown, network} {
		_, _, err := r.Acquire(c, "n", 0, 1, false)
		require.Equal(t, oip.NotFound, kind(err))
		_, err = r.Status(c, "n")
		require.Equal(t, oip.NotFound, kind(err))
		require.Empty(t, testenv.Must(r.Status(c, ""))(t))
		require.Equal(t, oip.NotFound, kind(r.Unregister(c, "n")))
		require.NoError(t, r.Unregister(c, ""))
	}
	require.Len(t, testenv.Must(r.Status(self, ""))(t), 1)
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(t, f.Chmod(0o600))
	require.NoError(t, f.Chown(12345, 12345))
	require.Equal(t, oip.Invalid, kind(r.Register(self, "m", key, 0, 1)))
	require.NoError(t, r.Register(stranger, "m", key, 0, 100))
	_, _, err := r.Acquire(self, "m", 0, 1, false)
	require.Equal(t, oip.NotFound, kind(err))
	l, _, err := r.Acquire(stranger, "m", 0, 1, true)
	require.NoError(t, err)
	l.Release()
	require.NoError(t, r.Unregister(stranger, ""))
	require.NoError(t, r.Unregister(self, "n"))
}

// TestNetworkClients checks that network clients can register no memory without a prefix, and only
// memory of the server's user with one.
func TestNetworkClients(t *testing.T) {
	key, f := shared(t, 100)
	none := registry(t, Options{})
	err := none.Register(network, "n", key, 0, 1)
	require.Equal(t, oip.Unsupported, kind(err))
	require.ErrorContains(t, err, "-shm-prefix")
	require.Equal(t, err, none.Register(network, "n", key+"-not", 0, 1))
	r := registry(t, Options{Prefix: "usmbridge-region-"})
	require.NoError(t, r.Register(network, "n", key, 0, 100))
	l, _, err := r.Acquire(network, "n", 0, 1, false)
	require.NoError(t, err)
	l.Release()
	_, err = r.Status(self, "n") // of the same user
	require.NoError(t, err)
	require.NoError(t, r.Unregister(network, "n"))
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(t, f.Chown(12345, 12345))
	require.Equal(t, oip.Invalid, kind(r.Register(network, "n", key, 0, 1)))
}

func TestPrefix(t *testing.T) {
	key, _ := shared(t, 100)
	for _, c := range []peercred.Client{self, network} {
		r := registry(t, Options{Prefix: "usmbridge-region-"})
		require.NoError(t, r.Register(c, "n", "/"+key, 0, 1))
		other := registry(t, Options{Prefix: "other-"})
		err := other.Register(c, "n", key, 0, 1)
		require.Equal(t, oip.Invalid, kind(err))
		require.Contains(t, err.Error(), `begin with "other-"`)
		require.Equal(t, oip.Invalid, kind(other.Register(c, "n", "other-/../"+key, 0, 1)))
		whole := registry(t, Options{Prefix: key})
		require.Equal(t, oip.Invalid, kind(whole.Register(c, "n", key, 0, 1)), "nothing after the prefix")
	}
	for prefix, want := range map[string]string{"a": "a", "/a.b-": "a.b-", "...": "..."} {
		require.Equal(t, want, testenv.Must(CheckPrefix(prefix))(t))
	}
	for _, prefix := range []string{"", "/", "//", "//a", ".", "..", "a/", "a/..", "sem.", "sem.a", "\x00", "\xff", strings.Repeat("x", maxName)} {
		require.Error(t, testenv.ErrorOf(CheckPrefix(prefix)), "%q", prefix)
	}
}

func TestRanges(t *testing.T) {
	key, _ := shared(t, 5000)
	r := registry(t, Options{})
	require.NoError(t, r.Register(self, "n", key, 1000, 4000))
	for _, c := range []struct{ offset, size uint64 }{
		{0, 4001}, {4000, 1}, {4001, 0}, {math.MaxUint64, 1}, {1, math.MaxUint64}, {math.MaxUint64, math.MaxUint64}, {1 << 63, 1 << 63},
	} {
		_, _, err := r.Acquire(self, "n", c.offset, c.size, false)
		require.Equal(t, oip.Invalid, kind(err), "%v", c)
	}
	_, _, err := r.Acquire(self, "m", 0, 1, false)
	require.Equal(t, oip.NotFound, kind(err))
}

// TestBounds checks that the limit counts whole pages of a region, including pages that are not
// allocated yet.
func TestBounds(t *testing.T) {
	page := uint64(os.Getpagesize())
	key, f := shared(t, int(2*page))
	require.NoError(t, f.Truncate(int64(1000*page))) // sparse
	r := registry(t, Options{MaxRegions: 2, MaxBytes: 3*page + page/2})
	require.Equal(t, oip.TooLarge, kind(r.Register(self, "a", key, 0, 1000*page)))
	require.Equal(t, oip.TooLarge, kind(r.Register(self, "a", key, page-1, 2*page+2)))
	require.NoError(t, r.Register(self, "a", key, 0, 2*page))
	require.Equal(t, oip.Busy, kind(r.Register(self, "b", key, 0, page+1)))
	require.Equal(t, oip.Busy, kind(r.Register(self, "b", key, page-1, 2)))
	require.NoError(t, r.Register(self, "b", key, page-1, 1))
	_, bytes, _ := r.InUse()
	require.Equal(t, 3*page, bytes)
	require.Equal(t, oip.Busy, kind(r.Register(self, "c", key, 0, 1)))
	require.NoError(t, r.Unregister(self, "a"))
	require.NoError(t, r.Register(self, "c", key, 0, 2*page))
	for _, c := range []struct{ offset, size, want uint64 }{{0, 1, 1}, {0, page, 1}, {1, page, 2}, {page - 1, 2, 2}, {page, page, 1},
		{math.MaxInt64 - 1, 1, 1}, {0, math.MaxInt64, (math.MaxInt64 + 1) / page}} {
		require.Equal(t, c.want*page, pages(c.offset, c.size), "%v", c)
	}
}

// TestTruncatedMemory checks that access to truncated memory is an error and does not stop the
// server.
func TestTruncatedMemory(t *testing.T) {
	const pages = 4
	key, f := shared(t, pages*4096)
	r := registry(t, Options{})
	require.NoError(t, r.Register(self, "n", key, 0, pages*4096))
	l, check, err := r.Acquire(self, "n", 0, pages*4096, true)
	require.NoError(t, err)
	require.NoError(t, check())
	require.NoError(t, f.Truncate(4096))
	b := bytesOf(t, l)
	require.Equal(t, pattern(4096), b[:4096])
	require.Equal(t, make([]byte, (pages-1)*4096), b[4096:])
	b[len(b)-1] = 1
	require.Equal(t, oip.Invalid, kind(check()))
	require.Contains(t, oip.As(check()).Message, "cut off")
	_, _, err = r.Acquire(self, "n", 0, 1, false)
	require.Equal(t, oip.Invalid, kind(err), "none of it is lent again")
	l.Release()
	require.NoError(t, r.Unregister(self, "n"))
	require.Equal(t, oip.Invalid, kind(r.Register(self, "n", key, 0, pages*4096)))
	require.NoError(t, r.Register(self, "n", key, 0, 4096))
}

// TestRetainedBufferKeepsMapping checks that a retained buffer keeps the mapping after Release and
// Close.
func TestRetainedBufferKeepsMapping(t *testing.T) {
	key, _ := shared(t, 5000)
	mappings, _ := segment.InUse()
	r := New(Options{})
	require.NoError(t, r.Register(self, "n", key, 0, 5000))
	require.NoError(t, r.Register(self, "idle", key, 0, 5000))
	l, _, err := r.Acquire(self, "n", 1, 100, false)
	require.NoError(t, err)
	kept := l.Retain()
	l.Release()
	require.Equal(t, oip.InUse, kind(r.Unregister(self, "n")))
	err = r.Unregister(self, "")
	require.Equal(t, oip.InUse, kind(err))
	require.Contains(t, err.Error(), "1 regions were unregistered, and 1 stay")
	require.ErrorContains(t, r.Close(), "1 ranges")
	require.Equal(t, oip.NotReady, kind(r.Register(self, "m", key, 0, 1)))
	_, _, err = r.Acquire(self, "n", 0, 1, false)
	require.Equal(t, oip.NotReady, kind(err))
	require.Equal(t, pattern(5000)[1:101], testenv.Must(kept.Bytes())(t))
	kept.Release()
	memmgr.Flush()
	after, _ := segment.InUse()
	require.Equal(t, mappings, after)
	require.NoError(t, r.Close())
}

// Many goroutines register, use and unregister the same names: each call succeeds or returns an
// error, and no memory in use is unmapped.
func TestConcurrent(t *testing.T) {
	const size = 3 * 4096
	key, _ := shared(t, size)
	want := pattern(size)
	r := registry(t, Options{MaxRegions: 3})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			name := fmt.Sprint("n", g%4)
			for i := range 300 {
				if err := r.Register(self, name, key, 0, size); err != nil && kind(err) != oip.Invalid && kind(err) != oip.Busy {
					t.Error(err)
				}
				off := uint64(i*37) % size
				l, _, err := r.Acquire(self, name, off, size-off, false)
				if err == nil {
					b, err := l.Bytes()
					if err != nil || b[0] != want[off] || b[len(b)-1] != want[size-1] {
						t.Errorf("%v, or other bytes", err)
					}
					l.Release()
				} else if kind(err) != oip.NotFound {
					t.Error(err)
				}
				if i%3 == 0 {
					if err := r.Unregister(self, name); err != nil && kind(err) != oip.NotFound && kind(err) != oip.InUse {
						t.Error(err)
					}
				}
				if _, err := r.Status(self, ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestUSM checks that a region is USM if the device can import file mappings as USM.
func TestUSM(t *testing.T) {
	q := testsycl.Queue(t)
	key, f := shared(t, 3*4096)
	probe, err := segment.MapForeign(segment.Foreign{Name: key, Size: 1, Queue: q, Kind: syclobj.USMShared})
	want := syclobj.USMShared
	if errors.Is(err, errors.ErrUnsupported) {
		want = syclobj.HostPlace().Kind()
	} else {
		require.NoError(t, err)
		require.NoError(t, probe.Close())
	}
	r := registry(t, Options{Queue: q, Kind: syclobj.USMShared})
	require.NoError(t, r.Register(self, "n", key, 5, 8192))
	l, _, err := r.Acquire(self, "n", 1, 100, true)
	require.NoError(t, err)
	require.Equal(t, want, l.Place().Kind())
	if want == syclobj.USMShared {
		require.NoError(t, q.Write(l.Data(), []byte("by the queue")))
		got := make([]byte, 12)
		require.NoError(t, testenv.ErrorOf(f.ReadAt(got, 6)))
		require.Equal(t, "by the queue", string(got))
	}
	l.Release()
}

// FuzzRegister checks that Register accepts arbitrary names, keys and sizes only if they refer to
// the permitted memory and to bytes within it. The directory also contains a link and a pipe.
func FuzzRegister(f *testing.F) {
	const size = 8192
	key, file := shared(f, size)
	link, pipe := key+"-l", key+"-p"
	require.NoError(f, os.Symlink(file.Name(), "/dev/shm/"+link))
	require.NoError(f, syscall.Mkfifo("/dev/shm/"+pipe, 0o600))
	f.Cleanup(func() { _, _ = os.Remove("/dev/shm/"+link), os.Remove("/dev/shm/"+pipe) })
	for _, k := range []string{"KEY", "/KEY", "//KEY", "KEY-l", "KEY-p", "../shm/KEY", ".", "..", "/", "", "KEY\x00", "KEY/", "\xff"} {
		f.Add("n", k, uint64(0), uint64(size), uint64(1), uint64(2))
	}
	f.Add("n", "KEY", uint64(math.MaxUint64), uint64(2), uint64(0), uint64(math.MaxUint64))
	f.Add("", "KEY", uint64(8191), uint64(1), uint64(0), uint64(1))
	f.Add("é/..", "/KEY", uint64(4095), uint64(4097), uint64(4096), uint64(1))
	f.Fuzz(func(t *testing.T, name, k string, offset, bytes, at, n uint64) {
		k = strings.ReplaceAll(k, "KEY", key)
		r := registry(t, Options{MaxBytes: math.MaxUint64, Prefix: "usmbridge-region-"})
		err := r.Register(self, name, k, offset, bytes)
		right := strings.TrimPrefix(k, "/") == key && bytes > 0 && offset <= size && bytes <= size-offset
		if err != nil {
			e, ok := errors.AsType[*oip.Error](err)
			require.True(t, ok)
			require.NotEqual(t, oip.Internal, e.Kind, "%v", err)
			require.False(t, right && isText(name), "%v", err)
			return
		}
		require.True(t, right)
		l, _, err := r.Acquire(self, name, at, n, true)
		if err != nil {
			require.Equal(t, oip.Invalid, kind(err))
			require.False(t, at <= bytes && n <= bytes-at)
			return
		}
		b := bytesOf(t, l)
		require.Len(t, b, int(n))
		if n > 0 {
			require.Equal(t, pattern(size)[offset+at], b[0])
		}
		l.Release()
	})
}
