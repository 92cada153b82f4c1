package memmgr_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Invalid requests are refused whether or not the pool has a cached block.
func TestBadAlignmentIsRefusedColdAndWarm(t *testing.T) {
	_, p := simulatedPool(t)
	for _, r := range []memmgr.Resource{memmgr.Host(), memmgr.NewLimit(memmgr.Host(), 1<<40), p} {
		for range 2 {
			for _, align := range []uintptr{3, 24, 255, 768, 1<<62 + 1, 1 << 62, 1 << 63, math.MaxUint} {
				for _, size := range []uintptr{0, 1, 100, 1 << 61} {
					require.ErrorIs(t, testenv.ErrorOf(memmgr.New(r, memmgr.Request{Size: size, Align: align})), memmgr.ErrRequest, "%d bytes aligned to %d", size, align)
				}
			}
			b, err := memmgr.New(r, memmgr.Request{Size: 100}) // warm from here on
			require.NoError(t, err)
			b.Release()
		}
	}
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 1, Align: 1 << 61})), memmgr.ErrOutOfMemory)
}

func TestSegmentsLargerThanTheUnitsCanNumber(t *testing.T) {
	for _, size := range []uintptr{1 << 39, 1<<39 + 1, 1 << 40, math.MaxUint - 5} {
		_, p := simulatedPool(t, memmgr.WithSegment(size))
		b := mustNew(t, p, 100)
		require.EqualValues(t, 1<<39, p.Stats().ReservedBytes.Current)
		b.Release()
		p.Trim(0)
		require.Zero(t, p.Stats().ReservedBytes.Current)
	}
}

// The upstream returns the bare error of a context. The error of the pool is typed.
func TestContextErrorOfAnUpstreamIsTyped(t *testing.T) {
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		up := &upstream{Resource: memtest.NewSimulated()}
		up.setAsk(func(memmgr.Request) error { return cause })
		p := memmgr.NewPool(up)
		_, err := memmgr.New(p, memmgr.Request{Size: 1000, Tag: "late"})
		oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
		require.Equal(t, "late", oom.Request.Tag)
		require.NoError(t, p.Close())
	}
}

// If the callback returns false, the request fails without another attempt.
func TestOnOutOfMemoryDecidesAboutTheRetry(t *testing.T) {
	answer, asked, calls, before := false, 0, 0, 0
	up := &upstream{Resource: memtest.NewSimulated(memtest.Capacity(1 << 20)), answered: func(error) { calls++ }}
	p := memmgr.NewPool(up, memmgr.OnOutOfMemory(func(e *memmgr.OutOfMemoryError) bool {
		asked, before = asked+1, calls
		require.EqualValues(t, 4<<20, e.Request.Size)
		return answer
	}))
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 4 << 20})), memmgr.ErrOutOfMemory)
	require.Equal(t, 1, asked)
	require.Equal(t, before, calls, "no means no")
	answer = true
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 4 << 20})), memmgr.ErrOutOfMemory)
	require.Equal(t, 2, asked, "yes means once more")
	require.Greater(t, calls, before)
	require.EqualValues(t, 2, p.Stats().NumOOMs)
	require.NoError(t, p.Close())
}

// After an eviction in vain the next one waits for a time, which is bounded: on a loaded machine an eviction can
// take seconds. In virtual time.
func TestASlowEvictionDelaysTheNextForMilliseconds(t *testing.T) {
	for _, long := range []time.Duration{0, 100 * time.Microsecond, 3 * time.Second} {
		memmgr.WithoutKeeper(func() {
			synctest.Test(t, func(t *testing.T) {
				const limit = 16 << 20
				p := newPool(t, new(addressOnly), memmgr.WithLimit(limit), memmgr.WithDecay(0))
				fillClass(t, p, 1<<20, limit)
				p.EvictInVain(long)
				fillClass(t, p, 1<<20, limit)
				require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: limit / 2})), memmgr.ErrOutOfMemory)
				require.EqualValues(t, limit, p.Stats().CachedBytes, "no eviction follows at once")
				time.Sleep(10*time.Millisecond + 1)
				b, err := memmgr.New(p, memmgr.Request{Size: limit / 2})
				require.NoError(t, err, "after an eviction of %v", long)
				b.Release()
			})
		})
	}
}

