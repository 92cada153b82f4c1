package memmgr

import (
	"errors"
	"math"
	"sync/atomic"
)

var errLimit = errors.New("the limit is reached")

// Limit bounds the bytes that its users may hold at a time, counted as they
// were asked for. A request beyond the limit is refused with an
// [*OutOfMemoryError]. It never waits: a [Pool] above a limit does, for requests
// with a context, and several pools may stand on one limit.
type Limit struct {
	upstream
	budget *limitBudget
}

// limitBudget is what limits count in: one of its own for each, or the one that the
// pools of [Default] share.
type limitBudget struct{ limit, used atomic.Uint64 }

// unlimited is the limit of a budget that has none.
const unlimited = math.MaxUint64

func newLimitBudget(bytes uint64) *limitBudget {
	b := &limitBudget{}
	b.limit.Store(bytes)
	return b
}

// room returns the bytes that are left; none when the limit came down below what is used.
func (b *limitBudget) room() uint64 {
	used, limit := b.used.Load(), b.limit.Load()
	return limit - min(used, limit)
}

// NewLimit bounds an upstream to so many bytes.
func NewLimit(from Resource, bytes uint64) *Limit {
	return &Limit{upstream: over(from), budget: newLimitBudget(bytes)}
}

// Bytes returns the limit.
func (l *Limit) Bytes() uint64 { return l.budget.limit.Load() }

// Used returns the bytes held now.
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
	b, err := l.from.Allocate(r)
	if err != nil {
		l.giveBack(uint64(r.Size))
	}
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
			return l.refusal(r, used)
		}
		if l.budget.used.CompareAndSwap(used, used+need) {
			return nil
		}
	}
}

// refusal tells of a request beyond the limit, of which so much is used.
func (l *Limit) refusal(r *Request, used uint64) error {
	return &OutOfMemoryError{
		Request: *r, Place: l.Place(), Rounded: uint64(r.Size), Allocated: used, Limit: l.Bytes(), Err: errLimit,
	}
}

func (l *Limit) giveBack(n uint64) { l.budget.used.Add(-n) }
