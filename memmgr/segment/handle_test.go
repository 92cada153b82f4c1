//go:build cgo && linux

package segment_test

import (
	"encoding/hex"
	"errors"
	"fmt"
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

// sharingGPU is a machine whose driver shares device memory of its first GPU by handles.
var sharingGPU = sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []sycltest.Device{
	{Type: syclobj.TypeGPU, Name: "Fake GPU A", Memory: 4 << 30, IPC: true},
	{Type: syclobj.TypeGPU, Name: "Fake GPU B", Memory: 4 << 30},
}}}

// onGPU runs f with the n-th GPU of a fake machine, and checks that nothing stays.
func onGPU(t *testing.T, n int, f func(*sycltest.Fake, *syclobj.Queue)) {
	sycltest.Child(t, sharingGPU, func(fake *sycltest.Fake) {
		rt := testenv.Opened(syclobj.Open())(t)
		q := gpu(t, rt, n)
		t.Cleanup(func() { require.NoError(t, q.Close()) })
		nothingStays(t)
		f(fake, q)
	})
}

func gpu(t testing.TB, rt *syclobj.Runtime, n int) *syclobj.Queue {
	d := testenv.Must(rt.Device(fmt.Sprintf("level_zero:gpu:%d", n)))(t)
	return testenv.Must(rt.NewQueue(nil, d, syclobj.OutOfOrder))(t)
}

func TestFakePoolOverHandles(t *testing.T) {
	onGPU(t, 0, func(fake *sycltest.Fake, q *syclobj.Queue) {
		memtest.Run(t, func(t testing.TB) memmgr.Resource {
			return newPool(t, newUSM(t, q, syclobj.USMDevice, segment.PeersWrite))
		}, memtest.Options{})
	})
}

// TestFakePaddedMemoryHasNoHandle: a handle lets peers access the driver's whole block, which must not share
// pages with other allocations.
func TestFakePaddedMemoryHasNoHandle(t *testing.T) {
	sycltest.Child(t, sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []sycltest.Device{
		{Type: syclobj.TypeGPU, Name: "Fake GPU A", Memory: 4 << 30, IPC: true, Align: 512},
	}}}, func(fake *sycltest.Fake) {
		rt := testenv.Must(syclobj.Open())(t)
		q := gpu(t, rt, 0)
		testenv.Failed(t, testenv.ErrorOf(segment.NewUSM(q, syclobj.USMDevice, segment.PeersWrite)), errors.ErrUnsupported, "does not align 2097152 bytes of")
		require.NoError(t, q.Close())
		require.NoError(t, rt.Close())
		require.Zero(t, fake.Used(0))
	})
}

func init() {
	peers["handle reader"] = func(k talk) {
		t := faultTest{}
		var a segment.Attachment
		var handle string
		var offset uintptr
		fmt.Sscan(k.hear(), &handle, &a.Size, &offset)
		a.Handle = testenv.Must(hex.DecodeString(handle))(t)
		rt := testenv.Must(syclobj.Open())(t)
		a.Queue, a.Kind, a.Audience = gpu(t, rt, 0), syclobj.USMDevice, segment.PeersWrite
		m := testenv.Must(segment.Map(a))(t)
		at := unsafe.Add(m.Data(), offset)
		got := make([]byte, 4)
		require.NoError(t, a.Queue.Read(got, at))
		k.say("%q of %v", got, m.Place())
		require.NoError(t, a.Queue.Write(at, []byte("peer")))
		k.say("written")
		if k.hear() != "close" {
			return
		}
		mappings, _ := segment.InUse()
		require.Equal(t, 1, mappings)
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
		mappings, _ = segment.InUse()
		require.Zero(t, mappings)
		require.NoError(t, a.Queue.Close())
		k.say("closed")
	}
}

