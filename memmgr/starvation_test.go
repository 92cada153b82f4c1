//go:build cgo && linux

package memmgr_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner/ownertest"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// huntSeconds is the duration of TestEveryWaiterIsServed in seconds. Without it the test runs a few scenarios.
const huntSeconds = "USMBRIDGE_HUNT"

// For all pools, limits, tenants, sizes and ways of release: if no goroutine holds memory while it waits, every
// request is served.
func TestEveryWaiterIsServed(t *testing.T) {
	defer memmgr.RecordStacks(memmgr.StacksRecorded())
	memmgr.RecordStacks(0) // else no block goes the short way
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	if seconds, err := strconv.Atoi(os.Getenv(huntSeconds)); err == nil {
		first := uint64(time.Now().UnixNano())
		for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end) && !t.Failed(); first++ {
			newHunt(t, first).run(3 * time.Second)
		}
		return
	}
	t.Logf("%s=seconds hunts for so long, with scenarios of its own", huntSeconds)
	for seed := range uint64(12) {
		newHunt(t, seed).run(100 * time.Millisecond)
	}
}

// hunt is a scenario.
type hunt struct {
	t        testing.TB
	seed     uint64
	name     string
	sim      *memtest.Simulated
	most     uint64 // bytes of the device that the limits allow
	pools    []*memmgr.Pool
	accounts []*huntAccount
	granted  atomic.Int64 // requests
	workers  int
	hold     time.Duration // memory is in use for so long at most
	late     sync.WaitGroup
}

// huntAccount is the target of a request and its maximum size.
type huntAccount struct {
	from  memmgr.Resource
	most  uintptr
	limit uint64
	inUse atomic.Int64 // bytes of blocks
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// newHunt draws a scenario: pools that share a limit or a device, or have limits of their own, with and without
// tenants.
func newHunt(t testing.TB, seed uint64) *hunt {
	rng := rand.New(rand.NewPCG(seed, 11))
	bound := pick[uint64](rng, 8, 32, 64, 96, 128) << 20
	h := &hunt{
		t: t, seed: seed, sim: memtest.NewSimulated(), workers: pick(rng, 4, 8, 16, 32, 64),
		hold: pick(rng, 0, 100*time.Microsecond, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond),
	}
	upstream, shared := memmgr.Resource(h.sim), pick(rng, "a limit", "a device", "nothing")
	options := []memmgr.PoolOption{memmgr.WithDecay(pick(rng, 0, 250*time.Millisecond, 10*time.Second))}
	switch shared {
	case "a limit":
		upstream = memmgr.NewLimit(h.sim, bound)
	case "a device":
		h.sim = memtest.NewSimulated(memtest.Capacity(bound))
		upstream = h.sim
	default:
		options = append(options, memmgr.WithLimit(bound))
	}
	h.sim.InOrder(1)
	switch rng.IntN(4) {
	case 0:
		options = append(options, memmgr.WithCache(0))
	case 1:
		options = append(options, memmgr.WithCache(1<<20))
	case 2:
		options = append(options, memmgr.WithRetention(bound/2, bound/4))
	}
	top, tenants := pick[uintptr](rng, 64<<10, 1<<20, 4<<20, 24<<20, 64<<20), pick(rng, 0, 0, 2, 4)
	for range pick(rng, 1, 1, 2, 3) {
		h.addPool(rng, memmgr.NewPool(upstream, options...), bound, top, tenants)
	}
	h.most = bound
	if shared == "nothing" {
		h.most *= uint64(len(h.pools))
	}
	processors := pick(rng, 1, 2, 4, 8)
	runtime.GOMAXPROCS(processors)
	h.name = fmt.Sprintf("scenario %d: %d pools of %d MiB that share %s, %d tenants each, sizes to %d, %d workers that hold for %v, %d processors",
		seed, len(h.pools), bound>>20, shared, tenants, top, h.workers, h.hold, processors)
	return h
}

func (h *hunt) addPool(rng *rand.Rand, p *memmgr.Pool, bound uint64, top uintptr, tenants int) {
	account := func(r memmgr.Resource, bytes uint64) {
		h.accounts = append(h.accounts, &huntAccount{from: r, most: min(uintptr(bytes)/pick[uintptr](rng, 1, 2), top), limit: bytes})
	}
	h.pools = append(h.pools, p)
	account(p, bound)
	for i := range tenants {
		hard := bound / pick[uint64](rng, 1, 2, 4)
		account(newTenant(h.t, p, fmt.Sprint(i), memmgr.TenantOptions{Hard: hard, Weight: 1 + rng.IntN(3)}), hard)
	}
}

// run runs the scenario for a time, and ends it. Then the accounts are exact, and nothing is left.
func (h *hunt) run(d time.Duration) {
	var workers sync.WaitGroup
	end := time.Now().Add(d)
	for g := range h.workers {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(h.seed, uint64(g)))
			for time.Now().Before(end) && h.request(rng) {
			}
		})
	}
	workers.Wait()
	h.late.Wait()
	memmgr.Flush()
	for _, a := range h.accounts {
		stats := a.from.(interface{ Stats() memmgr.Stats }).Stats()
		for _, s := range []memmgr.Stat{stats.Allocation, stats.AllocatedBytes, stats.RequestedBytes, stats.ActiveBytes} {
			require.Zero(h.t, s.Current, h.name)
		}
		require.Zero(h.t, stats.NumWaiting, h.name)
	}
	granted := int64(0)
	for _, p := range h.pools {
		granted += p.Stats().Allocation.Allocated
		require.NoError(h.t, p.Close(), h.name)
	}
	require.Equal(h.t, h.granted.Load(), granted, h.name)
	require.LessOrEqual(h.t, h.sim.Peak(), h.most, h.name)
	blocks, _ := h.sim.InUse()
	require.Zero(h.t, blocks, h.name)
	noEvents(h.t, h.sim, h.name)
}

