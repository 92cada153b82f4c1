package memmgr_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Every resource passes the same suite, alone and stacked.
func TestEveryResource(t *testing.T) {
	simulated := func(testing.TB) memmgr.Resource { return memtest.NewSimulated() }
	host := func(testing.TB) memmgr.Resource { return memmgr.Host() }
	pool := func(t testing.TB) memmgr.Resource { return newHostPool(t) }
	for _, c := range []struct {
		name        string
		make        func(testing.TB) memmgr.Resource
		addressOnly bool
	}{
		{"Simulated", simulated, true},
		{"Limit", func(t testing.TB) memmgr.Resource { return memmgr.NewLimit(host(t), 1<<30) }, false},
		{"Record", func(t testing.TB) memmgr.Resource { return memmgr.NewRecord(host(t), io.Discard) }, false},
		{"Poison", func(t testing.TB) memmgr.Resource { return memmgr.NewPoison(host(t)) }, false},
		{"PoisonOverSimulated", func(t testing.TB) memmgr.Resource { return memmgr.NewPoison(simulated(t)) }, true},
		{"PoolOverSimulated", func(t testing.TB) memmgr.Resource {
			p := memmgr.NewPool(simulated(t))
			t.Cleanup(func() { require.NoError(t, p.Close()) })
			return p
		}, true},
		{"PoolOverEverything", func(t testing.TB) memmgr.Resource {
			p := memmgr.NewPool(memmgr.NewRecord(memmgr.NewLimit(memmgr.NewPoison(host(t)), 1<<30), io.Discard),
				memmgr.WithTrace(100), memmgr.WithCache(1<<20))
			t.Cleanup(func() { require.NoError(t, p.Close()) })
			return p
		}, false},
		{"EverythingOverPool", func(t testing.TB) memmgr.Resource {
			return memmgr.NewRecord(memmgr.NewPoison(memmgr.NewLimit(pool(t), 1<<30)), io.Discard)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			memtest.Run(t, c.make, memtest.Options{AddressOnly: c.addressOnly})
		})
	}
}

func TestLimitRefusesWithTheWholeAccount(t *testing.T) {
	l := memmgr.NewLimit(memmgr.Host(), 10000)
	a, err := memmgr.New(l, memmgr.Request{Size: 6000})
	require.NoError(t, err)
	_, err = memmgr.New(l, memmgr.Request{Size: 6000, Tag: "second"})
	var oom *memmgr.OutOfMemoryError
	require.ErrorAs(t, err, &oom)
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	require.EqualValues(t, 10000, oom.Limit)
	require.EqualValues(t, 6000, oom.Allocated)
	for _, part := range []string{"5.859 KiB", "second", "limit"} {
		require.Contains(t, err.Error(), part)
	}
	a.Release()
	require.Zero(t, l.Used())
}

// panicText returns the value that f panics with, as text.
func panicText(f func()) (text string) {
	defer func() {
		switch v := recover().(type) {
		case string:
			text = v
		case error:
			text = v.Error()
		}
	}()
	f()
	return ""
}

func TestPoisonFindsWritesOutsideTheBlock(t *testing.T) {
	for _, offset := range []int{-1, 100, 355, -256} {
		p := memmgr.NewPoison(memmgr.Host())
		b, err := p.Allocate(memmgr.Request{Size: 100, Align: 512})
		require.NoError(t, err)
		at := (*byte)(pointerTo(b.Address, offset))
		before := *at
		*at = 1
		message := panicText(func() { p.Free(b) })
		require.Contains(t, message, "was written", "offset %d", offset)
		*at = before
		p.Free(b)
	}
	p := memmgr.NewPoison(memmgr.Host())
	b, err := memmgr.New(p, memmgr.Request{Size: 100})
	require.NoError(t, err)
	raw, err := b.Bytes()
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{0xAA}, 100), raw)
	b.Release()
}

func pointerTo(address uintptr, offset int) unsafe.Pointer {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	return unsafe.Add(p, offset)
}

func TestRecordAndReplay(t *testing.T) {
	var log bytes.Buffer
	r := memmgr.NewRecord(memtest.NewSimulated(memtest.Capacity(1<<20)), &log)
	a, err := memmgr.New(r, memmgr.Request{Size: 1000})
	require.NoError(t, err)
	_, err = memmgr.New(r, memmgr.Request{Size: 2 << 20})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	b, err := memmgr.New(r, memmgr.Request{Size: 2000})
	require.NoError(t, err)
	a.Release()
	require.NoError(t, r.Flush())
	require.True(t, strings.HasPrefix(log.String(), "Thread,Time,Action,Pointer,Size,Stream\n0,"))
	events, err := memtest.ReadLog(bytes.NewReader(log.Bytes()))
	require.NoError(t, err)
	require.Len(t, events, 4)
	sim := memtest.NewSimulated()
	result := memtest.Replay(sim, events)
	require.Equal(t, 2, result.Allocations)
	require.Equal(t, 1, result.Frees)
	require.EqualValues(t, 3000, result.PeakRequested)
	blocks, _ := sim.InUse()
	require.Zero(t, blocks)
	b.Release()
}

func TestReadLogRefusesNonsense(t *testing.T) {
	const header = "Thread,Time,Action,Pointer,Size,Stream\n"
	for text, wants := range map[string]string{
		"":                                 "header",
		"a,b\n":                            "fields",
		"A,B,C,D,E,F\n":                    "columns",
		header + "1,2,jump,0x1,1,0\n":      "jump",
		header + "1,2,allocate,x,1,0\n":    "pointer",
		header + "1,2,allocate,0x1,-1,0\n": "size",
		header + "1,2,allocate,0x1,1,q\n":  "stream",
	} {
		_, err := memtest.ReadLog(strings.NewReader(text))
		require.ErrorContains(t, err, wants, "%q", text)
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add("Thread,Time,Action,Pointer,Size,Stream\n1,10:11:12.000001,allocate,0x7f,64,0x0\n1,10:11:12.000002,deallocate,0x7f,64,0x0\n")
	f.Fuzz(func(t *testing.T, text string) {
		events, err := memtest.ReadLog(strings.NewReader(text))
		if err != nil || len(events) > 1000 {
			return
		}
		sim := memtest.NewSimulated(memtest.Capacity(1 << 40))
		memtest.Replay(sim, events)
		blocks, _ := sim.InUse()
		require.Zero(t, blocks)
	})
}

func TestAbilitiesAreFoundThroughWrappers(t *testing.T) {
	p := newHostPool(t)
	r := memmgr.NewRecord(memmgr.NewLimit(p, 1<<20), io.Discard)
	trimmer, ok := memmgr.As[memmgr.Trimmer](r)
	require.True(t, ok)
	require.Same(t, p, trimmer.(*memmgr.Pool))
	_, ok = memmgr.As[*memmgr.Tenant](r)
	require.False(t, ok)
}
