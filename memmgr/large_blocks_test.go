package memmgr_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Idle large blocks are reused like small ones: repeated rounds ask the upstream once.
func TestLargeBlocksStayIdleForReuse(t *testing.T) {
	_, p := simulatedPool(t)
	var held [16]memmgr.Buffer
	for range 200 {
		for i := range held {
			b, err := memmgr.New(p, memmgr.Request{Size: 20 << 20})
			require.NoError(t, err)
			held[i] = b
		}
		for _, b := range held {
			b.Release()
		}
	}
	s := p.Stats()
	require.LessOrEqual(t, s.NumDeviceAlloc, int64(len(held)))
	require.Zero(t, s.Allocation.Current)
	require.EqualValues(t, 200*len(held), s.Allocation.Allocated)
	require.EqualValues(t, len(held), s.Allocation.Peak)
	for _, peak := range []int64{s.AllocatedBytes.Peak, s.RequestedBytes.Peak, s.ActiveBytes.Peak} {
		require.EqualValues(t, len(held)*20<<20, peak)
	}
	require.EqualValues(t, len(held)*20<<20, s.ReservedBytes.Current)
}

// A large request gets the smallest idle segment that holds it and wastes at most an eighth, or a new
// one.
func TestLargeBlocksFitBest(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithDecay(0))
	rng := rand.New(rand.NewPCG(8, 1))
	idle := map[uintptr]uintptr{}
	var out []memmgr.Block
	most := 0
	var ages []uintptr // addresses of freed segments, the oldest first; some are in use again
	for step := range 5000 {
		most = max(most, len(idle))
		if step%1500 == 1499 { // the oldest half goes back
			half, kept := uint64(0), uint64(0)
			for _, size := range idle {
				half += uint64(size) / 2
			}
			p.Trim(half)
			for i, address := range slices.Backward(ages) {
				if size, ok := idle[address]; ok && !slices.Contains(ages[i+1:], address) {
					if kept += uint64(size); kept > half {
						delete(idle, address)
					}
				}
			}
		}
		if len(out) > 0 && rng.IntN(2) == 0 {
			k := rng.IntN(len(out))
			b := out[k]
			out[k] = out[len(out)-1]
			out = out[:len(out)-1]
			idle[b.Address] = b.Size
			ages = append(ages, b.Address)
			p.Free(b)
			continue
		}
		size := uintptr(16<<20 + rng.IntN(200)*(320<<10))
		align := uintptr(256)
		if rng.IntN(4) == 0 {
			align = 1 << (20 + rng.IntN(3))
		}
		best := uintptr(0)
		for address, has := range idle {
			if has < size || has-size > size/8 || address%align != 0 {
				continue
			}
			if best == 0 || has < best {
				best = has
			}
		}
		before := p.Stats().NumDeviceAlloc
		b, err := p.Allocate(memmgr.Request{Size: size, Align: align})
		require.NoError(t, err)
		if best != 0 {
			require.Equal(t, best, b.Size)
			require.Contains(t, idle, b.Address)
			require.Equal(t, before, p.Stats().NumDeviceAlloc)
			delete(idle, b.Address)
		} else {
			require.Equal(t, before+1, p.Stats().NumDeviceAlloc)
		}
		out = append(out, b)
	}
	require.Greater(t, most, 100, "the script was meant to keep many")
	for _, b := range out {
		p.Free(b)
	}
}

// Above the high mark the oldest idle segments are freed, down to the low mark, dedicated and ordinary
// ones alike.
func TestRetentionGivesTheOldestBack(t *testing.T) {
	sim, p := simulatedPool(t, memmgr.WithDecay(0), memmgr.WithRetention(200<<20, 100<<20), memmgr.WithCache(0))
	large := func(mib uintptr) memmgr.Block { return mustAllocate(t, p, mib<<20) }
	small := mustAllocate(t, p, 3<<20)
	a, b, c, d := large(20), large(60), large(80), large(100)
	p.Free(small)
	p.Tick()
	p.Free(a)
	p.Tick()
	p.Free(b)
	p.Tick()
	p.Free(c)
	_, before := sim.InUse()
	require.EqualValues(t, p.Stats().ReservedBytes.Current, before)
	require.GreaterOrEqual(t, before, int64(263<<20), "no bound is passed yet")
	p.Free(d)
	_, after := sim.InUse()
	require.EqualValues(t, 100<<20, after, "the low mark")
	again := large(100)
	require.Equal(t, d.Address, again.Address, "the youngest stays")
	p.Free(again)
	p.Free(large(250))
	_, after = sim.InUse()
	require.LessOrEqual(t, after, int64(100<<20))
}