// request allocates memory, holds it for a while and releases it in one of many ways.
func (h *hunt) request(rng *rand.Rand) bool {
	a := h.accounts[rng.IntN(len(h.accounts))]
	size := uintptr(1 + rng.Int64N(int64(min(a.most, 64<<rng.IntN(21)))))
	timeout := pick(rng, patience, patience, patience, time.Duration(rng.IntN(2000))*time.Microsecond)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r := memmgr.Request{Size: size, Context: ctx, Tag: pick(rng, "", "", "tagged")}
	if rng.IntN(8) == 0 {
		r.Context = nil
	}
	mayFail := r.Context == nil || timeout < patience
	if rng.IntN(64) == 0 {
		p := h.pools[rng.IntN(len(h.pools))]
		p.Trim(uint64(rng.IntN(8 << 20)))
		p.Stats()
	}
	if rng.IntN(4) == 0 {
		block, err := a.from.Allocate(r)
		if err == nil {
			h.use(rng, a, int64(block.Size))
			h.freePending(rng, a.from, block)
		}
		return h.got(size, err, mayFail)
	}
	b, err := memmgr.New(a.from, r)
	if err != nil {
		return h.got(size, err, mayFail)
	}
	h.use(rng, a, int64(b.Size()))
	switch rng.IntN(5) {
	case 0:
		ownertest.Drop(cells.Of(b)) // as C does
	case 1:
		h.late.Go(b.Release)
	case 2:
		b.SetExported()
		fallthrough
	default:
		b.Release()
	}
	return true
}

func (h *hunt) got(size uintptr, err error, mayFail bool) bool {
	if err == nil || mayFail && errors.Is(err, memmgr.ErrOutOfMemory) {
		return true
	}
	h.t.Errorf("%s: %d bytes: %v", h.name, size, err)
	return false
}

// use holds memory for a while, which is never more than the limit of its account.
func (h *hunt) use(rng *rand.Rand, a *huntAccount, bytes int64) {
	h.granted.Add(1)
	if all := a.inUse.Add(bytes); uint64(all) > a.limit {
		h.t.Errorf("%s: %d bytes of %d are in use", h.name, all, a.limit)
	}
	defer a.inUse.Add(-bytes)
	if h.hold == 0 {
		runtime.Gosched()
		return
	}
	time.Sleep(time.Duration(rng.Int64N(int64(h.hold))))
}

// freePending frees a block with work pending that ends a while later.
func (h *hunt) freePending(rng *rand.Rand, from memmgr.Resource, block memmgr.Block) {
	block.Queue = uintptr(1 + rng.IntN(3))
	block.Event = h.sim.Submit(block.Queue)
	event := h.sim.CopyEvent(block.Event)
	after := time.Duration(rng.Int64N(int64(h.hold + 100*time.Microsecond)))
	h.late.Go(func() {
		time.Sleep(after)
		h.sim.Complete(event)
		h.sim.ReleaseEvent(event)
	})
	from.Free(block)
}
