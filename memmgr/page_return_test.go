package memmgr_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// paged is the host resource with a count of the calls of Discard.
type paged struct {
	memmgr.Resource
	calls  atomic.Int64
	during func()
}

func (r *paged) Discard(address, size uintptr) error {
	r.calls.Add(1)
	if r.during != nil {
		r.during()
	}
	return r.Resource.(memmgr.Discarder).Discard(address, size)
}

// onPages returns a pool over such a resource.
func onPages(t *testing.T, options ...memmgr.PoolOption) (*paged, *memmgr.Pool) {
	if runtime.GOOS != "linux" {
		t.Skip("memory has no pages here that could be given back")
	}
	r := &paged{Resource: memmgr.Host()}
	p := newPool(t, r, options...)
	return r, p
}

// touch writes all of a buffer, and requireAll reads it.
func touch(t testing.TB, b memmgr.Buffer, value byte) {
	t.Helper()
	all := testenv.Must(b.Bytes())(t)
	for i := range all {
		all[i] = value
	}
}

func requireAll(t testing.TB, b memmgr.Buffer, value byte) {
	t.Helper()
	all := testenv.Must(b.Bytes())(t)
	for i, v := range all {
		if v != value {
			require.Equal(t, value, v, "byte %d of %d", i, len(all))
		}
	}
}

// resident returns the number of resident bytes in the segments of a pool.
func resident(p *memmgr.Pool) (n uintptr) {
	for _, s := range p.Snapshot().Segments {
		n += memmgr.ResidentBytes(s.Address, uintptr(s.Size))
	}
	return n
}

func newTouched(t testing.TB, p *memmgr.Pool, size uintptr, value byte) memmgr.Buffer {
	t.Helper()
	b := mustNew(t, p, size)
	touch(t, b, value)
	return b
}

func TestTrimGivesPagesOfFreeBlocksBack(t *testing.T) {
	r, p := onPages(t, memmgr.WithDecay(0), memmgr.WithSegment(16<<20))
	kept := newTouched(t, p, 100<<10, 1)
	defer kept.Release()
	var all []memmgr.Buffer
	for range 60 {
		all = append(all, newTouched(t, p, 200<<10, 2))
	}
	releaseAll(all)
	before := resident(p)
	require.Greater(t, before, uintptr(11<<20))
	require.Zero(t, p.Trim(16<<20))
	require.Zero(t, r.calls.Load())
	freed := p.Trim(0)
	after := resident(p)
	require.EqualValues(t, before-after, freed)
	require.LessOrEqual(t, after, uintptr(104<<10))
	requireAll(t, kept, 1)

	// One call for each free block.
	calls := r.calls.Load()
	require.Zero(t, p.Trim(0))
	require.Equal(t, calls, r.calls.Load())
	// A block that is used and freed again merges with its neighbours; the result is purged again.
	newTouched(t, p, 300<<10, 3).Release()
	require.GreaterOrEqual(t, p.Trim(0), uint64(296<<10))
	require.Zero(t, p.Trim(0))
}

// Free blocks are visited as seldom as the caches, four times within the time of WithDecay: blocks that were freed
// one tick after the other go back together.
func TestIdlePagesAreVisitedAsSeldomAsCaches(t *testing.T) {
	const age, looks = 8, 4
	r, p := onPages(t, memmgr.WithDecay(age*memmgr.TickTime), memmgr.WithSegment(64<<20))
	p.Untended()
	var kept, free []memmgr.Buffer
	for range 2 * age {
		free = append(free, newTouched(t, p, 3<<20, 2))
		kept = append(kept, newTouched(t, p, 200<<10, 1))
	}
	for tick := 1; tick <= 4*age; tick++ {
		before := r.calls.Load()
		p.Tick()
		if tick%(age/looks) != 0 {
			require.Equal(t, before, r.calls.Load(), "tick %d", tick)
		}
		if len(free) > 0 {
			free[0].Release()
			free = free[1:]
		}
	}
	require.EqualValues(t, 2*age, r.calls.Load())
	releaseAll(kept)
}

// A decay time of more ticks than the heap can distinguish ends too.
func TestIdlePagesDecayAfterHours(t *testing.T) {
	const ticks = 1<<17 + 12345
	_, p := onPages(t, memmgr.WithDecay(ticks*memmgr.TickTime), memmgr.WithSegment(16<<20), memmgr.WithCache(0))
	p.Untended()
	kept := newTouched(t, p, 4<<10, 1)
	defer kept.Release()
	newTouched(t, p, 8<<20, 2).Release()
	for range ticks - 10 {
		p.Tick()
	}
	require.Greater(t, resident(p), uintptr(8<<20))
	for range 20 {
		p.Tick()
	}
	require.LessOrEqual(t, resident(p), uintptr(64<<10))
}

// Before a request fails, it waits for blocks whose pages are being returned.
func TestARequestWaitsForBlocksInHand(t *testing.T) {
	r, p := onPages(t, memmgr.WithDecay(0), memmgr.WithLimit(2<<20))
	kept := newTouched(t, p, 4<<10, 1)
	newTouched(t, p, 1<<20, 2).Release()
	inside, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.during = func() { once.Do(func() { close(inside); <-goOn }) }
	trimmed := make(chan uint64)
	go func() { trimmed <- p.Trim(0) }()
	<-inside
	got := make(chan error)
	go func() {
		b, err := memmgr.New(p, memmgr.Request{Size: 1900 << 10})
		if err == nil {
			b.Release()
		}
		got <- err
	}()
	for range 100 {
		runtime.Gosched()
	}
	close(goOn)
	require.NoError(t, <-got)
	require.NotZero(t, <-trimmed)
	kept.Release()
}

// No byte is lost under concurrent allocation, release, trimming and decay.
func TestPurgingBesideUse(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(50*time.Millisecond), memmgr.WithCache(1<<20))
	// Each block is written at both ends and in the middle.
	edges := func(b memmgr.Buffer, f func(*byte)) {
		all, err := b.Bytes()
		if err != nil {
			panic(err)
		}
		for _, at := range []int{0, len(all) / 2, len(all) - 1} {
			f(&all[at])
		}
	}
	var users, trimmer sync.WaitGroup
	for g := range 4 {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			live := make([]memmgr.Buffer, 30)
			for i := range 3000 {
				at := rng.IntN(len(live))
				mark := byte(g*len(live) + at)
				if b := live[at]; b.Valid() {
					edges(b, func(v *byte) {
						if *v != mark {
							panic("a byte was lost")
						}
					})
					b.Release()
				}
				b, err := memmgr.New(p, memmgr.Request{Size: 1 + uintptr(rng.IntN(300<<10))})
				if err != nil {
					panic(err)
				}
				edges(b, func(v *byte) { *v = mark })
				live[at] = b
				if g == 0 && i%50 == 0 {
					p.Snapshot()
				}
			}
			for _, b := range live {
				if b.Valid() {
					b.Release()
				}
			}
		})
	}
	var stop atomic.Bool
	trimmer.Go(func() {
		for !stop.Load() {
			p.Trim(0)
		}
	})
	users.Wait()
	stop.Store(true)
	trimmer.Wait()
	p.Trim(0)
	require.Zero(t, p.Stats().ReservedBytes.Current)
}
