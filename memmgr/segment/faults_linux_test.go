package segment_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// memoryFile creates a memory file (memfd_create) with the given seals.
func memoryFile(t *testing.T, size int64, seals int, flags uintptr) *os.File {
	name := append([]byte("test"), 0)
	fd, _, errno := syscall.Syscall(segment.SysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), 3|flags, 0)
	if errno != 0 {
		t.Skipf("memfd_create with flags %#x: %v", flags, errno)
	}
	f := os.NewFile(fd, "test")
	t.Cleanup(func() { f.Close() })
	require.NoError(t, f.Truncate(size))
	_, _, errno = syscall.Syscall(syscall.SYS_FCNTL, fd, 1033, uintptr(seals))
	require.Zero(t, errno)
	return f
}

// TestMapChecksBeforeItMaps checks the result of Map for each kind of descriptor.
func TestMapChecksBeforeItMaps(t *testing.T) {
	const size, fixed, future, write = 8 << 10, 1 | 2 | 4, 0x10, 8
	file := func(path string, flags int) func(*testing.T) *os.File {
		return func(t *testing.T) *os.File {
			f := testenv.Must(os.OpenFile(path, flags, 0o600))(t)
			t.Cleanup(func() { f.Close() })
			return f
		}
	}
	sealed := func(size int64, seals int) func(*testing.T) *os.File {
		return func(t *testing.T) *os.File { return memoryFile(t, size, seals, 0) }
	}
	ordinary := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(ordinary, make([]byte, size), 0o600))
	for name, c := range map[string]struct {
		file     func(*testing.T) *os.File
		size     uint64
		audience segment.Audience
		readOnly bool
		want     error
	}{
		"peers write":            {sealed(size, fixed), size, segment.PeersWrite, false, nil},
		"peers write, to read":   {sealed(size, fixed), size, segment.PeersWrite, true, nil},
		"peers read":             {sealed(size, fixed|future), size, segment.PeersRead, true, nil},
		"peers read, sealed":     {sealed(size, fixed|write), size, segment.PeersRead, true, nil},
		"peers read, to write":   {sealed(size, fixed|future), size, segment.PeersRead, false, segment.ErrAudience},
		"no audience":            {sealed(size, fixed), size, 0, true, segment.ErrAudience},
		"audience too narrow":    {sealed(size, fixed), size, segment.PeersRead, true, segment.ErrAudience},
		"audience too wide":      {sealed(size, fixed|future), size, segment.PeersWrite, true, segment.ErrAudience},
		"unsealed":               {sealed(size, 0), size, segment.PeersWrite, true, segment.ErrSeals},
		"can shrink":             {sealed(size, 1|4), size, segment.PeersWrite, true, segment.ErrSeals},
		"can grow":               {sealed(size, 1|2), size, segment.PeersWrite, true, segment.ErrSeals},
		"can be sealed":          {sealed(size, 2|4), size, segment.PeersWrite, true, segment.ErrSeals},
		"truncated":              {sealed(size/2, fixed), size, segment.PeersWrite, true, segment.ErrSize},
		"empty":                  {sealed(0, fixed), size, segment.PeersWrite, true, segment.ErrSize},
		"longer":                 {sealed(2*size, fixed), size, segment.PeersWrite, true, segment.ErrSize},
		"half a page":            {sealed(size-1, fixed), size - 1, segment.PeersWrite, true, segment.ErrSize},
		"no size":                {sealed(0, fixed), 0, segment.PeersWrite, true, segment.ErrSize},
		"more than addresses":    {sealed(size, fixed), 1 << 63, segment.PeersWrite, true, segment.ErrSize},
		"more than memory":       {sealed(1<<55, fixed), 1 << 55, segment.PeersWrite, true, syscall.ENOMEM},
		"a file":                 {file(ordinary, os.O_RDWR), size, segment.PeersWrite, false, segment.ErrSeals},
		"a device":               {file("/dev/zero", os.O_RDWR), size, segment.PeersWrite, false, segment.ErrSeals},
		"a directory":            {file("/proc", os.O_RDONLY), size, segment.PeersWrite, true, segment.ErrSeals},
		"a closed file":          {closed(file("/dev/null", os.O_RDONLY)), size, segment.PeersWrite, true, memmgr.ErrClosed},
		"no file":                {func(*testing.T) *os.File { return nil }, size, segment.PeersWrite, true, memmgr.ErrRequest},
		"a pipe":                 {pipe, size, segment.PeersWrite, true, segment.ErrSeals},
		"a path":                 {file(ordinary, 0x200000), size, segment.PeersWrite, true, segment.ErrSeals}, // O_PATH
		"a descriptor to read":   {readable(sealed(size, fixed)), size, segment.PeersWrite, true, nil},
		"a descriptor, to write": {readable(sealed(size, fixed)), size, segment.PeersWrite, false, syscall.EACCES},
		"huge pages":             {hugePages, 2 << 20, segment.PeersWrite, true, segment.ErrSeals}, // may be missing at the first access
	} {
		t.Run(name, func(t *testing.T) {
			nothingStays(t)
			m, err := segment.Map(segment.Attachment{File: c.file(t), Size: c.size, Audience: c.audience, ReadOnly: c.readOnly})
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, make([]byte, c.size), bytesOf(m))
				require.NoError(t, m.Close())
				return
			}
			require.ErrorIs(t, err, c.want)
			op := testenv.As[*segment.OpError](t, err)
			require.Equal(t, "Map", op.Op)
		})
	}
}

func hugePages(t *testing.T) *os.File { return memoryFile(t, 2<<20, 1|2|4, 4) } // MFD_HUGETLB

