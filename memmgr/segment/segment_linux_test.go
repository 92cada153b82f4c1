package segment_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

func newHost(t testing.TB, a segment.Audience) *segment.Resource {
	return testenv.Opened(segment.NewHost(a))(t)
}

// newPool returns a pool that is closed at the end of the test.
func newPool(t testing.TB, r memmgr.Resource, options ...memmgr.PoolOption) *memmgr.Pool {
	p := memmgr.NewPool(r, options...)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// heldBuffer returns a buffer that is released at the end of the test.
func heldBuffer(t testing.TB, r memmgr.Resource, size uintptr) memmgr.Buffer {
	return testenv.Held(memmgr.New(r, memmgr.Request{Size: size}))(t)
}

func newBuffer(t testing.TB, r memmgr.Resource, size uintptr) memmgr.Buffer {
	return testenv.Must(memmgr.New(r, memmgr.Request{Size: size}))(t)
}

// fileOf returns a descriptor of the segment of a buffer, closed with the test.
func fileOf(t testing.TB, b memmgr.Buffer) (s segment.Segment, offset uint64, f *os.File) {
	s, offset, ok := segment.Find(b.Address(), b.Size())
	require.True(t, ok)
	f = testenv.Must(s.File())(t)
	t.Cleanup(func() { f.Close() })
	return s, offset, f
}

func attachment(s segment.Segment, f *os.File) segment.Attachment {
	return segment.Attachment{File: f, Size: s.Size(), Audience: s.Audience(), ReadOnly: s.Audience() == segment.PeersRead}
}

func bytesOf(m *segment.Mapping) []byte { return unsafe.Slice((*byte)(m.Data()), m.Size()) }

func TestResource(t *testing.T) {
	for _, a := range []segment.Audience{segment.PeersWrite, segment.PeersRead} {
		t.Run(a.String(), func(t *testing.T) {
			nothingStays(t)
			memtest.Run(t, func(t testing.TB) memmgr.Resource { return newHost(t, a) }, memtest.Options{})
		})
		t.Run("a pool over "+a.String(), func(t *testing.T) {
			nothingStays(t)
			memtest.Run(t, func(t testing.TB) memmgr.Resource { return newPool(t, newHost(t, a)) }, memtest.Options{})
		})
	}
}

func TestSegmentIsFound(t *testing.T) {
	nothingStays(t)
	p := newPool(t, newHost(t, segment.PeersWrite), memmgr.WithSegment(4<<20))
	b, other := newBuffer(t, p, 100000), newBuffer(t, p, 100)
	defer b.Release()
	defer other.Release()
	s, offset, ok := segment.Find(b.Address(), b.Size())
	require.True(t, ok)
	require.GreaterOrEqual(t, s.Size(), uint64(4<<20))
	require.Equal(t, segment.PeersWrite, s.Audience())
	require.Same(t, b.Place(), s.Place())
	require.NotZero(t, s.ID())
	require.Len(t, s.ID().String(), 32)

	same, there, ok := segment.Find(other.Address(), other.Size())
	require.True(t, ok)
	require.Equal(t, s, same)
	require.EqualValues(t, int64(other.Address())-int64(b.Address()), int64(there)-int64(offset))

	start := b.Address() - uintptr(offset)
	_, _, ok = segment.Find(start, s.Size())
	require.True(t, ok)
	for name, wrong := range map[string]struct {
		address uintptr
		size    uint64
	}{
		"before": {start - 1, 1}, "behind": {start + uintptr(s.Size()), 0}, "beyond": {start, s.Size() + 1},
		"around": {start + 1, ^uint64(0)}, "nil": {0, 0},
	} {
		_, _, ok := segment.Find(wrong.address, wrong.size)
		require.False(t, ok, name)
	}
}

func TestSegmentThatIsGone(t *testing.T) {
	nothingStays(t)
	r := newHost(t, segment.PeersWrite)
	b := newBuffer(t, r, 5000)
	address := b.Address()
	s, _, f := fileOf(t, b)
	b.Release()
	_, _, ok := segment.Find(address, 1)
	require.False(t, ok)
	require.ErrorIs(t, testenv.ErrorOf(s.File()), memmgr.ErrClosed)
	require.EqualValues(t, 8192, s.Size())

	m, err := segment.Map(attachment(s, f)) // a descriptor is sufficient to map the memory
	require.NoError(t, err)
	require.Equal(t, make([]byte, 8192), bytesOf(m))
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	require.NoError(t, f.Close())

	var none segment.Segment
	require.ErrorIs(t, testenv.ErrorOf(none.File()), memmgr.ErrClosed)
	require.Zero(t, none.Size())
	require.Zero(t, none.ID())
	require.Zero(t, none.Audience())
	require.Nil(t, none.Place())
}

func TestWrongFreePanics(t *testing.T) {
	nothingStays(t)
	r, other := newHost(t, segment.PeersWrite), newHost(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 10}))(t)
	wrong := func(r *segment.Resource, b memmgr.Block) {
		defer func() {
			err, ok := recover().(*memmgr.UseError)
			require.True(t, ok)
			require.ErrorIs(t, err, memmgr.ErrReleased)
		}()
		r.Free(b)
	}
	wrong(other, b)
	wrong(r, memmgr.Block{Address: b.Address + 1})
	r.Free(b)
	wrong(r, b)
}

