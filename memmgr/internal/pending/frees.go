package pending

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// Frees holds memory that is in no pool and was released with work pending. Each piece has a dead cell. Frees
// calls a function for it once its work has ended, with no lock held.
type Frees struct {
	report func(error)

	mu      block.Mutex
	sets    map[order.Synchronizer]*freeSet // that hold memory
	added   uint64                          // pieces, ever
	running int                             // functions that run now
	ended   sync.Cond                       // running fell
}

// freeSet is the memory whose events are those of one Synchronizer. It is the lock of its Set: Unlock calls
// the functions of the memory whose work has ended, after it released the lock.
type freeSet struct {
	block.Mutex
	Set
	of    *Frees
	frees map[*owner.Cell]func()
	done  []func() // of cells that completed since the last Unlock
	n     int      // pieces whose function has not returned; of.mu guards it
}

// NewFrees returns Frees without memory. report is called, on any goroutine, when memory waits for work that
// has stalled, or whose end cannot be observed.
func NewFrees(report func(error)) *Frees {
	f := &Frees{report: report, sets: map[order.Synchronizer]*freeSet{}}
	f.ended.L = &f.mu
	return f
}

// Unlock implements sync.Locker.
func (s *freeSet) Unlock() {
	run, f := s.done, s.of
	if len(run) == 0 {
		s.Mutex.Unlock()
		return
	}
	s.done = nil
	f.mu.Lock()
	f.running += len(run)
	f.mu.Unlock()
	s.Mutex.Unlock()
	for _, free := range run {
		free()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running -= len(run)
	f.ended.Broadcast()
	if s.n -= len(run); s.n == 0 {
		delete(f.sets, s.sync)
	}
}

// setOf returns the set of a Synchronizer, with one more piece counted.
func (f *Frees) setOf(events order.Synchronizer) *freeSet {
	if !reflect.ValueOf(events).Comparable() {
		events = &struct{ order.Synchronizer }{events}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sets[events]
	if s == nil {
		s = &freeSet{of: f, frees: map[*owner.Cell]func(){}}
		block.SetRank(&s.Mutex, block.RankPool)
		s.Init(s, events, Owner{
			Complete: func(c *owner.Cell) {
				s.DropWork(c)
				s.done = append(s.done, s.frees[c])
				delete(s.frees, c)
				block.SetState(c, block.Free)
				owner.Recycle(c)
			},
			Serve: func() {},
			Report: func(n uint64) {
				f.report(fmt.Errorf("%d pieces of memory wait for work on the device: %w", n, ErrStalled))
			},
		})
		f.sets[events] = s
	}
	s.n++
	f.added++
	return s
}

// Add calls free once the work on the memory of a dead cell has ended, and recycles the cell before. The
// work is that of its event and, if the memory was shown to other libraries, of its queues.
func (f *Frees) Add(events order.Synchronizer, c *owner.Cell, free func()) {
	s := f.setOf(events)
	block.SetState(c, block.InHand)
	block.SetClass(c, block.NoClass)
	refused := false
	s.Lock()
	s.frees[c] = free
	if c.Flags()&order.ShownFlags == 0 {
		s.Set.Add(c)
	} else {
		block.SetState(c, block.InUse)
		s.AddReturned(c)
		s.fence()
		refused = order.BarriersPend(events) && slices.Contains(s.refused, c)
	}
	s.Unlock()
	if refused {
		f.report(fmt.Errorf("memory waits for work on the device: %w", errNoBarrier))
	}
}

var errNoBarrier = errors.New("its queue refuses barriers, so the end of its consumers' work cannot be observed")

// Waiting reports whether there is memory, and whether some of it waits for work that has not stalled.
func (f *Frees) Waiting() (held, unstalled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sets {
		unstalled = unstalled || s.Unstalled.Load() != 0
	}
	return len(f.sets) > 0, unstalled
}

// Unsettled reports whether there is memory for Settle.
func (f *Frees) Unsettled() bool {
	return slices.ContainsFunc(f.all(), func(s *freeSet) bool { return s.Set.Unsettled() })
}

// Settle settles the sets: see [Set.Settle]. It returns the first failure.
func (f *Frees) Settle() (failed error) {
	for _, s := range f.all() {
		if err := s.Set.Settle(); failed == nil {
			failed = err
		}
	}
	return failed
}

// SettleSoon settles the sets for a request that can get other memory: see [Set.SettleSoon].
func (f *Frees) SettleSoon(ctx context.Context, slack uint64) {
	for _, s := range f.all() {
		if s.Set.Unsettled() {
			_ = s.Set.SettleSoon(ctx, slack)
		}
	}
}

// Bound is SettleSoon if more than mostAwaiting pieces or mostAwaited bytes are for Settle.
func (f *Frees) Bound(ctx context.Context) {
	pieces, bytes := int32(0), uint64(0)
	for _, s := range f.all() {
		if !s.Set.Unsettled() {
			continue
		}
		s.Lock()
		pieces += s.unsettled.Load()
		bytes += s.UnsettledBytes(0)
		s.Unlock()
	}
	if pieces > mostAwaiting || bytes > mostAwaited {
		f.SettleSoon(ctx, 0)
	}
}

// SettleEnded frees memory on which the work of other libraries is known to have ended: see [Set.SettleEnded].
func (f *Frees) SettleEnded() {
	for _, s := range f.all() {
		s.SettleEnded()
	}
}

// all lists the sets.
func (f *Frees) all() []*freeSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.sets))
}

// CompleteSome frees memory whose work has ended. It looks at a bounded number of pieces whose work has not.
func (f *Frees) CompleteSome() {
	for _, s := range f.all() {
		s.CompleteSome(tickLooks)
	}
}

// Tick frees and reports stalled memory. It is called every TickTime.
func (f *Frees) Tick() {
	for _, s := range f.all() {
		s.Tick()
	}
}

// Flush waits until all memory is freed, including that which its functions add, but not for stalled work
// beyond the probes.
func (f *Frees) Flush() {
	for again := true; again; {
		f.mu.Lock()
		added := f.added
		f.mu.Unlock()
		for _, s := range f.all() {
			s.AwaitAll()
		}
		f.mu.Lock()
		for f.running > 0 {
			f.ended.Wait()
		}
		again = f.added != added
		f.mu.Unlock()
	}
}

// Stall makes all memory count as waiting for longer than the deadline. For tests.
func (f *Frees) Stall() {
	for _, s := range f.all() {
		s.Lock()
		s.Set.Stall()
		s.Unlock()
	}
}
