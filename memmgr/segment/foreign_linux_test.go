package segment_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/memmgr/segment/internal/guard"
)

// named makes POSIX shared memory with the bytes 1, 2, … 251, 1, … as another program would.
func named(t testing.TB, size int) (name string, f *os.File) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "usmbridge-test-")
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

// taken maps the memory; without a guard it is a copy.
func taken(t testing.TB, f segment.Foreign) *segment.Mapping {
	t.Helper()
	if !guard.Supported {
		f.Copy, f.ReadOnly = true, true
	}
	return testenv.Opened(segment.MapForeign(f))(t)
}

// live is taken for tests that need the guard.
func live(t testing.TB, f segment.Foreign) *segment.Mapping {
	t.Helper()
	if !guard.Supported {
		require.ErrorIs(t, testenv.ErrorOf(segment.MapForeign(f)), errors.ErrUnsupported)
		t.Skip("no guard in this build")
	}
	return taken(t, f)
}

func shown(m *segment.Mapping) []byte { return unsafe.Slice((*byte)(m.Data()), m.Size()) }

// Any part of shared memory can be mapped, by name or by descriptor, several times.
func TestForeignParts(t *testing.T) {
	nothingStays(t)
	const size = 10000
	name, f := named(t, size)
	want := pattern(size)
	for _, part := range []struct{ offset, size uint64 }{
		{0, size}, {0, 1}, {1, 1}, {4095, 2}, {4096, 4096}, {4097, 5000}, {size - 1, 1}, {123, size - 123},
	} {
		for _, from := range []segment.Foreign{{Name: name}, {Name: "/" + name, ReadOnly: true}, {File: f}, {Name: name, ReadOnly: true, Copy: true}} {
			from.Offset, from.Size = part.offset, part.size
			m := taken(t, from)
			require.Equal(t, want[part.offset:part.offset+part.size], shown(m))
			require.Equal(t, part.size, m.Size())
			require.True(t, m.Place().IsHost())
			require.NoError(t, m.Err())
			got := make([]byte, part.size+3)
			n, err := m.ReadAt(got, 0)
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, want[part.offset:part.offset+part.size], got[:n])
			n = testenv.Must(m.ReadAt(got[:1], int64(part.size-1)))(t)
			require.Equal(t, 1, n)
			require.Equal(t, want[part.offset+part.size-1], got[0])
			require.ErrorIs(t, testenv.ErrorOf(m.ReadAt(got, int64(part.size))), io.EOF)
			require.ErrorIs(t, testenv.ErrorOf(m.ReadAt(got, -1)), memmgr.ErrRequest)
		}
	}
}

// Bytes written on one side are read on the other. A copy does not change.
func TestForeignIsShared(t *testing.T) {
	nothingStays(t)
	name, f := named(t, 5000)
	m := live(t, segment.Foreign{Name: name, Offset: 4000, Size: 1000})
	again := live(t, segment.Foreign{Name: name, Offset: 4500, Size: 10, ReadOnly: true})
	copied := live(t, segment.Foreign{Name: name, Offset: 4000, Size: 1000, ReadOnly: true, Copy: true})
	require.False(t, m.ReadOnly())
	require.True(t, again.ReadOnly())
	require.True(t, copied.ReadOnly())
	copy(shown(m)[500:], "from here")
	require.Equal(t, "from here", string(shown(again)[:9]))
	got := make([]byte, 9)
	require.NoError(t, testenv.ErrorOf(f.ReadAt(got, 4500)))
	require.Equal(t, "from here", string(got))
	require.NoError(t, testenv.ErrorOf(f.WriteAt([]byte("and there"), 4500)))
	require.Equal(t, "and there", string(shown(m)[500:509]))
	require.Equal(t, pattern(5000)[4000:], shown(copied))
	require.NoError(t, testenv.ErrorOf(copied.ReadAt(got, 500)))
	require.Equal(t, pattern(5000)[4500:4509], got, "ReadAt asks the copy")
	require.NoError(t, testenv.ErrorOf(m.ReadAt(got, 500)))
	require.Equal(t, "and there", string(got), "ReadAt asks the file")
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Err(), memmgr.ErrClosed)
	require.ErrorIs(t, testenv.ErrorOf(m.ReadAt(got, 0)), memmgr.ErrClosed)
	require.Equal(t, "and there", string(shown(again)[:9]), "the other mapping stays")
}

