package cute

import (
	"sync"
	"sync/atomic"
)

// Cache holds at most a fixed number of values by Key. Its use is to have what
// belongs to a kernel, be it the kernel or a converted tensor, once per key.
//
// All methods may be called by many goroutines at a time. A look-up takes no
// lock and allocates nothing. When the cache is full, an addition evicts a value
// that was not looked up lately (the clock algorithm: each value gets a second
// chance for having been used since the hand last passed).
type Cache[V any] struct {
	buckets []atomic.Pointer[entry[V]] // chains by hash; a power of two of them
	evicted func(Key, V)

	mu   sync.Mutex // for what follows and for every change of a chain
	ring []*entry[V]
	hand int
	room int
}

type entry[V any] struct {
	key   Key
	value V
	next  atomic.Pointer[entry[V]]
	used  atomic.Bool
}

// NewCache returns a cache of at most capacity values, at least 1. evicted, if
// not nil, is called once for each value that leaves the cache, in the goroutine
// that caused it and with no lock held: by an addition to a full cache, a
// replacement, Remove or Clear. A value looked up before may still be in use then.
func NewCache[V any](capacity int, evicted func(Key, V)) *Cache[V] {
	capacity = max(capacity, 1)
	size := 1
	for size < 2*capacity {
		size *= 2
	}
	return &Cache[V]{
		buckets: make([]atomic.Pointer[entry[V]], size),
		evicted: evicted,
		room:    capacity,
	}
}

// Get looks a value up.
func (c *Cache[V]) Get(key Key) (value V, ok bool) {
	if e := c.find(&key); e != nil {
		return e.value, true
	}
	return value, false
}

func (c *Cache[V]) find(key *Key) *entry[V] {
	for e := c.bucket(key).Load(); e != nil; e = e.next.Load() {
		if e.key.sum == key.sum && e.key == *key {
			// Writing only the first time keeps the line shared between cores.
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e
		}
	}
	return nil
}

func (c *Cache[V]) bucket(key *Key) *atomic.Pointer[entry[V]] {
	return &c.buckets[key.sum&uint64(len(c.buckets)-1)]
}

// GetOrAdd looks a value up, or makes it and adds it. Several goroutines that
// miss at once each make one; the first to add wins, and the others' go through
// the eviction function. An error of make is returned and nothing is added.
func (c *Cache[V]) GetOrAdd(key Key, make func() (V, error)) (V, error) {
	if e := c.find(&key); e != nil {
		return e.value, nil
	}
	value, err := make()
	if err != nil {
		return value, err
	}
	c.mu.Lock()
	if e := c.find(&key); e != nil {
		c.mu.Unlock()
		c.drop(key, value)
		return e.value, nil
	}
	c.addLocked(key, value)
	return value, nil
}

// Put adds a value or replaces the one under the key.
func (c *Cache[V]) Put(key Key, value V) {
	c.mu.Lock()
	old := c.find(&key)
	if old == nil {
		c.addLocked(key, value)
		return
	}
	// Entries never change, so that look-ups need no lock: a new one takes the
	// old one's place.
	for i, e := range c.ring {
		if e == old {
			c.unlink(old)
			c.ring[i] = c.link(key, value)
			break
		}
	}
	c.mu.Unlock()
	c.drop(old.key, old.value)
}

// addLocked adds a new key and unlocks the cache.
func (c *Cache[V]) addLocked(key Key, value V) {
	if len(c.ring) < c.room {
		c.ring = append(c.ring, c.link(key, value))
		c.mu.Unlock()
		return
	}
	for c.ring[c.hand].used.Swap(false) {
		c.hand = (c.hand + 1) % len(c.ring)
	}
	old := c.ring[c.hand]
	c.unlink(old)
	c.ring[c.hand] = c.link(key, value)
	c.hand = (c.hand + 1) % len(c.ring)
	c.mu.Unlock()
	c.drop(old.key, old.value)
}

// link puts a new entry at the head of its chain.
func (c *Cache[V]) link(key Key, value V) *entry[V] {
	e := &entry[V]{key: key, value: value}
	head := c.bucket(&key)
	e.next.Store(head.Load())
	head.Store(e)
	return e
}

// unlink takes an entry out of its chain. Its own link stays, for look-ups that
// stand on it.
func (c *Cache[V]) unlink(old *entry[V]) {
	at := c.bucket(&old.key)
	for e := at.Load(); e != old; e = at.Load() {
		at = &e.next
	}
	at.Store(old.next.Load())
}

func (c *Cache[V]) drop(key Key, value V) {
	if c.evicted != nil {
		c.evicted(key, value)
	}
}

// Remove takes the value under the key out and says whether there was one.
func (c *Cache[V]) Remove(key Key) bool {
	c.mu.Lock()
	for i, e := range c.ring {
		if e.key == key {
			c.unlink(e)
			last := len(c.ring) - 1
			c.ring[i] = c.ring[last]
			c.ring[last] = nil
			c.ring = c.ring[:last]
			c.hand = 0
			c.mu.Unlock()
			c.drop(e.key, e.value)
			return true
		}
	}
	c.mu.Unlock()
	return false
}

// Clear takes all values out.
func (c *Cache[V]) Clear() {
	c.mu.Lock()
	ring := c.ring
	c.ring, c.hand = nil, 0
	for i := range c.buckets {
		c.buckets[i].Store(nil)
	}
	c.mu.Unlock()
	for _, e := range ring {
		c.drop(e.key, e.value)
	}
}

// Len returns the number of values held.
func (c *Cache[V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ring)
}

// Cap returns the number of values the cache holds at most.
func (c *Cache[V]) Cap() int { return c.room }