// Before a large request is refused, it is served from an idle segment that is much larger. The rest
// of the segment serves other requests.
func TestRefusalOpensAnIdleSegment(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(100<<20), memmgr.WithDecay(0))
	p.Free(mustAllocate(t, p, 100<<20))
	a := mustAllocate(t, p, 40<<20)
	b := mustAllocate(t, p, 16<<20)
	c := mustAllocate(t, p, 44<<20)
	_, err := p.Allocate(memmgr.Request{Size: 1})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	require.EqualValues(t, 1, p.Stats().NumDeviceAlloc)
	for _, block := range []memmgr.Block{a, b, c} {
		p.Free(block)
	}
	p.Free(mustAllocate(t, p, 100<<20))
}

// gatedUpstream lets a test delay calls of Free, and counts refusals.
type gatedUpstream struct {
	*memtest.Simulated
	gate    chan struct{} // a call of Free takes one
	freeing atomic.Int32  // calls that wait
	refused chan struct{}
	late    func() // called between a refusal and its return
}

func (g *gatedUpstream) Allocate(r memmgr.Request) (memmgr.Block, error) {
	b, err := g.Simulated.Allocate(r)
	if errors.Is(err, memmgr.ErrOutOfMemory) {
		select {
		case g.refused <- struct{}{}:
		default:
		}
		if g.late != nil {
			g.late()
		}
	}
	return b, err
}

func (g *gatedUpstream) Free(b memmgr.Block) {
	g.freeing.Add(1)
	<-g.gate
	g.freeing.Add(-1)
	g.Simulated.Free(b)
}

// A pool serves requests while it frees memory. A request that the upstream refuses meanwhile is
// served from the memory that was being freed.
func TestRequestsContinueWhileMemoryGoesBack(t *testing.T) {
	up := &gatedUpstream{
		Simulated: memtest.NewSimulated(memtest.Capacity(64 << 20)),
		gate:      make(chan struct{}), refused: make(chan struct{}, 1),
	}
	p := memmgr.NewPool(up, memmgr.WithDecay(0))
	p.Free(mustAllocate(t, p, 60<<20))
	trimmed := make(chan uint64)
	go func() { trimmed <- p.Trim(0) }()
	require.Eventually(t, func() bool { return up.freeing.Load() == 1 }, patience, time.Millisecond)
	small := mustAllocate(t, p, 1000) // the lock is free
	require.EqualValues(t, 1, up.freeing.Load())
	large := make(chan error)
	var block memmgr.Block
	go func() {
		b, err := p.Allocate(memmgr.Request{Size: 60 << 20})
		block = b
		large <- err
	}()
	<-up.refused
	select {
	case err := <-large:
		require.NoError(t, err, "refused before the memory on its way was back")
	default:
	}
	close(up.gate)
	require.NoError(t, <-large)
	require.EqualValues(t, 60<<20, <-trimmed)
	p.Free(block)
	p.Free(small)
	require.NoError(t, p.Close())
	blocks, _ := up.InUse()
	require.Zero(t, blocks)
}

// Memory that was freed between the refusal of the upstream and its return serves the request.
func TestMemoryReturnedDuringARefusal(t *testing.T) {
	up := &gatedUpstream{
		Simulated: memtest.NewSimulated(memtest.Capacity(64 << 20)),
		gate:      make(chan struct{}), refused: make(chan struct{}, 1),
	}
	p := memmgr.NewPool(up, memmgr.WithDecay(0))
	p.Free(mustAllocate(t, p, 60<<20))
	trimmed := make(chan uint64)
	go func() { trimmed <- p.Trim(0) }()
	require.Eventually(t, func() bool { return up.freeing.Load() == 1 }, patience, time.Millisecond)
	up.late = sync.OnceFunc(func() {
		close(up.gate)
		<-trimmed
	})
	p.Free(mustAllocate(t, p, 60<<20))
	require.NoError(t, p.Close())
}
