package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// magazine is a list of free blocks of one class, linked through their cells.
type magazine struct {
	head owner.Link
	n    uint32
}

// push adds a block.
func (m *magazine) push(c *owner.Cell) {
	setState(c, stateCached)
	c.Next = m.head
	m.head = owner.LinkTo(c)
	m.n++
}

// bytes returns the size of all blocks together.
func (m *magazine) bytes(k int) int64 { return classBytes[k] * int64(m.n) }

// magazineStack is a stack of magazines. The first cell of each magazine holds its
// number of blocks and the address of the next magazine in the field Magazine.
type magazineStack struct {
	top owner.Link
}

// push adds a magazine, of any class.
func (s *magazineStack) push(m magazine) {
	m.head.Cell().Magazine = magazineWord(s.top, m.n)
	s.top = m.head
}

// pop takes the magazine on top of a stack that is not empty.
func (s *magazineStack) pop() (m magazine) {
	m.head = s.top
	s.top, m.n = magazineParts(s.top.Cell())
	return m
}

// A word of 64 bits holds an address of user space (48 bits) and a number.
const magazineShift = 48

func magazineWord(next owner.Link, n uint32) uint64 { return uint64(n)<<magazineShift | uint64(next) }

func magazineParts(c *owner.Cell) (next owner.Link, n uint32) {
	w := c.Magazine
	return owner.Link(w & (1<<magazineShift - 1)), uint32(w >> magazineShift)
}

// depot holds the cached blocks that no shard holds. Their bytes count in the budget.
type depot struct {
	classes [numClasses]depotClass
	cold    magazineStack // magazines of all classes that are to be freed
	bytes   int64         // in classes and cold
	hand    int           // the class that next visits
	off     bool          // nothing is cached: the pool is pressed or closed
	budget  *cacheBudget  // shared with the front
}

// depotClass is the part of the depot for one class.
type depotClass struct {
	magazineStack
	blocks uint32
	low    uint32 // the fewest blocks since the last call of age
}

func (d *depotClass) took(n uint32) {
	d.blocks -= n
	d.low = min(d.low, d.blocks)
}

// pop takes a magazine with its bytes of the budget; an empty one when there is none.
func (d *depot) pop(k int) magazine {
	r := &d.classes[k]
	if r.top == 0 {
		return magazine{}
	}
	m := r.magazineStack.pop()
	r.took(m.n)
	d.bytes -= m.bytes(k)
	return m
}

// popBlock takes one block for a user, nil when there is none.
func (d *depot) popBlock(k int) *owner.Cell {
	r := &d.classes[k]
	c := r.top.Cell()
	if c == nil {
		return nil
	}
	next, n := magazineParts(c)
	setState(c, stateInHand)
	r.top = next
	if n > 1 {
		r.top = c.Next
		r.top.Cell().Magazine = magazineWord(next, n-1)
	}
	r.took(1)
	d.bytes -= classBytes[k]
	d.budget.give(classBytes[k])
	return c
}

// push adds a magazine whose bytes of the budget are taken. While nothing is
// cached it returns these bytes and reports false.
func (d *depot) push(m magazine, k int) bool {
	if d.off {
		d.budget.give(m.bytes(k))
		return false
	}
	d.classes[k].push(m)
	d.classes[k].blocks += m.n
	d.bytes += m.bytes(k)
	return true
}

// put adds a block, if the budget allows it.
func (d *depot) put(c *owner.Cell, k int) bool {
	if d.off || d.budget.take(classBytes[k], 0) == 0 {
		return false
	}
	setState(c, stateCached)
	r := &d.classes[k]
	next, n := r.top, uint32(0)
	if top := r.top.Cell(); top != nil {
		if below, has := magazineParts(top); has < magazineSize[k] {
			next, n = below, has
		}
	}
	c.Next = 0
	if n > 0 {
		c.Next = r.top
	}
	c.Magazine = magazineWord(next, n+1)
	r.top = owner.LinkTo(c)
	r.blocks++
	d.bytes += classBytes[k]
	return true
}

// next removes a magazine of one of the classes after the last one that it visited. It visits a few, and
// returns an empty magazine if they have none.
func (d *depot) next() (m magazine, k int) {
	for range coldTries {
		k = d.hand
		d.hand = (d.hand + 1) % numClasses
		if m = d.pop(k); m.n != 0 {
			break
		}
	}
	return m, k
}

// addCold adds a magazine, with its bytes of the budget, to those that are to be freed.
func (d *depot) addCold(m magazine, k int) {
	d.cold.push(m)
	d.bytes += m.bytes(k)
}

// addColdStack adds all magazines of a stack to those that are to be freed.
func (d *depot) addColdStack(s magazineStack) {
	for s.top != 0 {
		m := s.pop()
		d.addCold(m, blockClass(m.head.Cell()))
	}
}

// age moves the blocks that were not needed since the last call to the cold ones. In each class, these are
// as many as were always there since then.
func (d *depot) age() {
	for k := range d.classes {
		r := &d.classes[k]
		for r.low != 0 {
			_, n := magazineParts(r.top.Cell())
			if n > r.low {
				break
			}
			low := r.low - n
			d.addCold(d.pop(k), k)
			r.low = low
		}
		r.low = r.blocks
	}
}
