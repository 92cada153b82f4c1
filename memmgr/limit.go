package memmgr

import (
	"context"
	"sync"
)

// Limit bounds the bytes that its users may hold at a time, counted as they
// were asked for. A request beyond the limit is refused with an
// [*OutOfMemoryError], or waits when the limit was made with [Blocking].
type Limit struct {
	upstream
	limit    uint64
	blocking bool

	mu      sync.Mutex
	used    uint64
	waiters []*limitWaiter // in order of arrival
}

type limitWaiter struct {
	need  uint64
	ready chan struct{} // closed when the bytes were reserved for it
}

// LimitOption changes what a limit does.
type LimitOption func(*Limit)

// Blocking makes requests wait, in order of arrival, until others release
// enough; [Request.Context] bounds the wait. A request larger than the limit is
// refused still. Put a blocking limit above a [Pool], not below it: a pool that
// waits for its upstream cannot see that it could give its own idle memory back.
func Blocking() LimitOption { return func(l *Limit) { l.blocking = true } }

// NewLimit bounds an upstream.
func NewLimit(from Resource, bytes uint64, options ...LimitOption) *Limit {
	l := &Limit{upstream: over(from), limit: bytes}
	for _, o := range options {
		o(l)
	}
	return l
}

// Bytes returns the limit.
func (l *Limit) Bytes() uint64 { return l.limit }

// Used returns the bytes held now.
func (l *Limit) Used() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

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
	l.mu.Lock()
	if l.used+need <= l.limit && len(l.waiters) == 0 {
		l.used += need
		l.mu.Unlock()
		return nil
	}
	if !l.blocking || need > l.limit {
		err := &OutOfMemoryError{
			Request: *r, Place: l.Place(), Rounded: need, Allocated: l.used, Limit: l.limit,
			Err: errLimit,
		}
		l.mu.Unlock()
		return err
	}
	w := &limitWaiter{need: need, ready: make(chan struct{})}
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	ctx := r.Context
	if ctx == nil {
		ctx = context.Background()
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return l.abandon(w, r, ctx.Err())
	}
}

// abandon ends a wait; the bytes may have come at the last moment.
func (l *Limit) abandon(w *limitWaiter, r *Request, cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.waiters {
		if l.waiters[i] == w {
			l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
			l.admit()
			return &OutOfMemoryError{
				Request: *r, Place: l.Place(), Rounded: w.need, Allocated: l.used, Limit: l.limit, Err: cause,
			}
		}
	}
	return nil
}

func (l *Limit) giveBack(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= n
	l.admit()
}

// admit lets those in who fit, in order. l.mu is held.
func (l *Limit) admit() {
	for len(l.waiters) > 0 && l.used+l.waiters[0].need <= l.limit {
		l.used += l.waiters[0].need
		close(l.waiters[0].ready)
		l.waiters = l.waiters[1:]
	}
}
