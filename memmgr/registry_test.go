package memmgr_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

// use allocates from a resource and releases.
func use(t testing.TB, r memmgr.Resource) {
	mustNew(t, r, 100).Release()
}

// originsFall waits until at most so many records of memory of resources are left.
func originsFall(t testing.TB, before int) {
	t.Helper()
	require.Eventually(t, func() bool {
		runtime.GC()
		return memmgr.Origins() <= before
	}, patience, time.Millisecond, "records of resources that their user dropped are left")
}

// TestDroppedResourcesAreForgotten checks that a wrapper made for each request is collected after its user drops
// it, and that its record, cell and memory are freed.
func TestDroppedResourcesAreForgotten(t *testing.T) {
	p := newHostPool(t)
	sim := memtest.NewSimulated()
	use(t, p)
	use(t, sim)
	runtime.GC()
	before, cells := memmgr.Origins(), owner.Bytes()
	for i := range 2000 {
		var r memmgr.Resource = p
		if i%2 == 0 {
			r = sim // which has a Synchronizer of its own
		}
		use(t, memmgr.NewLimit(r, 1<<20))
		use(t, memmgr.NewLimit(r, 1<<21))
	}
	originsFall(t, before)
	// 4000 were made; each processor allocates some cells in advance.
	require.LessOrEqual(t, owner.Bytes(), cells+256*owner.CellBytes)
	use(t, sim)
	returned(t, sim)
}

// TestMemoryInUseKeepsItsResource checks that memory in use keeps its resource reachable until the last release.
func TestMemoryInUseKeepsItsResource(t *testing.T) {
	sim := memtest.NewSimulated()
	use(t, sim)
	before := memmgr.Origins()
	b := func() memmgr.Buffer {
		b := testenv.Must(memmgr.New(memmgr.NewLimit(sim, 1<<20), memmgr.Request{Size: 100}))(t)
		return b
	}()
	for range 5 {
		runtime.GC()
	}
	limit, ok := b.Resource().(*memmgr.Limit)
	require.True(t, ok)
	require.EqualValues(t, 100, limit.Used())
	b.Release()
	require.Zero(t, limit.Used())
	limit = nil
	_ = limit
	originsFall(t, before)
	returned(t, sim)
}

// value is a resource that is not a pointer.
type value struct {
	*memtest.Simulated
	name string
}

func TestClosedResourcesAreForgotten(t *testing.T) {
	sim := memtest.NewSimulated()
	limit := memmgr.NewLimit(sim, 1000)
	for _, r := range []memmgr.Resource{limit, value{sim, "a"}} {
		require.Zero(t, memmgr.OriginsOf(r))
		b := mustNew(t, r, 100)
		require.Equal(t, r, b.Resource())
		require.NoError(t, memmgr.Close(r))
		require.Equal(t, 1, memmgr.OriginsOf(r), "memory is in use")
		require.Equal(t, r, b.Resource())
		again := mustNew(t, r, 100)
		require.Equal(t, 2, memmgr.OriginsOf(r), "used again")
		b.Release()
		require.Equal(t, 1, memmgr.OriginsOf(r))
		again.Release()
		require.NoError(t, memmgr.Close(r))
		require.Zero(t, memmgr.OriginsOf(r))
	}
	require.Zero(t, limit.Used())
	require.NoError(t, memmgr.Close(limit), "closing again")
	require.NoError(t, memmgr.Close(nil))
	require.NoError(t, memmgr.Close((*memmgr.Limit)(nil)))
	p := memmgr.NewPool(sim)
	require.NoError(t, memmgr.Close(p), "a closer is closed")
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 100})), memmgr.ErrClosed)
	returned(t, sim)
}

// incomparable is a resource whose values cannot be compared.
type incomparable struct {
	*memtest.Simulated
	_ []string
}

