package memmgr

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/syclobj"
)

var errLimit = errors.New("the limit is reached")

// Limit bounds the bytes in use of an upstream: the sum of the requested sizes. A request
// beyond the limit fails with an [*OutOfMemoryError]; a Limit never waits. A [Pool] above a
// limit waits for requests with a context. Several pools may share one limit. Safe for
// concurrent use.
type Limit struct {
	from   Resource
	budget *sharedBudget
}

// sharedBudget is the budget of a limit, and of all pools above it. The pools of [Default]
// share one.
//
// While requests of a pool wait for room, waits has its waitlist. The other pools of the budget read
// waiting on their slow path: they count the bytes that they serve, and wake the waiters when they have
// memory for them.
type sharedBudget struct {
	limit, used atomic.Uint64
	served      atomic.Uint64 // bytes that pools handed out while requests of other pools waited
	waiting     atomic.Int32  // length of waits
	mu          sync.Mutex    // a leaf in the lock order
	waits       []*waitlist
}

// enter adds the waitlist of a pool.
func (b *sharedBudget) enter(l *waitlist) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = append(b.waits, l)
	b.waiting.Store(int32(len(b.waits)))
}

// leave removes the waitlist of a pool.
func (b *sharedBudget) leave(l *waitlist) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = slices.DeleteFunc(b.waits, func(other *waitlist) bool { return other == l })
	b.waiting.Store(int32(len(b.waits)))
}

// waitsFor reports whether requests of another pool than that of l wait for room.
func (b *sharedBudget) waitsFor(l *waitlist) bool {
	n := b.waiting.Load()
	return n > 1 || n == 1 && l.budget != b
}

// offer wakes the waiters of other pools than that of l for which the room and so many more bytes are
// enough. l may be nil.
func (b *sharedBudget) offer(l *waitlist, bytes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.waits {
		if other != l && bytes+b.room() >= other.least.Load() && !other.offered.Swap(true) {
			other.signalPoller()
		}
	}
}

// unlimited is the limit of a budget without a bound.
const unlimited = math.MaxUint64

func newSharedBudget(bytes uint64) *sharedBudget {
	b := &sharedBudget{}
	b.limit.Store(bytes)
	return b
}

// room returns the bytes that are left: 0 if the limit was lowered below the bytes in use.
func (b *sharedBudget) room() uint64 {
	used, limit := b.used.Load(), b.limit.Load()
	return limit - min(used, limit)
}

// NewLimit bounds the bytes that may be in use of an upstream.
func NewLimit(from Resource, bytes uint64) *Limit {
	return &Limit{from: present(from), budget: newSharedBudget(bytes)}
}

// Place implements [Resource].
func (l *Limit) Place() *syclobj.Place { return l.from.Place() }

// Upstream returns the resource that the limit bounds.
func (l *Limit) Upstream() Resource { return l.from }

// Bytes returns the limit.
func (l *Limit) Bytes() uint64 { return l.budget.limit.Load() }

// Used returns the bytes in use.
func (l *Limit) Used() uint64 { return l.budget.used.Load() }

// bounds reports whether there is a limit.
func (l *Limit) bounds() bool { return l.Bytes() != unlimited }

// Allocate implements [Resource].
func (l *Limit) Allocate(r Request) (Block, error) {
	if err := r.Check(); err != nil {
		return Block{}, err
	}
	if err := l.reserve(&r); err != nil {
		return Block{}, err
	}
	got := false
	defer func() { // also if the resource panics
		if !got {
			l.giveBack(uint64(r.Size))
		}
	}()
	b, err := allocateFrom(l.from, r)
	got = err == nil
	return b, err
}

// Free implements [Resource].
func (l *Limit) Free(b Block) {
	n := uint64(b.Requested)
	l.from.Free(b)
	l.giveBack(n)
}

func (l *Limit) reserve(r *Request) error {
	need := uint64(r.Size)
	for {
		used := l.budget.used.Load()
		if limit := l.budget.limit.Load(); used > limit || need > limit-used {
			return &OutOfMemoryError{
				Request: *r, Place: l.Place(), Rounded: need, Allocated: used, Limit: limit, Err: errLimit,
			}
		}
		if l.budget.used.CompareAndSwap(used, used+need) {
			return nil
		}
	}
}

func (l *Limit) giveBack(n uint64) {
	l.budget.used.Add(-n)
	if l.budget.waiting.Load() != 0 {
		l.budget.offer(nil, 0)
	}
}