func TestFakeHandleInAnotherProcess(t *testing.T) {
	onGPU(t, 0, func(fake *sycltest.Fake, q *syclobj.Queue) {
		r := newUSM(t, q, syclobj.USMDevice, segment.PeersWrite)
		p := newPool(t, r)
		b := heldBuffer(t, p, 1000)
		require.NoError(t, memmgr.CopyIn(b, 0, []byte("here")))
		s, offset, ok := segment.Find(b.Address(), b.Size())
		require.True(t, ok)
		require.Zero(t, s.Size()%(2<<20), "a peer sees whole pages")
		require.Zero(t, (b.Address()-uintptr(offset))%(2<<20))
		require.ErrorIs(t, testenv.ErrorOf(s.File()), errors.ErrUnsupported)
		require.ErrorIs(t, r.Discard(b.Address()&^4095, 4096), errors.ErrUnsupported)
		handle := testenv.Must(s.Handle())(t)
		require.Equal(t, handle, testenv.Must(s.Handle())(t))
		require.Equal(t, 2, fake.Calls("DPCTLIPCMem_GetHandle"), "the trial's, and one for the segment")

		other := startPeer(t, "handle reader")
		require.Equal(t, `"here" of device memory on level_zero:gpu:0`, other.ask("%x %d %d", handle, s.Size(), offset))
		require.Equal(t, "written", other.hear())
		got := make([]byte, 4)
		require.NoError(t, memmgr.CopyOut(b, 0, got))
		require.Equal(t, "peer", string(got))
		require.Equal(t, "closed", other.ask("close"))
		require.NoError(t, other.end())
	})
}

func TestFakeHandleFaults(t *testing.T) {
	onGPU(t, 0, func(fake *sycltest.Fake, q *syclobj.Queue) {
		fake.Fail("DPCTLIPCMem_GetHandle", 1) // at the trial
		testenv.Failed(t, testenv.ErrorOf(segment.NewUSM(q, syclobj.USMDevice, segment.PeersWrite)), errors.ErrUnsupported, "making a handle")
		require.Zero(t, fake.Live().Allocations)
	})
}

func TestFakeHandlesThatAreRefused(t *testing.T) {
	onGPU(t, 0, func(fake *sycltest.Fake, q *syclobj.Queue) {
		testenv.Failed(t, testenv.ErrorOf(segment.NewUSM(q, syclobj.USMDevice, segment.PeersRead)), errors.ErrUnsupported, "let peers write")
		_, err := segment.NewUSM(q, syclobj.USMShared, segment.PeersWrite)
		testenv.Failed(t, err, errors.ErrUnsupported, "only memory of kind device has handles")

		r := newUSM(t, q, syclobj.USMDevice, segment.PeersWrite)
		b := newBuffer(t, r, 100)
		s, _, _ := segment.Find(b.Address(), 1)
		fake.Fail("DPCTLIPCMem_GetHandle", 1)
		require.ErrorIs(t, testenv.ErrorOf(s.Handle()), syclobj.ErrFailed)
		handle := testenv.Must(s.Handle())(t)

		good := segment.Attachment{Handle: handle, Size: s.Size(), Audience: segment.PeersWrite, Queue: q, Kind: syclobj.USMDevice}
		for name, c := range map[string]struct {
			change func(*segment.Attachment)
			want   error
		}{
			"both":            {func(a *segment.Attachment) { a.File = memoryFile(t, 4096, 7, 0) }, memmgr.ErrRequest},
			"neither":         {func(a *segment.Attachment) { a.Handle = nil }, memmgr.ErrRequest},
			"an empty one":    {func(a *segment.Attachment) { a.Handle = []byte{} }, memmgr.ErrRequest},
			"a long one":      {func(a *segment.Attachment) { a.Handle = make([]byte, 5000) }, memmgr.ErrRequest},
			"a truncated one": {func(a *segment.Attachment) { a.Handle = a.Handle[:5] }, syclobj.ErrFailed},
			"a forged one":    {func(a *segment.Attachment) { a.Handle = make([]byte, len(a.Handle)) }, syclobj.ErrFailed},
			"too large":       {func(a *segment.Attachment) { a.Size *= 2 }, segment.ErrSize},
			"no size":         {func(a *segment.Attachment) { a.Size = 0 }, segment.ErrSize},
			"peers read":      {func(a *segment.Attachment) { a.Audience, a.ReadOnly = segment.PeersRead, true }, segment.ErrAudience},
			"no queue":        {func(a *segment.Attachment) { a.Queue = nil }, memmgr.ErrRequest},
			"another kind":    {func(a *segment.Attachment) { a.Kind = syclobj.USMShared }, memmgr.ErrRequest},
			"one byte less":   {func(a *segment.Attachment) { a.Handle = a.Handle[:len(a.Handle)-1] }, syclobj.ErrFailed},
		} {
			t.Run(name, func(t *testing.T) {
				nothingStays(t)
				live := fake.Live()
				a := good
				c.change(&a)
				_, err := segment.Map(a)
				require.ErrorIs(t, err, c.want)
				testenv.As[*segment.OpError](t, err)
				require.Equal(t, live, fake.Live())
			})
		}
		// With room for one mapping, a second one is refused.
		mappings, _ := segment.InUse()
		defer segment.SetLimits(mappings+1, 1<<20)()
		m := testenv.Must(segment.Map(good))(t)
		require.True(t, m.Place().Kind() == syclobj.USMDevice && !m.ReadOnly())
		require.ErrorIs(t, testenv.ErrorOf(segment.Map(good)), segment.ErrLimit)
		require.NoError(t, m.Close())

		b.Release()
		require.ErrorIs(t, testenv.ErrorOf(s.Handle()), memmgr.ErrClosed)
		require.ErrorIs(t, testenv.ErrorOf(segment.Segment{}.Handle()), memmgr.ErrClosed)
		host := heldBuffer(t, newHost(t, segment.PeersWrite), 1)
		s, _, _ = segment.Find(host.Address(), 1)
		require.ErrorIs(t, testenv.ErrorOf(s.Handle()), errors.ErrUnsupported)
	})
}