func TestClosedResource(t *testing.T) {
	nothingStays(t)
	r := newHost(t, segment.PeersWrite)
	b := newBuffer(t, r, 10)
	require.NoError(t, r.Close())
	require.ErrorIs(t, testenv.ErrorOf(r.Allocate(memmgr.Request{Size: 10})), memmgr.ErrClosed)
	require.NoError(t, memmgr.CopyIn(b, 0, []byte("still here")))
	b.Release()
}

// peers are the roles of other processes in these tests.
var peers = map[string]func(talk){
	"reader": func(t talk) {
		var a segment.Attachment
		fmt.Sscan(t.hear(), &a.Size, &a.Audience, &a.ReadOnly)
		a.File = os.NewFile(3, "")
		m, err := segment.Map(a)
		if err != nil {
			t.say("%v", err)
			return
		}
		a.File.Close()
		t.say("mapped")
		for {
			var do string
			var offset, n int
			fmt.Sscan(t.hear(), &do, &offset, &n)
			switch b := bytesOf(m)[offset:][:n]; do {
			case "read":
				t.say("%q", b)
			case "write":
				copy(b, strings.Repeat("peer", n))
				t.say("written")
			case "try":
				t.say("%v", attempt(func() { b[0]++ }))
			case "all":
				readPages(b)
				t.say("read")
			}
		}
	},
	"violator": func(t talk) {
		fd := 3
		var size int
		fmt.Sscan(t.hear(), &size)
		_, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		t.say("mmap: %v", err)
		_, err = syscall.Pwrite(fd, []byte("x"), 0)
		t.say("write: %v", err)
		t.say("shrink: %v", syscall.Ftruncate(fd, 0))
		t.say("grow: %v", syscall.Ftruncate(fd, int64(2*size)))
		t.say("punch: %v", syscall.Fallocate(fd, 3, 0, 4096))
		_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), 1033, 8)
		t.say("seal: %v", errno)
		again, err := syscall.Open(fmt.Sprintf("/proc/self/fd/%d", fd), syscall.O_RDWR, 0)
		if err == nil {
			_, err = syscall.Pwrite(again, []byte("x"), 0)
		}
		t.say("open again: %v", err)
		seen, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
		t.say("read: %v", err)
		t.say("protect: %v", syscall.Mprotect(seen, syscall.PROT_READ|syscall.PROT_WRITE))
	},
	"exporter": func(t talk) {
		r, err := segment.NewHost(segment.PeersRead)
		if err != nil {
			t.say("%v", err)
			return
		}
		b, err := memmgr.New(r, memmgr.Request{Size: 1 << 20})
		if err != nil {
			t.say("%v", err)
			return
		}
		_ = memmgr.CopyIn(b, 0, bytes.Repeat([]byte("last will"), 1000))
		s, _, _ := segment.Find(b.Address(), b.Size())
		f, err := s.File()
		if err == nil {
			err = syscall.Sendmsg(3, nil, syscall.UnixRights(int(f.Fd())), nil, 0)
		}
		t.say("%v", err)
	},
}

// attempt reports whether an access faults.
func attempt(f func()) (err error) {
	debug.SetPanicOnFault(true)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("fault: %v", r)
		}
	}()
	f()
	return nil
}

func TestAnotherProcessWrites(t *testing.T) {
	nothingStays(t)
	p := newPool(t, newHost(t, segment.PeersWrite))
	b := heldBuffer(t, p, 1000)
	require.NoError(t, memmgr.CopyIn(b, 0, []byte("from here")))
	s, offset, f := fileOf(t, b)
	other := startPeer(t, "reader", f)
	require.Equal(t, "mapped", other.ask("%d %d false", s.Size(), s.Audience()))
	require.Equal(t, `"from here"`, other.ask("read %d 9", offset))
	require.Equal(t, "written", other.ask("write %d 8", offset+9))
	got := make([]byte, 17)
	require.NoError(t, memmgr.CopyOut(b, 0, got))
	require.Equal(t, "from herepeerpeer", string(got))
	require.NoError(t, memmgr.CopyIn(b, 0, []byte("there")))
	require.Equal(t, `"thereherep"`, other.ask("read %d 10", offset)[:10]+`p"`)
	require.NoError(t, other.end())
}

