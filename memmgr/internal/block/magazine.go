package block

import "github.com/usmbridge/usmbridge/internal/owner"

// Magazine is a list of free blocks of one class, linked through their cells.
type Magazine struct {
	Head  owner.Link
	N     uint32
	Since uint32 // tick since which all blocks are idle; 0 means the present
}

// Push adds a block.
func (m *Magazine) Push(c *owner.Cell) {
	SetState(c, Cached)
	m.link(c)
}

func (m *Magazine) link(c *owner.Cell) {
	c.Next = m.Head
	m.Head = owner.LinkTo(c)
	m.N++
}

// Bytes returns the size of all blocks together.
func (m *Magazine) Bytes(k int) int64 { return ClassBytes[k] * int64(m.N) }

// Stack is a stack of magazines. The first cell of each magazine holds its number of blocks and the address
// of the next magazine in the field Magazine, and the tick since which they are idle in the field Requested.
type Stack struct {
	top owner.Link
}

// Empty reports whether the stack has no magazine.
func (s *Stack) Empty() bool { return s.top == 0 }

// TopBlocks returns the number of blocks of the magazine on top, 0 for an empty stack.
func (s *Stack) TopBlocks() (blocks uint32) {
	if !s.Empty() {
		_, blocks = magazineParts(s.top.Cell())
	}
	return blocks
}

// Push adds a magazine, of any class.
func (s *Stack) Push(m Magazine) {
	c := m.Head.Cell()
	c.Magazine, c.Requested = magazineWord(s.top, m.N), uint64(m.Since)
	s.top = m.Head
}

// Pop takes the magazine on top, an empty one from an empty stack.
func (s *Stack) Pop() (m Magazine) {
	if !s.Empty() {
		c := s.top.Cell()
		m.Head, m.Since = s.top, uint32(c.Requested)
		s.top, m.N = magazineParts(c)
	}
	return m
}

// TakeIdle takes the magazines that are idle since a tick or longer, which are the lowest of the stack.
func (s *Stack) TakeIdle(since uint32) (idle Stack) {
	var above *owner.Cell
	for link := s.top; link != 0; {
		c := link.Cell()
		if int32(uint32(c.Requested)-since) <= 0 {
			idle.top = link
			if above == nil {
				s.top = 0
			} else {
				_, n := magazineParts(above)
				above.Magazine = magazineWord(0, n)
			}
			break
		}
		above = c
		link, _ = magazineParts(c)
	}
	return idle
}

// PopBlock takes one block of the magazine on top, nil from an empty stack.
func (s *Stack) PopBlock() *owner.Cell {
	m := s.Pop()
	c := m.Head.Cell()
	if c == nil {
		return nil
	}
	SetState(c, InHand)
	if m.N > 1 {
		s.Push(Magazine{c.Next, m.N - 1, m.Since})
	}
	return c
}

// PushBlock adds one block of class k to the magazine on top, or begins a new magazine if that one is full. The
// magazine is idle since a tick.
func (s *Stack) PushBlock(c *owner.Cell, k int, since uint32) {
	SetState(c, Cached)
	var m Magazine
	if s.TopBlocks() < MagazineSize[k] {
		m = s.Pop()
	}
	m.link(c)
	m.Since = since
	s.Push(m)
}

// A word of 64 bits holds an address of user space (48 bits) and a number.
const magazineShift = 48

func magazineWord(next owner.Link, n uint32) uint64 { return uint64(n)<<magazineShift | uint64(next) }

func magazineParts(c *owner.Cell) (next owner.Link, n uint32) {
	w := c.Magazine
	return owner.Link(w & (1<<magazineShift - 1)), uint32(w >> magazineShift)
}
