package block

import "github.com/usmbridge/usmbridge/internal/owner"

// Magazine is a list of free blocks of one class, linked through their cells.
type Magazine struct {
	Head owner.Link
	N    uint32
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
// of the next magazine in the field Magazine.
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
	m.Head.Cell().Magazine = magazineWord(s.top, m.N)
	s.top = m.Head
}

// Pop takes the magazine on top, an empty one from an empty stack.
func (s *Stack) Pop() (m Magazine) {
	if !s.Empty() {
		m.Head = s.top
		s.top, m.N = magazineParts(s.top.Cell())
	}
	return m
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
		s.Push(Magazine{c.Next, m.N - 1})
	}
	return c
}

// PushBlock adds one block of class k to the magazine on top, or begins a new magazine if that one is full.
func (s *Stack) PushBlock(c *owner.Cell, k int) {
	SetState(c, Cached)
	var m Magazine
	if s.TopBlocks() < MagazineSize[k] {
		m = s.Pop()
	}
	m.link(c)
	s.Push(m)
}

// A word of 64 bits holds an address of user space (48 bits) and a number.
const magazineShift = 48

func magazineWord(next owner.Link, n uint32) uint64 { return uint64(n)<<magazineShift | uint64(next) }

func magazineParts(c *owner.Cell) (next owner.Link, n uint32) {
	w := c.Magazine
	return owner.Link(w & (1<<magazineShift - 1)), uint32(w >> magazineShift)
}
