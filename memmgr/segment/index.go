package segment

import (
	"sync"
	"sync/atomic"
)

// live contains the allocated segments of this process.
var live index

// index is a set of segments, ordered by address, that do not overlap. It is a treap of immutable
// nodes, so find takes no lock and reads a consistent state. A change copies the path from the root,
// which costs little compared with the system calls that make a segment.
type index struct {
	root atomic.Pointer[node]
	mu   sync.Mutex // guards writes of root
}

type node struct {
	record      *record
	left, right *node
}

func (n *node) base() uintptr { return n.record.region.base }

// priority is a hash of the address (splitmix64). It keeps the expected depth logarithmic for any
// order of changes.
func (n *node) priority() uint64 {
	z := uint64(n.base()) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// find returns the segment that contains an address, or nil.
func (x *index) find(address uintptr) *record {
	var best *record
	for n := x.root.Load(); n != nil; {
		if address < n.base() {
			n = n.left
			continue
		}
		best, n = n.record, n.right
	}
	if best == nil || address-best.region.base >= best.region.size {
		return nil
	}
	return best
}

func (x *index) add(r *record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.root.Store(insert(x.root.Load(), &node{record: r}))
}

// remove removes and returns the segment of a resource that begins at an address, or returns nil.
func (x *index) remove(base uintptr, of *Resource) *record {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.find(base)
	if r == nil || r.region.base != base || r.of != of {
		return nil
	}
	x.root.Store(without(x.root.Load(), base))
	return r
}

func insert(n, x *node) *node {
	if n == nil {
		return x
	}
	if x.priority() > n.priority() {
		x.left, x.right = split(n, x.base())
		return x
	}
	c := *n
	if x.base() < n.base() {
		c.left = insert(n.left, x)
	} else {
		c.right = insert(n.right, x)
	}
	return &c
}

// split divides a treap into the segments below an address and the rest.
func split(n *node, at uintptr) (below, rest *node) {
	if n == nil {
		return nil, nil
	}
	c := *n
	if n.base() < at {
		c.right, rest = split(n.right, at)
		return &c, rest
	}
	below, c.left = split(n.left, at)
	return below, &c
}

// without returns the treap without the segment at base, which must be in it.
func without(n *node, base uintptr) *node {
	c := *n
	switch {
	case base < n.base():
		c.left = without(n.left, base)
	case base > n.base():
		c.right = without(n.right, base)
	default:
		return join(n.left, n.right)
	}
	return &c
}

// join merges two treaps. All addresses of a are below those of b.
func join(a, b *node) *node {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	if a.priority() > b.priority() {
		c := *a
		c.right = join(a.right, b)
		return &c
	}
	c := *b
	c.left = join(a, b.left)
	return &c
}