// The statistics of a snapshot agree with its segments.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	_, p := simulatedPool(t)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			var held [16]memmgr.Buffer
			for i := 0; !stop.Load(); i++ {
				slot := &held[i%len(held)]
				if slot.Valid() {
					slot.Release()
				}
				b, err := memmgr.New(p, memmgr.Request{Size: uintptr(1000 * (g + 1 + i%40))})
				if err != nil {
					panic(err)
				}
				*slot = b
			}
			for _, b := range held {
				if b.Valid() {
					b.Release()
				}
			}
		})
	}
	defer wg.Wait() // also if an assertion fails: the pool is closed after it
	defer stop.Store(true)
	// The shards and the pool are locked during a snapshot. Until it needs one of them, a goroutine can complete
	// the allocation of one buffer and begin to release another: two buffers that count as allocated may be
	// visited while they have no owner.
	for range 200 {
		s := p.Snapshot()
		active, reserved := int64(0), int64(0)
		for _, seg := range s.Segments {
			reserved += int64(seg.Size)
			for _, b := range seg.Blocks {
				if b.State == memmgr.BlockActive {
					active++
				}
			}
		}
		require.Equal(t, s.Stats.ReservedBytes.Current, reserved)
		require.LessOrEqual(t, active, s.Stats.Allocation.Current)
		require.LessOrEqual(t, s.Stats.Allocation.Current-active, int64(2*3))
	}
}

// A request that is refused evicts the caches only if that can serve it.
func TestRefusalTouchesTheCachesOnlyWhereTheyHelp(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(8<<20), memmgr.WithDecay(0))
	held := mustNew(t, p, 5<<20)
	releaseAll(newMany(t, p, 16, 64<<10))
	cached := p.Stats().CachedBytes
	require.NotZero(t, cached)
	for range 3 {
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 6 << 20})), memmgr.ErrOutOfMemory)
		require.Equal(t, cached, p.Stats().CachedBytes)
	}
	b, err := memmgr.New(p, memmgr.Request{Size: 2500 << 10})
	require.NoError(t, err, "cached blocks make room")
	b.Release()
	held.Release()
}

// Holders are counted as memory is allocated and released, for every way of release.
func TestHoldersAreCountedByTag(t *testing.T) {
	sim := memtest.NewSimulated(memtest.Capacity(32 << 20))
	p := newPool(t, sim)
	take := func(size uintptr, tag string) memmgr.Buffer {
		return testenv.Must(memmgr.New(p, memmgr.Request{Size: size, Tag: tag}))(t)
	}
	a, b, c, d := take(1<<20, "a"), take(2<<20, "b"), take(4<<20, "b"), take(512, "")
	e := take(3<<20, "a")
	e.Release()
	f := take(3<<20, "exported")
	f.SetExported()
	f.Release()
	_, err := memmgr.New(p, memmgr.Request{Size: 100 << 20})
	oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
	require.Equal(t, []memmgr.Holder{
		{Tag: "b", Bytes: 6 << 20, Count: 2}, {Tag: "a", Bytes: 1 << 20, Count: 1}, {Bytes: 512, Count: 1},
	}, oom.Holders)
	require.EqualValues(t, 7<<20+512, oom.Allocated)
	releaseAll([]memmgr.Buffer{a, b, c, d})
	_, err = memmgr.New(p, memmgr.Request{Size: 100 << 20})
	require.ErrorAs(t, err, &oom)
	require.Empty(t, oom.Holders)
	require.Zero(t, oom.Allocated)
}

// A limit grants its last byte and not one more, alone, shared and concurrently.
func TestLimitIsExactAtTheBoundary(t *testing.T) {
	sim := memtest.NewSimulated()
	l := memmgr.NewLimit(sim, 1000)
	a := mustAllocate(t, l, 999)
	require.ErrorIs(t, testenv.ErrorOf(l.Allocate(memmgr.Request{Size: 2})), memmgr.ErrOutOfMemory)
	b := mustAllocate(t, l, 1)
	require.ErrorIs(t, testenv.ErrorOf(l.Allocate(memmgr.Request{Size: 1})), memmgr.ErrOutOfMemory)
	none, err := l.Allocate(memmgr.Request{})
	require.NoError(t, err, "nothing still fits")
	freeAll(l, []memmgr.Block{a, b, none})
	require.Zero(t, l.Used())
	require.ErrorIs(t, testenv.ErrorOf(l.Allocate(memmgr.Request{Size: 1 << 61})), memmgr.ErrOutOfMemory)

	// The limit of a pool bounds its segments exactly.
	p := newPool(t, sim, memmgr.WithLimit(4<<20+4096))
	one := mustNew(t, p, 4<<20+4096)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 1})), memmgr.ErrOutOfMemory)
	one.Release()
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 4<<20 + 4097})), memmgr.ErrOutOfMemory)
}

// A pool asks the pool that is its upstream, whose idle memory can serve it although the limit below has no
// room. The upper pool waits.
func TestPoolAbovePool(t *testing.T) {
	sim := memtest.NewSimulated()
	lower := memmgr.NewPool(sim, memmgr.WithLimit(8<<20), memmgr.WithDecay(0))
	upper := memmgr.NewPool(lower, memmgr.WithDecay(0))
	mustNew(t, lower, 8<<20).Release()
	b := mustNew(t, upper, 4<<20)
	held := mustNew(t, lower, 4<<20)
	waiting := request(upper, context.Background(), 3<<20)
	waits(t, upper, 1)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(upper, memmgr.Request{Size: 2 << 20})), memmgr.ErrOutOfMemory)
	held.Release()
	served(t, waiting).Release()
	b.Release()
	require.NoError(t, upper.Close())
	require.NoError(t, lower.Close())
	blocks, _ := sim.InUse()
	require.Zero(t, blocks)
}