// TestFakeHandlesAreInspected checks that memory from a handle is checked before use: both ends, each 2 MiB between
// them, and the device. Refused memory is closed.
func TestFakeHandlesAreInspected(t *testing.T) {
	onGPU(t, 0, func(fake *sycltest.Fake, q *syclobj.Queue) {
		b := heldBuffer(t, newUSM(t, q, syclobj.USMDevice, segment.PeersWrite), 8<<20)
		s, _, _ := segment.Find(b.Address(), 1)
		require.EqualValues(t, 8<<20, s.Size())
		handle := testenv.Must(s.Handle())(t)
		a := segment.Attachment{Handle: handle, Size: s.Size(), Audience: segment.PeersWrite, Queue: q, Kind: syclobj.USMDevice}
		live := fake.Live()
		for n, want := range []error{syclobj.ErrNotUSM, segment.ErrSize, segment.ErrSize, segment.ErrSize, segment.ErrSize} {
			fake.Fail("DPCTLUSM_GetPointerType", n+1)
			require.ErrorIs(t, testenv.ErrorOf(segment.Map(a)), want, "check %d", n+1)
			require.Equal(t, live, fake.Live())
		}
		fake.Fail("DPCTLUSM_GetPointerDevice", 1)
		require.ErrorIs(t, testenv.ErrorOf(segment.Map(a)), syclobj.ErrNoDevice)
		require.Equal(t, live, fake.Live())
		m := testenv.Must(segment.Map(a))(t)
		require.NoError(t, m.Close())
	})
}

// TestFakeHandlesNeedTheAspect checks a device whose driver has no handles.
func TestFakeHandlesNeedTheAspect(t *testing.T) {
	onGPU(t, 1, func(fake *sycltest.Fake, q *syclobj.Queue) {
		_, err := segment.NewUSM(q, syclobj.USMDevice, segment.PeersWrite)
		testenv.Failed(t, err, errors.ErrUnsupported, "ext_oneapi_ipc_memory")
		require.ErrorContains(t, err, "only that of an OpenCL CPU device is")
		_, err = segment.Map(segment.Attachment{Handle: []byte("x"), Size: 4096, Audience: segment.PeersWrite, Queue: q, Kind: syclobj.USMDevice})
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// TestHandlesOfTheInstalledLibrary shows the error of the installed library if it has no handles.
func TestHandlesOfTheInstalledLibrary(t *testing.T) {
	rt := onOpenCLCPU(t)
	_, err := segment.Map(segment.Attachment{Handle: []byte("x"), Size: 4096, Audience: segment.PeersWrite,
		Queue: rt.DefaultQueue(), Kind: syclobj.USMDevice})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	t.Log(err)
}
