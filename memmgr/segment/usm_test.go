//go:build cgo && linux

package segment_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

var kinds = []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost}

// onOpenCLCPU opens a runtime whose default device's memory can be shared, or skips the test.
func onOpenCLCPU(t testing.TB) *syclobj.Runtime {
	t.Helper()
	rt := testenv.Opened(syclobj.Open())(t)
	if !rt.HasSYCL() {
		testenv.Missing(t, rt.SYCLError(), testenv.SYCL)
	}
	if info := rt.DefaultDevice().Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		t.Skipf("the default device %s is not an OpenCL CPU device", info.Name)
	}
	return rt
}

func newUSM(t testing.TB, q *syclobj.Queue, kind syclobj.USMKind, a segment.Audience) *segment.Resource {
	return testenv.Opened(segment.NewUSM(q, kind, a))(t)
}

func TestUSMResource(t *testing.T) {
	for _, kind := range kinds {
		for _, a := range []segment.Audience{segment.PeersWrite, segment.PeersRead} {
			t.Run(kind.String()+", "+a.String(), func(t *testing.T) {
				nothingStays(t)
				rt := onOpenCLCPU(t)
				memtest.Run(t, func(t testing.TB) memmgr.Resource { return newUSM(t, rt.DefaultQueue(), kind, a) }, memtest.Options{MaxAlign: 4096})
			})
		}
		t.Run("a pool over "+kind.String(), func(t *testing.T) {
			nothingStays(t)
			rt := onOpenCLCPU(t)
			memtest.Run(t, func(t testing.TB) memmgr.Resource {
				return newPool(t, newUSM(t, rt.DefaultQueue(), kind, segment.PeersWrite))
			}, memtest.Options{})
		})
	}
}

// Small and large segments stay USM of their kind to the last byte.
func TestSegmentsAreUSM(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			nothingStays(t)
			rt := onOpenCLCPU(t)
			q := rt.DefaultQueue()
			r := newUSM(t, q, kind, segment.PeersRead)
			for _, size := range []uintptr{1, 4097, 1 << 20, 64 << 20, 1 << 30} {
				b := testenv.Must(memmgr.New(r, memmgr.Request{Size: size, Align: 64 << 10}))(t)
				require.Zero(t, b.Address()%(64<<10))
				s, offset, ok := segment.Find(b.Address(), b.Size())
				require.True(t, ok)
				require.Zero(t, offset)
				require.Same(t, b.Place(), s.Place())
				require.Equal(t, kind, s.Place().Kind())
				for _, at := range []uintptr{0, uintptr(s.Size()) / 2, uintptr(s.Size()) - 1} {
					found := testenv.Must(rt.PlaceOf(q.Context(), q, b.Address()+at, b.Address()+at+1))(t)
					require.Equal(t, kind, found.Kind())
					found.Release()
				}
				b.Release()
			}
		})
	}
}

// Two processes alternate: one uses a queue, the other plain memory.
func TestAnotherProcessAndUSM(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			nothingStays(t)
			rt := onOpenCLCPU(t)
			q := rt.DefaultQueue()
			p := newPool(t, newUSM(t, q, kind, segment.PeersWrite))
			b := heldBuffer(t, p, 4096)
			e := testenv.Must(q.Memset(b.Data(), 'q', 4096))(t)
			require.NoError(t, e.Wait(context.Background()))
			s, offset, f := fileOf(t, b)
			other := startPeer(t, "reader", f)
			require.Equal(t, "mapped", other.ask("%d %d false", s.Size(), s.Audience()))
			require.Equal(t, `"qqqq"`, other.ask("read %d 4", offset))
			require.Equal(t, "written", other.ask("write %d 8", offset))
			got := make([]byte, 9)
			require.NoError(t, q.Read(got, b.Data()))
			require.Equal(t, "peerpeerq", string(got))
			require.NoError(t, q.Write(b.Data(), []byte("again")))
			require.Equal(t, `"againeer"`, other.ask("read %d 8", offset))
			require.NoError(t, other.end())
		})
	}
}

