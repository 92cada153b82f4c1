package memmgr

import (
	"slices"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
	"github.com/usmbridge/usmbridge/memmgr/internal/shared"
)

// keeper runs the one goroutine of this package. The goroutine ticks the pools and frees unpooled
// memory. It exists while there are any of these.
var keeper = newKeeper()

type keeperState struct {
	mu      block.Mutex
	pools   []*Pool // open
	closing []*Pool // closed, but some of their memory is in use or pending
	frees   *pending.Frees
	running bool
	stopped bool           // for good, by stopBackground
	ended   sync.WaitGroup // the goroutine
	wake    chan struct{}
}

func newKeeper() *keeperState {
	k := &keeperState{wake: make(chan struct{}, 1)}
	k.frees = pending.NewFrees(func(err error) {
		backgroundFailed("Buffer.Release", &OpError{Op: "Buffer.Release", Err: err})
	})
	block.SetRank(&k.mu, block.RankLeaf)
	return k
}

// after calls free once the work on the memory of a dead cell has ended: see [pending.Frees].
func (k *keeperState) after(s Synchronizer, c *owner.Cell, free func()) {
	k.frees.Add(s, c, free)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
}

// add registers a new pool.
func (k *keeperState) add(p *Pool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pools = append(k.pools, p)
	k.start()
}

// start starts the goroutine, or wakes it if it runs. k.mu is held.
func (k *keeperState) start() {
	if k.running {
		k.poke()
		return
	}
	if !k.stopped {
		k.running = true
		k.ended.Go(k.loop)
	}
}

func (k *keeperState) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// remove removes a closed pool. A pool that lingers, because some of its memory is in use or
// pending, still gets ticks, which observe the end of the pending work.
func (k *keeperState) remove(p *Pool, lingers bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	is := func(q *Pool) bool { return q == p }
	k.pools = slices.DeleteFunc(k.pools, is)
	k.closing = slices.DeleteFunc(k.closing, is)
	if lingers {
		k.closing = append(k.closing, p)
	}
	k.poke()
}

// open lists the open pools, oldest first.
func (k *keeperState) open() []*Pool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.pools)
}

// all lists the open pools and those that are closing.
func (k *keeperState) all() []*Pool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(slices.Clone(k.pools), k.closing...)
}

// idle reports whether the goroutine has to end, and otherwise whether unpooled memory waits for work
// that has not stalled.
func (k *keeperState) idle() (idle, waiting bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	frees, waiting := k.frees.Waiting()
	if k.stopped || len(k.pools)+len(k.closing) == 0 && !frees {
		k.running = false
		return true, false
	}
	return false, waiting
}

func (k *keeperState) loop() {
	poll, look, tick := order.ShortPoll, time.Now().Add(order.ShortPoll), time.Now().Add(tickTime)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		idle, waiting := k.idle()
		if idle {
			return
		}
		due := tick
		if waiting && look.Before(tick) {
			due = look
		}
		timer.Reset(max(0, time.Until(due)))
		select {
		case <-k.wake:
			// A wake-up only moves the next look forward.
			poll = order.ShortPoll
			if soon := time.Now().Add(poll); soon.Before(look) {
				look = soon
			}
			continue
		case <-timer.C:
		}
		start := time.Now()
		k.frees.CompleteSome()
		if !start.Before(tick) {
			k.frees.Tick()
			k.tickPools()
			tick = time.Now().Add(tickTime)
		}
		// Looks that take long happen less often.
		poll = min(max(min(2*poll, order.LongPoll), 20*time.Since(start)), tickTime)
		look = time.Now().Add(poll)
	}
}

// tickPools ticks each pool, until the keeper is stopped.
func (k *keeperState) tickPools() {
	for _, p := range k.all() {
		k.mu.Lock()
		stopped := k.stopped
		k.mu.Unlock()
		if stopped {
			return
		}
		if p.tick() {
			k.remove(p, false)
		}
	}
}

func init() { diag.OnStop(stopBackground) }

// stopBackground ends the keeper and the reaper for good: see diag.StopBackground.
func stopBackground() {
	keeper.mu.Lock()
	keeper.stopped = true
	keeper.poke()
	keeper.mu.Unlock()
	keeper.ended.Wait()
	owner.StopReaper()
	shared.End()
}

// Pools lists the open pools, oldest first.
func Pools() []*Pool { return keeper.open() }

// TrimAll returns the idle memory of all open pools to the system, as [Pool.Trim] does, and the number of bytes.
func TrimAll() (freed uint64) {
	settleAll()
	for _, p := range slices.Backward(keeper.open()) { // pools above other pools first
		freed += p.Trim(0)
	}
	return freed
}

// Flush waits until memory that was released with work pending, and memory that
// C dropped, is back in its resources and pools. It does not wait for memory whose work has
// been pending for ten seconds. For tests, reports and orderly ends.
func Flush() {
	pools := keeper.all()
	emptyFronts()
	for _, p := range pools {
		p.cells.Sync()
	}
	plainCells.Sync()
	foreignCells.Sync()
	for _, p := range pools {
		p.pending.AwaitAll()
	}
	keeper.frees.Flush()
}