// A process that has one buffer can access its whole segment, and no other pool's.
func TestAnotherProcessSeesTheWholeSegment(t *testing.T) {
	nothingStays(t)
	p := newPool(t, newHost(t, segment.PeersRead))
	given := heldBuffer(t, p, 1000)
	s, _, f := fileOf(t, given)
	var at uint64
	for there := (segment.Segment{}); there != s; { // each processor has a segment of its own first
		beside := heldBuffer(t, p, 1000)
		require.NoError(t, memmgr.CopyIn(beside, 0, []byte("not given")))
		there, at, _ = fileOf(t, beside)
	}
	other := startPeer(t, "reader", f)
	require.Equal(t, "mapped", other.ask("%d %d true", s.Size(), s.Audience()))
	require.Equal(t, `"not given"`, other.ask("read %d 9", at))

	apart := newPool(t, newHost(t, segment.PeersRead))
	b := heldBuffer(t, apart, 1000)
	elsewhere, _, _ := fileOf(t, b)
	require.NotEqual(t, s.ID(), elsewhere.ID())
	require.NoError(t, other.end())
}

// A read-only view faults in a process that writes, and in no other process.
func TestAnotherProcessReads(t *testing.T) {
	for _, a := range []segment.Audience{segment.PeersWrite, segment.PeersRead} {
		t.Run(a.String(), func(t *testing.T) {
			nothingStays(t)
			b := heldBuffer(t, newHost(t, a), 1000)
			s, _, f := fileOf(t, b)
			other := startPeer(t, "reader", f)
			require.Equal(t, "mapped", other.ask("%d %d true", s.Size(), s.Audience()))
			require.NoError(t, memmgr.CopyIn(b, 0, []byte("written after it was sealed")))
			require.Equal(t, `"written after it was sealed"`, other.ask("read 0 27"))
			require.Contains(t, other.ask("try 0 1"), "fault")
			require.Equal(t, `"written after it was sealed"`, other.ask("read 0 27"))
			require.NoError(t, other.end())
		})
	}
}

func TestSealsHoldAgainstAPeer(t *testing.T) {
	const denied, allowed = "operation not permitted", "<nil>"
	for a, want := range map[segment.Audience]map[string]string{
		segment.PeersWrite: {"mmap": allowed, "write": allowed, "punch": allowed, "open again": allowed, "protect": allowed},
		segment.PeersRead:  {"mmap": denied, "write": denied, "punch": denied, "open again": denied, "protect": "permission denied"},
	} {
		t.Run(a.String(), func(t *testing.T) {
			nothingStays(t)
			b := heldBuffer(t, newHost(t, a), 1000)
			s, _, f := fileOf(t, b)
			other := startPeer(t, "violator", f)
			got := map[string]string{}
			for line := other.ask("%d", s.Size()); ; line = other.hear() {
				what, result, _ := strings.Cut(line, ": ")
				got[what] = result
				if what == "protect" {
					break
				}
			}
			for what, result := range want {
				require.Equal(t, result, got[what], what)
			}
			for _, what := range []string{"shrink", "grow", "seal"} {
				require.Equal(t, denied, got[what], what)
			}
			require.Equal(t, allowed, got["read"])
			require.NoError(t, other.end())
		})
	}
}

func TestMemoryOutlivesItsMaker(t *testing.T) {
	nothingStays(t)
	pair := testenv.Must(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0))(t)
	defer syscall.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	other := startPeer(t, "exporter", theirs)
	require.Equal(t, "<nil>", other.hear())
	theirs.Close()
	require.NoError(t, other.end())

	rights := make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := syscall.Recvmsg(pair[0], nil, rights, syscall.MSG_CMSG_CLOEXEC)
	require.NoError(t, err)
	messages := testenv.Must(syscall.ParseSocketControlMessage(rights[:n]))(t)
	fds := testenv.Must(syscall.ParseUnixRights(&messages[0]))(t)
	f := os.NewFile(uintptr(fds[0]), "segment")
	defer f.Close()
	m := testenv.Must(segment.Map(segment.Attachment{File: f, Size: 1 << 20, Audience: segment.PeersRead, ReadOnly: true}))(t)
	require.Equal(t, bytes.Repeat([]byte("last will"), 1000), bytesOf(m)[:9000])
	require.True(t, m.ReadOnly())
	require.True(t, m.Place().IsHost())
	require.NoError(t, m.Close())
}