func init() {
	peers["USM reader"] = func(t talk) {
		var a segment.Attachment
		var offset int
		fmt.Sscan(t.hear(), &a.Size, &a.Audience, &a.ReadOnly, &a.Kind, &offset)
		a.File = os.NewFile(3, "")
		rt, err := syclobj.Open()
		if err != nil {
			t.say("%v", err)
			return
		}
		a.Queue = rt.DefaultQueue()
		m, err := segment.Map(a)
		if err != nil {
			t.say("%v", err)
			return
		}
		at := unsafe.Add(m.Data(), offset)
		found, err := rt.PlaceOf(nil, a.Queue, uintptr(at), uintptr(at)+4096)
		if err != nil {
			t.say("%v", err)
			return
		}
		t.say("%v %v", found.Kind(), m.Place().Kind())
		got := make([]byte, 4)
		err = a.Queue.Read(got, at)
		t.say("%q %v", got, err)
		if !a.ReadOnly {
			t.say("%v", a.Queue.Write(at, []byte("here")))
		} else {
			t.say("%v", attempt(func() { *(*byte)(at) = 1 }))
		}
		found.Release()
		t.say("%v", m.Close())
		left, _ := segment.InUse()
		fresh, err := a.Queue.Alloc(a.Kind, 1<<20, 4096) // the runtime's memory is as it was
		if err == nil {
			err = a.Queue.Write(fresh, make([]byte, 1<<20))
		}
		t.say("%d left, %v", left, err)
	}
}

// The receiver has USM of its own context over the same pages, writable or read-only.
func TestTheReceiverHasUSM(t *testing.T) {
	for _, kind := range kinds {
		for _, a := range []segment.Audience{segment.PeersWrite, segment.PeersRead} {
			t.Run(kind.String()+", "+a.String(), func(t *testing.T) {
				nothingStays(t)
				rt := onOpenCLCPU(t)
				q := rt.DefaultQueue()
				b := heldBuffer(t, newUSM(t, q, syclobj.USMShared, a), 3<<20)
				require.NoError(t, q.Write(b.Data(), []byte("from")))
				s, offset, f := fileOf(t, b)
				other := startPeer(t, "USM reader", f)
				require.Equal(t, fmt.Sprintf("%v %v", kind, kind),
					other.ask("%d %d %t %d %d", s.Size(), s.Audience(), a == segment.PeersRead, kind, offset))
				require.Equal(t, `"from" <nil>`, other.hear())
				got := make([]byte, 4)
				if a == segment.PeersRead {
					require.Contains(t, other.hear(), "fault")
					require.NoError(t, q.Read(got, b.Data()))
					require.Equal(t, "from", string(got))
				} else {
					require.Equal(t, "<nil>", other.hear())
					require.NoError(t, q.Read(got, b.Data()))
					require.Equal(t, "here", string(got))
				}
				require.Equal(t, "<nil>", other.hear())
				require.Equal(t, "0 left, <nil>", other.hear())
				require.NoError(t, other.end())
			})
		}
	}
}

func TestIdlePagesOfSharedUSMGoBack(t *testing.T) {
	nothingStays(t)
	rt := onOpenCLCPU(t)
	p := newPool(t, newUSM(t, rt.DefaultQueue(), syclobj.USMDevice, segment.PeersWrite), memmgr.WithDecay(0), memmgr.WithSegment(16<<20))
	kept, b := newBuffer(t, p, 100<<10), newBuffer(t, p, 10<<20)
	defer kept.Release()
	data := bytes.Repeat([]byte("a page of memory"), 10<<16)
	require.NoError(t, memmgr.CopyIn(kept, 0, data[:100<<10]))
	require.NoError(t, memmgr.CopyIn(b, 0, data))
	b.Release()
	require.GreaterOrEqual(t, p.Trim(0), uint64(9<<20))
	got := make([]byte, 100<<10)
	require.NoError(t, memmgr.CopyOut(kept, 0, got))
	require.True(t, bytes.Equal(data[:100<<10], got))
}

// BenchmarkFirstAttachOfUSM is [BenchmarkFirstAttach] with USM on both sides.
func BenchmarkFirstAttachOfUSM(b *testing.B) {
	const size = 1 << 30
	q := onOpenCLCPU(b).DefaultQueue()
	buffer := heldBuffer(b, newUSM(b, q, syclobj.USMDevice, segment.PeersWrite), size)
	require.NoError(b, q.Write(buffer.Data(), make([]byte, size)))
	s, _, f := fileOf(b, buffer)
	a := attachment(s, f)
	a.Queue, a.Kind = q, syclobj.USMShared
	benchmarkAttach(b, s, f, a)
}

