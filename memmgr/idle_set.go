package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// idleSet holds dedicated segments that nobody uses, ordered by size and by age.
// Adding, removing and finding take a number of steps that grows with the logarithm
// of how many sizes there are. The order by size is a treap, a search tree that
// random priorities keep flat, with one node for each size; other segments of the
// size hang on that one.
type idleSet struct {
	nodes          []idleNode // the first stands for none
	spare          int32      // nodes out of use, linked by newer
	root           int32
	oldest, newest int32
	count          int
	draw           uint32
}

// idleNode is one of them. Its number is in the cell's Magazine.
type idleNode struct {
	cell         owner.Link // dead; keeps the segment's block
	address      uintptr
	size         uintptr
	tick         uint32 // the pool's tick at which it went out of use
	priority     uint32
	left, right  int32
	above, below int32 // of the same size: towards the one in the tree, and away
	older, newer int32
}

// add puts in a cell whose segment went out of use.
func (s *idleSet) add(c *owner.Cell, tick uint32) {
	at := s.spare
	if at != 0 {
		s.spare = s.nodes[at].newer
	} else {
		if len(s.nodes) == 0 {
			s.nodes = append(s.nodes, idleNode{})
		}
		at = int32(len(s.nodes))
		s.nodes = append(s.nodes, idleNode{})
	}
	s.draw = s.draw*1664525 + 1013904223 // a linear congruential generator
	n := &s.nodes[at]
	*n = idleNode{
		cell: owner.LinkTo(c), address: c.Address, size: uintptr(c.Size), tick: tick, priority: s.draw, older: s.newest,
	}
	last := s.newest
	if last != 0 {
		s.nodes[last].newer = at
	} else {
		s.oldest = at
	}
	s.newest = at
	c.Magazine = uint64(at)
	s.count++
	if last != 0 && s.nodes[last].size == n.size {
		s.hang(last, at) // as often
		return
	}
	if top := s.from(n.size); top != 0 && s.nodes[top].size == n.size {
		s.hang(top, at)
		return
	}
	below, above := s.split(s.root, n.size)
	s.root = s.merge(s.merge(below, at), above)
}

// hang puts a node right below one of its size, in the tree or hanging.
func (s *idleSet) hang(top, at int32) {
	n := &s.nodes[at]
	n.above, n.below = top, s.nodes[top].below
	s.nodes[top].below = at
	if n.below != 0 {
		s.nodes[n.below].above = at
	}
}

// remove takes a node out and returns its cell.
func (s *idleSet) remove(at int32) *owner.Cell {
	n := &s.nodes[at]
	if n.below != 0 {
		s.nodes[n.below].above = n.above
	}
	if n.above != 0 {
		s.nodes[n.above].below = n.below
	} else {
		s.uproot(at)
	}
	if n.older != 0 {
		s.nodes[n.older].newer = n.newer
	} else {
		s.oldest = n.newer
	}
	if n.newer != 0 {
		s.nodes[n.newer].older = n.older
	} else {
		s.newest = n.older
	}
	n.newer, s.spare = s.spare, at
	s.count--
	return n.cell.Cell()
}

// uproot takes a node out of the tree; the next of its size takes its place.
func (s *idleSet) uproot(at int32) {
	n := &s.nodes[at]
	link := &s.root
	for *link != at {
		if up := &s.nodes[*link]; up.size < n.size {
			link = &up.right
		} else {
			link = &up.left
		}
	}
	if heir := n.below; heir != 0 {
		h := &s.nodes[heir]
		h.left, h.right, h.priority = n.left, n.right, n.priority
		*link = heir
		return
	}
	*link = s.merge(n.left, n.right)
}

// split divides a tree into smaller sizes and the rest.
func (s *idleSet) split(tree int32, size uintptr) (below, above int32) {
	if tree == 0 {
		return 0, 0
	}
	n := &s.nodes[tree]
	if n.size < size {
		n.right, above = s.split(n.right, size)
		return tree, above
	}
	below, n.left = s.split(n.left, size)
	return below, tree
}

// merge joins two trees, all of one before all of the other.
func (s *idleSet) merge(below, above int32) int32 {
	if below == 0 {
		return above
	}
	if above == 0 {
		return below
	}
	b, a := &s.nodes[below], &s.nodes[above]
	if b.priority >= a.priority {
		b.right = s.merge(b.right, above)
		return below
	}
	a.left = s.merge(below, a.left)
	return above
}

// from returns the node of the smallest size that is at least so large, 0 for none.
func (s *idleSet) from(size uintptr) (first int32) {
	for at := s.root; at != 0; {
		if n := &s.nodes[at]; n.size < size {
			at = n.right
		} else {
			first, at = at, n.left
		}
	}
	return first
}

// idleTries is how many segments are looked at for one that lies as asked: only an
// alignment beyond that of pages lets more than one be looked at.
const idleTries = 256

// fit returns a segment of the smallest size between least and most bytes that is
// aligned as asked, 0 for none.
func (s *idleSet) fit(least, most, align uintptr) int32 {
	if at := s.newest; at != 0 && s.nodes[at].size == least && s.nodes[at].address&(align-1) == 0 {
		return at // as often
	}
	tries := idleTries
	for top := s.from(least); top != 0 && s.nodes[top].size <= most; top = s.from(s.nodes[top].size + 1) {
		// The one in the tree comes last, so that the tree stays as it is.
		for at := s.nodes[top].below; at != 0; at = s.nodes[at].below {
			if s.nodes[at].address&(align-1) == 0 {
				return at
			}
			if tries--; tries == 0 {
				return 0
			}
		}
		if s.nodes[top].address&(align-1) == 0 {
			return top
		}
		if tries--; tries == 0 {
			return 0
		}
	}
	return 0
}