func closed(f func(*testing.T) *os.File) func(*testing.T) *os.File {
	return func(t *testing.T) *os.File {
		file := f(t)
		file.Close()
		return file
	}
}

// readable opens a file again for reading.
func readable(f func(*testing.T) *os.File) func(*testing.T) *os.File {
	return func(t *testing.T) *os.File {
		again := testenv.Must(os.Open(filepath.Join("/proc/self/fd", fdText(f(t)))))(t)
		t.Cleanup(func() { again.Close() })
		return again
	}
}

func pipe(t *testing.T) *os.File {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return r
}

func TestNoAudience(t *testing.T) {
	for _, a := range []segment.Audience{0, 3, 255} {
		_, err := segment.NewHost(a)
		require.ErrorIs(t, err, segment.ErrAudience)
		require.Contains(t, err.Error(), a.String())
	}
}

// Faults that affect the whole process are injected in a child process.
func init() {
	for name, fault := range map[string]func(t faultTest){
		"no descriptors": noDescriptors,
		"no addresses":   noAddresses,
		"a file limit":   fileLimit,
	} {
		faults[name] = fault
	}
	for name, fault := range faults {
		peers["fault: "+name] = func(talk) { inFaultTest(fault) }
	}
}

// faults are scenarios that run in a child process of their own.
var faults = map[string]func(faultTest){}

// faultTest is the part of testing.T that require needs, outside of a test.
type faultTest struct{ testing.TB }

func (faultTest) Helper()                      {}
func (faultTest) Errorf(f string, a ...any)    { talk{}.say(f, a...) }
func (faultTest) FailNow()                     { os.Exit(1) }
func (faultTest) Logf(f string, a ...any)      { talk{}.say(f, a...) }
func (faultTest) Name() string                 { return "fault" }
func (t faultTest) unsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func inFaultTest(f func(faultTest)) {
	t := faultTest{}
	before := holding(t)
	f(t)
	memmgr.Flush()
	require.Equal(t, before, holding(t))
	t.Logf("done")
}

func TestFaults(t *testing.T) {
	for name := range faults {
		t.Run(name, func(t *testing.T) {
			p := startPeer(t, "fault: "+name)
			for p.out.Scan() {
				if line := p.out.Text(); line == "done" {
					require.NoError(t, p.end())
					return
				} else if len(line) > 6 && line[:6] == "cannot" {
					_ = p.end()
					t.Skip(line)
				} else {
					t.Log(line)
				}
			}
			t.Fatalf("the fault test failed: %v", p.end())
		})
	}
}

// refused checks that an allocation fails for a reason and leaves nothing behind.
func refused(t faultTest, r memmgr.Resource, size uintptr, reasons ...error) {
	before := holding(t)
	_, err := r.Allocate(memmgr.Request{Size: size})
	for _, reason := range reasons {
		require.ErrorIs(t, err, reason)
	}
	testenv.As[*segment.OpError](t, err)
	require.Equal(t, before, holding(t))
}

func hostOf(t faultTest, a segment.Audience) *segment.Resource {
	return testenv.Must(segment.NewHost(a))(t)
}

func limit(t faultTest, what int, n uint64) (back func()) {
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(what, &was))
	require.NoError(t, syscall.Setrlimit(what, &syscall.Rlimit{Cur: n, Max: was.Max}))
	return func() { require.NoError(t, syscall.Setrlimit(what, &was)) }
}

func noDescriptors(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 1}))(t)
	s, _, _ := segment.Find(b.Address, 1)
	p := memmgr.NewPool(r)
	back := limit(t, syscall.RLIMIT_NOFILE, 3)
	_, full := syscall.Dup(0)
	_, err := s.File()
	_, again := r.Allocate(memmgr.Request{Size: 100})
	_, pooled := p.Allocate(memmgr.Request{Size: 100})
	_, fresh := segment.NewHost(segment.PeersWrite)
	back()
	require.ErrorIs(t, full, syscall.EMFILE)
	require.ErrorIs(t, err, syscall.EMFILE)
	require.ErrorIs(t, again, memmgr.ErrOutOfMemory)
	require.ErrorIs(t, pooled, memmgr.ErrOutOfMemory)
	require.ErrorIs(t, fresh, syscall.EMFILE)
	r.Free(b)
	b = testenv.Must(p.Allocate(memmgr.Request{Size: 100}))(t)
	p.Free(b)
	require.NoError(t, p.Close())
}

// mapped returns the number of mapped bytes of this process.
func mapped(t faultTest) uint64 {
	text := testenv.Must(os.ReadFile("/proc/self/statm"))(t)
	var pages uint64
	require.NoError(t, testenv.ErrorOf(fmt.Sscan(string(text), &pages)))
	return pages * uint64(os.Getpagesize())
}

func noAddresses(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 1 << 20}))(t)
	// The limit is above the existing mappings, which are many TiB under a sanitizer and still grow.
	back := limit(t, syscall.RLIMIT_AS, mapped(t)+1<<40)
	refused(t, r, 2<<40, memmgr.ErrOutOfMemory, syscall.ENOMEM)
	back()
	r.Free(b)
}

// fileLimit checks that a segment larger than RLIMIT_FSIZE is refused. Creating it would end the process by SIGXFSZ.
func fileLimit(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	back := limit(t, 1, 1<<20) // RLIMIT_FSIZE
	refused(t, r, 2<<20, memmgr.ErrOutOfMemory, syscall.EFBIG)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 1 << 20}))(t)
	r.Free(b)
	back()
}