// Thousands of small segments are USM at the same time, within the limit of mappings.
func TestManySegmentsInUSM(t *testing.T) {
	nothingStays(t)
	rt := onOpenCLCPU(t)
	const n = 3000
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if files.Cur < n+200 {
		t.Skipf("no more than %d files may be open", files.Cur)
	}
	r := newUSM(t, rt.DefaultQueue(), syclobj.USMShared, segment.PeersWrite)
	mappings, _ := segment.InUse()
	defer segment.SetLimits(mappings+2*n, 1<<20)()
	var held []memmgr.Block
	for range n {
		b := testenv.Must(r.Allocate(memmgr.Request{Size: 1}))(t)
		held = append(held, b)
	}
	require.ErrorIs(t, testenv.ErrorOf(r.Allocate(memmgr.Request{Size: 1})), segment.ErrLimit)
	for i, b := range held {
		_, offset, ok := segment.Find(b.Address+uintptr(i), 1)
		require.True(t, ok)
		require.EqualValues(t, i, offset)
		r.Free(b)
	}
}

func TestOpenAndCloseOfUSMIsFlat(t *testing.T) {
	q := onOpenCLCPU(t).DefaultQueue()
	openAndClose(t, newUSM(t, q, syclobj.USMShared, segment.PeersWrite), q)
}

// TestUSMThatCannotBeFreedIsLost checks that USM whose own pages cannot be restored is not freed, and is reported.
func TestUSMThatCannotBeFreedIsLost(t *testing.T) {
	onOpenCLCPU(t)
	p := startPeer(t, "lost USM")
	defer func() { _ = p.end() }()
	line := p.hear()
	if len(line) > 6 && line[:6] == "cannot" {
		t.Skip(line)
	}
	require.Equal(t, "done", line)
}

// TestFakeMemoryCannotBeShared checks that the trial reports a device whose USM is not memory of the process, and
// leaves nothing allocated.
func TestFakeMemoryCannotBeShared(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(fake *sycltest.Fake) {
		nothingStays(t)
		rt := testenv.Opened(syclobj.Open())(t)
		for filter, reason := range map[string]string{
			"level_zero:gpu:0": "only that of an OpenCL CPU device is",
			"opencl:cpu:0":     "have different bytes",
		} {
			d := testenv.Must(rt.Device(filter))(t)
			q := testenv.Must(rt.NewQueue(nil, d, syclobj.OutOfOrder))(t)
			var err error
			for range 2 {
				live := fake.Live().Allocations
				testenv.Failed(t, testenv.ErrorOf(segment.NewUSM(q, syclobj.USMShared, segment.PeersWrite)), errors.ErrUnsupported, reason)
				require.Equal(t, live, fake.Live().Allocations)
			}
			_, err = segment.Map(segment.Attachment{File: memoryFile(t, 4096, 7, 0), Size: 4096, Audience: segment.PeersWrite, Queue: q, Kind: syclobj.USMShared})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.NoError(t, q.Close())
		}
	})
}

// TestFakeTrialIsMadeOnce checks that a trial is repeated only if it failed for lack of resources.
func TestFakeTrialIsMadeOnce(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(fake *sycltest.Fake) {
		nothingStays(t)
		rt := testenv.Opened(syclobj.Open())(t)
		q := rt.DefaultQueue()
		fake.Fail("DPCTLaligned_alloc_shared", 1)
		_, err := segment.NewUSM(q, syclobj.USMShared, segment.PeersWrite)
		require.Error(t, err)
		require.NotErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
		for range 3 {
			require.ErrorIs(t, testenv.ErrorOf(segment.NewUSM(q, syclobj.USMShared, segment.PeersWrite)), errors.ErrUnsupported)
		}
		require.Equal(t, 2, fake.Calls("DPCTLaligned_alloc_shared"))
		require.ErrorIs(t, testenv.ErrorOf(segment.NewUSM(q, syclobj.USMDevice, segment.PeersWrite)), errors.ErrUnsupported)
		require.Equal(t, 1, fake.Calls("DPCTLaligned_alloc_device"))
	})
}

func TestUSMOfNoQueue(t *testing.T) {
	require.ErrorIs(t, testenv.ErrorOf(segment.NewUSM(nil, syclobj.USMShared, segment.PeersWrite)), memmgr.ErrRequest)
	rt := testenv.Must(syclobj.Open(syclobj.HostOnly()))(t)
	r := testenv.Must(segment.NewUSM(rt.HostQueue(), syclobj.USMShared, segment.PeersRead))(t)
	require.True(t, r.Place().IsHost())
	require.Equal(t, segment.PeersRead, r.Audience())
	require.NoError(t, r.Close())
	require.ErrorIs(t, testenv.ErrorOf(segment.NewUSM(rt.HostQueue(), syclobj.USMShared, 0)), segment.ErrAudience)
}