// The n-th call of the upstream fails, to allocate or to free, for each n that a script of waits, trims,
// tenants and decay reaches. The failure is reported where it happened, and everything else continues to
// work. A free that fails is an error in the upstream, and panics.
func TestEveryUpstreamCallFails(t *testing.T) {
	for n := int64(1); ; n++ {
		var calls atomic.Int64
		call := func() error {
			if calls.Add(1) == n {
				return errFails
			}
			return nil
		}
		sim := memtest.NewSimulated()
		up := &upstream{Resource: sim, freeing: func() {
			if err := call(); err != nil {
				panic(err)
			}
		}}
		up.setAsk(func(r memmgr.Request) error {
			if err := call(); err != nil {
				return &memmgr.OutOfMemoryError{Request: r, Err: err}
			}
			return nil
		})
		p := memmgr.NewPool(up, memmgr.WithDecay(0), memmgr.WithLimit(48<<20))
		tenant := testenv.Must(p.NewTenant("a", memmgr.TenantOptions{Hard: 40 << 20}))(t)
		failed := 0
		try := func(f func()) {
			defer func() {
				if v := recover(); v != nil {
					require.ErrorIs(t, v.(error), errFails)
					failed++
				}
			}()
			f()
		}
		var held []memmgr.Buffer
		for i := range 40 {
			try(func() {
				var r memmgr.Resource = p
				if i%3 == 0 {
					r = tenant
				}
				b, err := memmgr.New(r, memmgr.Request{Size: uintptr(1+i%7) * 3 << 20 >> (i % 3)})
				if err == nil {
					held = append(held, b)
				} else {
					require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
				}
			})
			if i%5 == 4 {
				for _, b := range held {
					try(b.Release)
				}
				held = held[:0]
				try(func() { p.Trim(uint64(i%2) * 4 << 20) })
			}
		}
		for _, b := range held {
			try(b.Release)
		}
		require.Zero(t, p.Stats().AllocatedBytes.Current)
		require.Zero(t, tenant.Stats().ActiveBytes.Current)
		try(func() { require.NoError(t, p.Close()) })
		require.NoError(t, p.Close())
		require.NoError(t, tenant.Close())
		blocks, _ := sim.InUse()
		require.LessOrEqual(t, blocks, int64(failed), "all blocks went back but the one whose free failed")
		if calls.Load() < n {
			require.Greater(t, n, int64(20), "the script was meant to call often")
			return
		}
	}
}

var errFails = errors.New("this call fails")

// Memory that is released while the upstream is asked for the last time serves the request.
func TestMemoryFreedBeforeARefusal(t *testing.T) {
	u := &upstream{Resource: memtest.NewSimulated(memtest.Capacity(12 << 20))}
	p := newPool(t, u)
	idle, held := mustNew(t, p, 4<<20), mustNew(t, p, 8<<20)
	idle.Release()
	asked := 0
	u.setAsk(func(memmgr.Request) error {
		if asked++; asked == 2 { // after the idle segment went back, which is too little
			held.Release()
		}
		return nil
	})
	mustNew(t, p, 6<<20).Release()
	require.Equal(t, 2, asked)
}

// A segment is a multiple of 4096 bytes. A request that no limit could allow fails immediately, and one that a limit
// allows is served, with a context and without.
func TestRequestsNearALimit(t *testing.T) {
	for _, c := range []struct {
		limit  uint64
		size   uintptr
		served bool
	}{
		{1000, 256, false}, {4095, 1, false}, {100, 100, false}, {10000, 9000, false},
		{1<<20 + 100, 1<<20 + 50, false}, {1 << 20, 1<<20 + 1, false}, {3<<20 + 4095, 3<<20 + 1, false},
		{4096, 1, true}, {8192, 5000, true}, {10000, 8000, true}, {1 << 20, 1 << 20, true}, {1 << 20, 1<<20 - 4096, true},
		{1<<20 + 4096, 1<<20 + 1, true}, {36 << 10, 35<<10 + 1, true}, // not as large as their size classes
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, of := range []context.Context{nil, ctx} {
			p := memmgr.NewPool(memtest.NewSimulated(), memmgr.WithLimit(c.limit))
			tenant := testenv.Must(p.NewTenant("tenant", memmgr.TenantOptions{}))(t)
			for _, r := range []memmgr.Resource{p, tenant} {
				b, err := memmgr.New(r, memmgr.Request{Size: c.size, Context: of})
				require.NotErrorIs(t, err, context.DeadlineExceeded, "%+v", c)
				if c.served {
					require.NoError(t, err, "%+v", c)
				} else {
					require.ErrorIs(t, err, memmgr.ErrOutOfMemory, "%+v", c)
				}
				b.Release()
			}
			require.NoError(t, p.Close())
		}
	}
}