// Every request is mapped or refused with its error, and leaves nothing behind.
func TestForeignChecksBeforeItMaps(t *testing.T) {
	nothingStays(t)
	name, f := named(t, 8192)
	link, dir, pipe, socket := name+"-link", name+"-dir", name+"-pipe", name+"-socket"
	require.NoError(t, os.Symlink(f.Name(), "/dev/shm/"+link))
	require.NoError(t, os.Mkdir("/dev/shm/"+dir, 0o700))
	require.NoError(t, syscall.Mkfifo("/dev/shm/"+pipe, 0o600))
	l := testenv.Must(net.Listen("unix", "/dev/shm/"+socket))(t)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		for _, n := range []string{link, dir, pipe} {
			require.NoError(t, os.Remove("/dev/shm/"+n))
		}
	})
	file := func(path string, flags int) *os.File {
		o := testenv.Must(os.OpenFile(path, flags, 0o600))(t)
		t.Cleanup(func() { _ = o.Close() })
		return o
	}
	onDisk := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(onDisk, make([]byte, 8192), 0o600))
	notTheirs := errors.New("not yours")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	closed := file(os.DevNull, os.O_RDWR)
	require.NoError(t, closed.Close())
	for what, c := range map[string]struct {
		f    segment.Foreign
		want error
	}{
		"nothing":                {segment.Foreign{Size: 1}, memmgr.ErrRequest},
		"both":                   {segment.Foreign{Name: name, File: f, Size: 1}, memmgr.ErrRequest},
		"a slash alone":          {segment.Foreign{Name: "/", Size: 1}, memmgr.ErrRequest},
		"two slashes":            {segment.Foreign{Name: "//" + name, Size: 1}, memmgr.ErrRequest},
		"a path":                 {segment.Foreign{Name: "/dev/shm/" + name, Size: 1}, memmgr.ErrRequest},
		"a way up":               {segment.Foreign{Name: "..", Size: 1}, memmgr.ErrRequest},
		"a way up and down":      {segment.Foreign{Name: "../shm/" + name, Size: 1}, memmgr.ErrRequest},
		"the directory":          {segment.Foreign{Name: ".", Size: 1}, memmgr.ErrRequest},
		"a zero byte":            {segment.Foreign{Name: name + "\x00x", Size: 1}, memmgr.ErrRequest},
		"a long name":            {segment.Foreign{Name: strings.Repeat("x", 256), Size: 1}, memmgr.ErrRequest},
		"no such name":           {segment.Foreign{Name: name + "-not", Size: 1}, fs.ErrNotExist},
		"a link":                 {segment.Foreign{Name: link, Size: 1}, segment.ErrRefused},
		"a directory":            {segment.Foreign{Name: dir, Size: 1}, segment.ErrRefused},
		"a pipe by name":         {segment.Foreign{Name: pipe, Size: 1}, segment.ErrRefused},
		"a socket":               {segment.Foreign{Name: socket, Size: 1}, segment.ErrRefused},
		"another owner":          {segment.Foreign{Name: name, Size: 1, Owner: func(uint32) error { return notTheirs }}, segment.ErrRefused},
		"another owner, why":     {segment.Foreign{Name: name, Size: 1, Owner: func(uint32) error { return notTheirs }}, notTheirs},
		"no bytes":               {segment.Foreign{Name: name}, segment.ErrSize},
		"a byte beyond":          {segment.Foreign{Name: name, Size: 8193}, segment.ErrSize},
		"all beyond":             {segment.Foreign{Name: name, Offset: 8193, Size: 1}, segment.ErrSize},
		"at the end":             {segment.Foreign{Name: name, Offset: 8192, Size: 1}, segment.ErrSize},
		"an offset that wraps":   {segment.Foreign{Name: name, Offset: ^uint64(0), Size: 2}, segment.ErrSize},
		"a size that wraps":      {segment.Foreign{Name: name, Offset: 2, Size: ^uint64(0)}, segment.ErrSize},
		"a copy to be written":   {segment.Foreign{Name: name, Size: 1, Copy: true}, memmgr.ErrRequest},
		"a file of a disk":       {segment.Foreign{File: file(onDisk, os.O_RDWR), Size: 1, ReadOnly: true}, segment.ErrRefused},
		"a device":               {segment.Foreign{File: file("/dev/zero", os.O_RDWR), Size: 1}, segment.ErrRefused},
		"a pipe":                 {segment.Foreign{File: r, Size: 1}, segment.ErrRefused},
		"an open directory":      {segment.Foreign{File: file("/dev/shm", os.O_RDONLY), Size: 1}, segment.ErrRefused},
		"a closed descriptor":    {segment.Foreign{File: closed, Size: 1}, memmgr.ErrClosed},
		"read-only, to write":    {segment.Foreign{File: file(f.Name(), os.O_RDONLY), Size: 1}, segment.ErrRefused},
		"sealed against writing": {segment.Foreign{File: memoryFile(t, 4096, 1|2|4|8, 0), Size: 1}, segment.ErrRefused},
	} {
		t.Run(what, func(t *testing.T) {
			nothingStays(t)
			before := openFiles(t)
			m, err := segment.MapForeign(c.f)
			require.Nil(t, m)
			if !guard.Supported && errors.Is(err, errors.ErrUnsupported) {
				t.Skip("no guard in this build, and nothing is mapped to be written")
			}
			require.ErrorIs(t, err, c.want)
			op := testenv.As[*segment.OpError](t, err)
			require.Equal(t, "MapForeign", op.Op)
			require.Equal(t, before, openFiles(t))
		})
	}
	mappings, descriptors := segment.InUse()
	restore := segment.SetLimits(mappings, descriptors+1)
	require.ErrorIs(t, testenv.ErrorOf(segment.MapForeign(segment.Foreign{Name: name, Size: 1})), segment.ErrLimit)
	restore()
	if err := f.Chown(12345, -1); err != nil {
		t.Logf("memory of another user is not tried: %v", err)
	} else {
		testenv.Failed(t, testenv.ErrorOf(segment.MapForeign(segment.Foreign{Name: name, Size: 1})), segment.ErrRefused, "12345")
		m := taken(t, segment.Foreign{Name: name, Size: 1, Owner: func(uid uint32) error {
			if uid != 12345 {
				return notTheirs
			}
			return nil
		}})
		require.NoError(t, m.Close())
	}
}

