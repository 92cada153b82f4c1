package calls

import (
	"context"
	"sync"
)

// Turns lets one goroutine at a time work on each key. The zero value is ready.
type Turns struct {
	mu    sync.Mutex
	held  map[string]*Turn
	stuck int
}

// Turn is the right to work on a key.
type Turn struct {
	of    *Turns
	key   string
	over  chan struct{} // closed by Leave or Strand
	stuck bool
	ended bool
}

// Take waits until no goroutine works on the key. It returns nil if that work is stuck, or if ctx ends first.
func (t *Turns) Take(ctx context.Context, key string) *Turn {
	for ctx.Err() == nil {
		t.mu.Lock()
		before := t.held[key]
		if before == nil {
			if t.held == nil {
				t.held = map[string]*Turn{}
			}
			mine := &Turn{of: t, key: key, over: make(chan struct{})}
			t.held[key] = mine
			t.mu.Unlock()
			return mine
		}
		stuck := before.stuck
		t.mu.Unlock()
		if stuck {
			return nil
		}
		select {
		case <-before.over:
		case <-ctx.Done():
		}
	}
	return nil
}

// Leave ends the turn.
func (t *Turn) Leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.ended = true
	delete(t.of.held, t.key)
	if t.stuck {
		t.of.stuck--
	} else {
		close(t.over)
	}
}

// Strand marks the work as stuck until Leave. It returns false if the turn has ended.
func (t *Turn) Strand() bool {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.ended {
		return false
	}
	t.stuck = true
	t.of.stuck++
	close(t.over)
	return true
}

// Stuck returns the number of keys whose work is stuck.
func (t *Turns) Stuck() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stuck
}