// Received memory is marked as not for forked children ("dc"), that of the process
// itself is not.
func TestReceivedMappingsAreNotForked(t *testing.T) {
	nothingStays(t)
	b := heldBuffer(t, newHost(t, segment.PeersWrite), 4096)
	s, _, f := fileOf(t, b)
	m := testenv.Opened(segment.Map(attachment(s, f)))(t)
	require.Contains(t, mappingFlags(t, uintptr(m.Data())), " dc ")
	require.NotContains(t, mappingFlags(t, b.Address()), " dc ")
}

// mappingFlags returns the kernel's flags of the mapping at an address.
func mappingFlags(t *testing.T, address uintptr) string {
	text := testenv.Must(os.ReadFile("/proc/self/smaps"))(t)
	_, rest, ok := strings.Cut(string(text), fmt.Sprintf("\n%x-", address))
	require.True(t, ok)
	_, rest, ok = strings.Cut(rest, "VmFlags:")
	require.True(t, ok)
	flags, _, _ := strings.Cut(rest, "\n")
	return flags + " "
}

// Pages of idle memory are freed while their segment is in use, if peers may write.
func TestIdlePagesOfAPoolGoBack(t *testing.T) {
	for a, goes := range map[segment.Audience]bool{segment.PeersWrite: true, segment.PeersRead: false} {
		t.Run(a.String(), func(t *testing.T) {
			nothingStays(t)
			r := newHost(t, a)
			p := newPool(t, r, memmgr.WithDecay(0), memmgr.WithSegment(16<<20))
			kept, b := newBuffer(t, p, 100<<10), newBuffer(t, p, 10<<20)
			defer kept.Release()
			data := bytes.Repeat([]byte("a page of memory"), 10<<16)
			require.NoError(t, memmgr.CopyIn(kept, 0, data[:100<<10]))
			require.NoError(t, memmgr.CopyIn(b, 0, data))
			_, _, f := fileOf(t, kept)
			address := b.Address()
			b.Release()
			full := blocksOf(t, f)
			freed := p.Trim(0)
			if goes {
				require.GreaterOrEqual(t, freed, uint64(9<<20))
				require.LessOrEqual(t, blocksOf(t, f), full-9<<20)
			} else {
				require.Zero(t, freed)
				require.Equal(t, full, blocksOf(t, f))
				require.ErrorIs(t, r.Discard(address&^4095, 4096), errors.ErrUnsupported)
			}
			got := make([]byte, 100<<10)
			require.NoError(t, memmgr.CopyOut(kept, 0, got))
			require.True(t, bytes.Equal(data[:100<<10], got))
			again := newBuffer(t, p, 10<<20)
			require.NoError(t, memmgr.CopyIn(again, 0, data))
			again.Release()
		})
	}
	t.Run("where promises are kept", func(t *testing.T) {
		nothingStays(t)
		r := newHost(t, segment.PeersWrite)
		r.Populate()
		b := heldBuffer(t, r, 8<<20)
		_, _, f := fileOf(t, b)
		require.EqualValues(t, 8<<20, blocksOf(t, f))
		require.ErrorIs(t, r.Discard(b.Address(), 4096), errors.ErrUnsupported)
	})
	t.Run("of others", func(t *testing.T) {
		nothingStays(t)
		r := newHost(t, segment.PeersWrite)
		b := heldBuffer(t, newHost(t, segment.PeersWrite), 4096)
		require.ErrorIs(t, r.Discard(b.Address(), 4096), memmgr.ErrRequest)
	})
}

// blocksOf returns the number of resident bytes of a memory file.
func blocksOf(t *testing.T, f *os.File) int64 {
	var s syscall.Stat_t
	require.NoError(t, syscall.Fstat(int(f.Fd()), &s))
	return s.Blocks * 512
}

func TestBounds(t *testing.T) {
	nothingStays(t)
	mappings, descriptors := segment.InUse()
	for name, most := range map[string][2]int{"mappings": {mappings + 3, 1 << 20}, "descriptors": {1 << 20, descriptors + 3}} {
		t.Run(name, func(t *testing.T) {
			r := newHost(t, segment.PeersWrite)
			defer segment.SetLimits(most[0], most[1])()
			var held []memmgr.Buffer
			for range 3 {
				held = append(held, newBuffer(t, r, 1))
			}
			_, err := memmgr.New(r, memmgr.Request{Size: 1})
			require.ErrorIs(t, err, segment.ErrLimit)
			testenv.Failed(t, err, memmgr.ErrOutOfMemory, "of which half is used")
			if name == "mappings" {
				s, _, f := fileOf(t, held[0])
				require.ErrorIs(t, testenv.ErrorOf(segment.Map(attachment(s, f))), segment.ErrLimit)
			}
			for _, b := range held {
				b.Release()
			}
			newBuffer(t, r, 1).Release()
		})
	}
}