// openFiles lists the open descriptors of shared memory in this process.
func openFiles(t testing.TB) (n int) {
	links := testenv.Must(filepath.Glob("/proc/self/fd/*"))(t)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "/dev/shm/usmbridge-test-") {
			n++
		}
	}
	return n
}

func init() {
	// Truncates shared memory to the sizes that it receives.
	peers["cutter"] = func(k talk) {
		name := k.hear()
		for {
			var size int64
			fmt.Sscan(k.hear(), &size)
			if err := os.Truncate("/dev/shm/"+name, size); err != nil {
				k.say("error: %v", err)
			}
			k.say("cut")
		}
	}
}

// Another process truncates the memory while this one reads it.
func TestForeignIsCutOffWhileItIsRead(t *testing.T) {
	nothingStays(t)
	const pages = 64
	name, f := named(t, pages*4096)
	m := live(t, segment.Foreign{Name: name, Size: pages * 4096})
	whole := live(t, segment.Foreign{Name: name, Size: 2 * 4096, ReadOnly: true}) // the part that is not truncated
	p := startPeer(t, "cutter")
	require.NoError(t, testenv.ErrorOf(fmt.Fprintln(p.in, name)))
	started, done := make(chan struct{}), make(chan int)
	go func() {
		b := shown(m)
		for round := 0; ; round++ {
			sum := 0
			for i := range b {
				sum += int(b[i])
			}
			if round == 0 {
				close(started)
			}
			if m.Err() != nil {
				done <- sum
				return
			}
		}
	}()
	<-started
	require.Equal(t, "cut", p.ask("%d", 2*4096))
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the reader did not notice")
	}
	require.NoError(t, p.end())
	testenv.Failed(t, m.Err(), segment.ErrTruncated, "8192 of 262144 bytes are left")
	require.Equal(t, pattern(2*4096), shown(m)[:2*4096])
	require.Equal(t, make([]byte, (pages-2)*4096), shown(m)[2*4096:])
	n, err := m.ReadAt(make([]byte, 3*4096), 0)
	require.ErrorIs(t, err, segment.ErrTruncated)
	require.Equal(t, 2*4096, n)
	require.NoError(t, whole.Err())
	require.Equal(t, pattern(2*4096), shown(whole))
	// The result stays, whatever happens to the file.
	shown(m)[pages*4096-1] = 7
	require.NoError(t, f.Truncate(pages*4096))
	testenv.Failed(t, m.Err(), segment.ErrTruncated, "extended again")
	require.EqualValues(t, 7, shown(m)[pages*4096-1])
	again := live(t, segment.Foreign{Name: name, Size: pages * 4096})
	require.NoError(t, again.Err())
	require.EqualValues(t, 0, shown(again)[pages*4096-1])
}

