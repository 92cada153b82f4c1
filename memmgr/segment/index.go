package segment

import (
	"sync"
	"sync/atomic"
)

// live is the segments of this process by address.
var live index

// index is a set of segments that do not overlap, ordered by address: a treap whose
// nodes never change, so that those who search take no lock and see one state of it.
// A change copies the path to the root, which costs little beside the system calls
// that a segment is made with.
type index struct {
	root atomic.Pointer[node]
	mu   sync.Mutex // held to change root
}

type node struct {
	record      *record
	left, right *node
}

func (n *node) base() uintptr { return n.record.region.base }

// priority spreads addresses evenly (splitmix64), so that the depth is logarithmic
// whatever the order of changes is.
func (n *node) priority() uint64 {
	z := uint64(n.base()) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// find returns the segment that an address lies in, nil when there is none.
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

// remove takes the segment out that begins at an address and that belongs to a
// resource; nil when there is none.
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

// split divides a treap into what lies below an address and the rest.
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

// without is the treap less the segment at an address, which is in it.
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

// join makes one treap of two, all of the first lying below all of the second.
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
