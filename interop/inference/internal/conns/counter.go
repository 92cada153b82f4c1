package conns

import "sync"

// Counter bounds a number for each key, such as the connections of an address group. Its methods may be
// called from any goroutine.
type Counter[K comparable] struct {
	most int
	mu   sync.Mutex
	held map[K]int
}

// NewCounter returns a Counter of at most most for each key.
func NewCounter[K comparable](most int) *Counter[K] {
	return &Counter[K]{most: most, held: map[K]int{}}
}

// Enter counts one for a key, and reports whether the bound allows it. Leave ends the count.
func (c *Counter[K]) Enter(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[key] >= c.most {
		return false
	}
	c.held[key]++
	return true
}

// Leave ends a count.
func (c *Counter[K]) Leave(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[key]--; c.held[key] == 0 {
		delete(c.held, key)
	}
}

// Len returns the number of keys with a count.
func (c *Counter[K]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}