// A truncation is reported even if no access noticed it.
func TestForeignIsCutOffAndNotTouched(t *testing.T) {
	nothingStays(t)
	name, f := named(t, 8192)
	m := live(t, segment.Foreign{Name: name, Offset: 4000, Size: 4192})
	require.NoError(t, f.Truncate(8191))
	testenv.Failed(t, m.Err(), segment.ErrTruncated, "4191 of 4192 bytes")
	require.NoError(t, f.Truncate(10))
	require.ErrorContains(t, m.Err(), "0 of 4192 bytes")
	require.ErrorIs(t, testenv.ErrorOf(segment.MapForeign(segment.Foreign{Name: name, Offset: 4000, Size: 4192, ReadOnly: true, Copy: true})), segment.ErrSize)
}

// A copy is private memory: it has no descriptor, and changes of the other memory do not affect it.
func TestForeignCopy(t *testing.T) {
	nothingStays(t)
	const size = 3 * 4096
	name, f := named(t, size)
	mappings, descriptors := segment.InUse()
	files := openFiles(t)
	m := testenv.Must(segment.MapForeign(segment.Foreign{Name: name, Offset: 5, Size: size - 5, ReadOnly: true, Copy: true}))(t)
	mappingsNow, descriptorsNow := segment.InUse()
	require.Equal(t, mappings+1, mappingsNow)
	require.Equal(t, descriptors, descriptorsNow)
	require.Equal(t, files, openFiles(t))
	require.Contains(t, mappingFlags(t, uintptr(m.Data())&^4095), " dc ", "a mapping is absent in forked children")
	require.NoError(t, testenv.ErrorOf(f.WriteAt([]byte("changed"), 5)))
	require.NoError(t, f.Truncate(0))
	got := make([]byte, size)
	n, err := m.ReadAt(got, 0)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, pattern(size)[5:], got[:n])
	require.Equal(t, pattern(size)[5:], shown(m))
	require.NoError(t, m.Err())
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Err(), memmgr.ErrClosed)
	require.ErrorIs(t, testenv.ErrorOf(m.ReadAt(got, 0)), memmgr.ErrClosed)
}

// A mapping that is closed during reads stays until these reads end. Later reads fail.
func TestReadAtWhileItIsClosed(t *testing.T) {
	nothingStays(t)
	const size = 16 * 4096
	name, _ := named(t, size)
	sealed := memoryFile(t, size, 1|2|4, 0)
	for what, open := range map[string]func() (*segment.Mapping, error){
		"a segment": func() (*segment.Mapping, error) {
			return segment.Map(segment.Attachment{File: sealed, Size: size, Audience: segment.PeersWrite})
		},
		"a copy": func() (*segment.Mapping, error) {
			return segment.MapForeign(segment.Foreign{Name: name, Size: size, ReadOnly: true, Copy: true})
		},
		"sealed memory of others": func() (*segment.Mapping, error) {
			return segment.MapForeign(segment.Foreign{File: sealed, Size: size})
		},
	} {
		t.Run(what, func(t *testing.T) {
			for range 6 {
				m := testenv.Must(open())(t)
				require.NoError(t, m.Err())
				reads := make(chan struct{}, 8)
				over := make(chan error, 8)
				for range cap(over) {
					go func() {
						b := make([]byte, size)
						for first := true; ; first = false {
							n, err := m.ReadAt(b, 0)
							if first {
								reads <- struct{}{}
							}
							if err != nil || n != size {
								over <- err
								return
							}
						}
					}()
				}
				<-reads
				require.NoError(t, m.Close())
				for range cap(over) {
					require.ErrorIs(t, <-over, memmgr.ErrClosed)
				}
				require.ErrorIs(t, m.Err(), memmgr.ErrClosed)
				require.ErrorIs(t, testenv.ErrorOf(m.ReadAt(make([]byte, 1), size)), memmgr.ErrClosed)
			}
		})
	}
}

// Sealed memory needs no guard, and a segment is not foreign memory.
func TestForeignThatIsSealed(t *testing.T) {
	nothingStays(t)
	f := memoryFile(t, 8192, 1|2|4, 0)
	m := testenv.Must(segment.MapForeign(segment.Foreign{File: f, Offset: 5000, Size: 100}))(t)
	copy(shown(m), "sealed")
	got := make([]byte, 6)
	require.NoError(t, testenv.ErrorOf(f.ReadAt(got, 5000)))
	require.Equal(t, "sealed", string(got))
	require.NoError(t, m.Err())
	require.NoError(t, m.Close())

	m = testenv.Must(segment.Map(segment.Attachment{File: f, Size: 8192, Audience: segment.PeersWrite}))(t)
	require.NoError(t, m.Err())
	require.Equal(t, "sealed", string(got[:testenv.Must(m.ReadAt(got, 5000))(t)]))
	require.NoError(t, m.Close())
}