// Lookups find existing segments while other segments are added and removed.
func TestFindWhileSegmentsOpenAndClose(t *testing.T) {
	nothingStays(t)
	r := newHost(t, segment.PeersWrite)
	kept := heldBuffer(t, r, 3*4096)
	stop := make(chan struct{})
	var others, looks sync.WaitGroup
	for g := range 2 {
		others.Go(func() {
			for i := range 2000 {
				b, err := memmgr.New(r, memmgr.Request{Size: uintptr(1 + (i*g)%9000)})
				if err != nil {
					t.Error(err)
					return
				}
				s, offset, ok := segment.Find(b.Address(), b.Size())
				if f, err := s.File(); !ok || offset != 0 || err != nil {
					t.Errorf("%v %d %v", ok, offset, err)
				} else {
					f.Close()
				}
				b.Release()
			}
		})
		looks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, offset, ok := segment.Find(kept.Address()+4097, 4096); !ok || offset != 4097 {
					t.Errorf("%v %d", ok, offset)
					return
				}
			}
		})
	}
	others.Wait()
	close(stop)
	looks.Wait()
}

// manyRounds is the number of repetitions in tests for leaks.
const manyRounds = 2000

func TestOpenAndCloseIsFlat(t *testing.T) {
	openAndClose(t, newHost(t, segment.PeersWrite), nil)
}

// openAndClose maps segments of a resource, of the queue if there is one, many times. Nothing stays, and the mappings
// of the process do not become more.
func openAndClose(t *testing.T, r *segment.Resource, q *syclobj.Queue) {
	nothingStays(t)
	var before int
	for i := range manyRounds {
		b, err := r.Allocate(memmgr.Request{Size: 8192})
		if err != nil {
			t.Fatal(err)
		}
		s, _, _ := segment.Find(b.Address, 1)
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		a := attachment(s, f)
		a.Queue, a.Kind = q, syclobj.USMDevice
		m, err := segment.Map(a)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		m.Close()
		r.Free(b)
		if i == manyRounds/10 {
			before = mappings(t)
		}
	}
	// Mappings of the runtime, of Go and of new threads change, but do not grow with each round.
	require.LessOrEqual(t, mappings(t), before+200)
}

// mappings returns the number of mappings of the process.
func mappings(t testing.TB) int {
	text := testenv.Must(os.ReadFile("/proc/self/maps"))(t)
	return bytes.Count(text, []byte("\n"))
}

// proportional returns the share of a process in the segments that it maps, in bytes: a page that n processes map counts
// a n-th in each.
func proportional(t testing.TB, pid string) (bytes int) {
	text := testenv.Must(os.ReadFile("/proc/" + pid + "/smaps"))(t)
	ours := false
	for line := range strings.Lines(string(text)) {
		ours = ours || strings.Contains(line, "/memfd:usmbridge")
		var kib int
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); ours && n == 1 {
			bytes += kib << 10
			ours = false
		}
	}
	return bytes
}

// Memory that three processes share is resident once.
func TestThreeProcessesCountOnce(t *testing.T) {
	nothingStays(t)
	const size = 64 << 20
	b := heldBuffer(t, newHost(t, segment.PeersWrite), size)
	require.NoError(t, memmgr.CopyIn(b, 0, bytes.Repeat([]byte{1}, size)))
	s, _, f := fileOf(t, b)
	total := 0
	var others []*peer
	for range 2 {
		p := startPeer(t, "reader", f)
		require.Equal(t, "mapped", p.ask("%d %d true", s.Size(), s.Audience()))
		require.Equal(t, "read", p.ask("all 0 %d", size))
		others = append(others, p)
	}
	for _, pid := range []string{"self", strconv.Itoa(others[0].cmd.Process.Pid), strconv.Itoa(others[1].cmd.Process.Pid)} {
		share := proportional(t, pid)
		require.InEpsilon(t, size/3, share, 0.01, pid)
		total += share
	}
	require.InEpsilon(t, size, total, 0.01)
	for _, p := range others {
		require.NoError(t, p.end())
	}
}