func TestResourceThatCannotBeComparedIsRefused(t *testing.T) {
	sim := memtest.NewSimulated()
	r := incomparable{Simulated: sim}
	_, err := memmgr.New(r, memmgr.Request{Size: 100})
	require.ErrorIs(t, err, memmgr.ErrRequest)
	testenv.As[*memmgr.OpError](t, err)
	require.ErrorContains(t, err, "memmgr_test.incomparable cannot be compared; pass a pointer")
	require.NoError(t, memmgr.Close(r))
	use(t, &r)
	require.NoError(t, memmgr.Close(&r))
	returned(t, sim)
}

// TestResourcesAtOneAddressAreDistinct checks resources at the same address, at once and one after the other.
func TestResourcesAtOneAddressAreDistinct(t *testing.T) {
	type pair struct{ *memtest.Simulated } // has the same address as its first field
	sim := memtest.NewSimulated()
	outer := &pair{sim}
	inner := &outer.Simulated
	b := mustNew(t, outer, 100)
	c := testenv.Must(memmgr.New(*inner, memmgr.Request{Size: 100}))(t)
	require.Equal(t, memmgr.Resource(outer), b.Resource())
	require.Equal(t, memmgr.Resource(sim), c.Resource())
	b.Release()
	c.Release()
	for i := range 3000 { // addresses are reused after collections
		r := memmgr.NewLimit(sim, uint64(1000+i))
		b := mustNew(t, r, 100)
		require.Same(t, r, b.Resource())
		require.EqualValues(t, 100, r.Used())
		b.Release()
		require.Zero(t, r.Used())
		if i%300 == 0 {
			runtime.GC()
		}
	}
	returned(t, sim)
}

// global is not an object of the Go heap.
var global struct {
	nothing
	name string
}

// nothing is a resource of size zero: all values have the same address.
type nothing struct{}

func (*nothing) Allocate(r memmgr.Request) (memmgr.Block, error) {
	return memmgr.Block{Address: 1 << 40, Size: max(r.Size, 1), Requested: r.Size, Align: r.Alignment()}, nil
}
func (*nothing) Free(memmgr.Block)     {}
func (*nothing) Place() *syclobj.Place { return syclobj.HostPlace() }

func TestResourcesOutsideTheHeap(t *testing.T) {
	for range 3 {
		use(t, &nothing{})
		use(t, &global)
		use(t, &global.nothing)
		runtime.GC()
	}
	require.NoError(t, memmgr.Close(&nothing{}))
	require.NoError(t, memmgr.Close(&global))
	require.NoError(t, memmgr.Close(&global.nothing))
}

// TestRegistryUnderConcurrentUseAndClose checks that no block is returned to another resource, and that no record is
// left.
func TestRegistryUnderConcurrentUseAndClose(t *testing.T) {
	sim := memtest.NewSimulated()
	runtime.GC()
	before := memmgr.Origins()
	shared := make([]*memmgr.Limit, 4)
	for i := range shared {
		shared[i] = memmgr.NewLimit(sim, 1<<30)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				r := shared[(g+i)%len(shared)]
				b, err := memmgr.New(r, memmgr.Request{Size: 100})
				if err != nil {
					panic(err)
				}
				if i%3 == 0 {
					if err := memmgr.Close(r); err != nil {
						panic(err)
					}
				}
				b.Release()
			}
		})
	}
	wg.Wait()
	for _, r := range shared {
		require.Zero(t, r.Used())
		require.NoError(t, memmgr.Close(r))
	}
	require.LessOrEqual(t, memmgr.Origins(), before)
	returned(t, sim)
}

// Pools beyond those that the table of Release has work as the first ones do, and the numbers of closed pools are used
// again.
func TestMorePoolsThanTheTableHas(t *testing.T) {
	const n = 1100
	sim := memtest.NewSimulated()
	for range 2 {
		var pools []*memmgr.Pool
		for range n {
			pools = append(pools, memmgr.NewPool(sim))
		}
		for _, p := range []*memmgr.Pool{pools[0], pools[n-1]} {
			b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 100}))(t)
			require.Same(t, p, b.Resource())
			require.Same(t, sim.Place(), b.Place())
			b.Release()
			require.Zero(t, p.Stats().Allocation.Current)
		}
		for _, p := range pools {
			require.NoError(t, p.Close())
		}
	}
	returned(t, sim)
}