// A peer truncates and seals the memory during Map: Map refuses it with its new size or maps it with a guard, and
// access never faults.
func TestForeignIsSealedMeanwhile(t *testing.T) {
	nothingStays(t)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	sum := byte(0)
	for try := range 3000 {
		f := memoryFile(t, 2*4096, 0, 0)
		fd := f.Fd()
		begin, done := make(chan struct{}), make(chan error)
		go func() {
			<-begin
			for spin.Store(0); spin.Load() < int32(try%400)*10; spin.Add(1) { // another moment each time
			}
			err := syscall.Ftruncate(int(fd), 4096)
			if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, 1033, 2); errno != 0 {
				err = errno
			}
			done <- err
		}()
		close(begin)
		m, err := segment.MapForeign(segment.Foreign{File: f, Size: 2 * 4096})
		require.NoError(t, <-done)
		switch {
		case err == nil:
			sum += shown(m)[4096]
			require.ErrorIs(t, m.Err(), segment.ErrTruncated)
			require.NoError(t, m.Close())
		case !guard.Supported && errors.Is(err, errors.ErrUnsupported):
		default:
			require.ErrorIs(t, err, segment.ErrSize)
		}
		require.NoError(t, f.Close())
	}
	require.Zero(t, sum)
}

var spin atomic.Int32

// A buffer of the memory keeps the mapping until its last release.
func TestForeignBuffer(t *testing.T) {
	nothingStays(t)
	name, _ := named(t, 100)
	m := taken(t, segment.Foreign{Name: name, Size: 100})
	b := testenv.Must(memmgr.FromForeign(m.Data(), m.Size(), memmgr.ForeignOptions{Place: m.Place(), Release: func() { _ = m.Close() }}))(t)
	other := b.Retain()
	b.Release()
	got := make([]byte, 100)
	require.NoError(t, memmgr.CopyOut(other, 0, got))
	require.Equal(t, pattern(100), got)
	require.NoError(t, m.Err())
	other.Release()
	memmgr.Flush()
	if guard.Supported {
		require.ErrorIs(t, m.Err(), memmgr.ErrClosed)
	}
}

// A block of Python's multiprocessing.shared_memory, made and truncated by a real Python.
func TestForeignOfPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		testenv.Missing(t, err, testenv.Python)
	}
	nothingStays(t)
	cmd := exec.Command(python, "-c", `
import os, sys
from multiprocessing import shared_memory
m = shared_memory.SharedMemory(create=True, size=20000)
m.buf[:6] = b"python"
print(m.name, m.size, flush=True)
sys.stdin.readline()
print(bytes(m.buf[6:8]).decode(), flush=True)
os.truncate("/dev/shm/" + m.name, 4096)
print("cut", flush=True)
sys.stdin.readline()
m.close()
m.unlink()
`)
	cmd.Stderr = os.Stderr
	in := testenv.Must(cmd.StdinPipe())(t)
	out := testenv.Must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	hear := func() string {
		require.True(t, lines.Scan(), "Python ended")
		return lines.Text()
	}
	var name string
	var size uint64
	require.NoError(t, testenv.ErrorOf(fmt.Sscan(hear(), &name, &size)))
	require.GreaterOrEqual(t, size, uint64(20000))
	m := taken(t, segment.Foreign{Name: name, Size: size})
	require.Equal(t, "python", string(shown(m)[:6]))
	if !m.ReadOnly() {
		copy(shown(m)[6:], "go")
	}
	require.NoError(t, testenv.ErrorOf(io.WriteString(in, "\n")))
	if said := hear(); guard.Supported {
		require.Equal(t, "go", said)
	}
	require.Equal(t, "cut", hear())
	last := shown(m)[19999] // no fault
	if guard.Supported {
		require.Zero(t, last)
		require.ErrorIs(t, m.Err(), segment.ErrTruncated)
	}
	if _, err = m.ReadAt(make([]byte, size), 0); guard.Supported {
		require.ErrorIs(t, err, segment.ErrTruncated)
	} else {
		require.NoError(t, err, "a copy")
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}
