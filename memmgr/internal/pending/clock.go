package pending

// stallClock decides which blocks have stalled. Each block has a stamp, which
// increases from block to block, so that the time of each block does not have to be stored.
type stallClock struct {
	stamp uint64             // of the last block
	late  uint64             // blocks up to this stamp have stalled if they are still pending
	marks [stallTicks]uint64 // the stamp at each of the last ticks
	ticks uint32
}

// next returns the stamp of a new block.
func (s *stallClock) next() uint64 {
	s.stamp++
	return s.stamp
}

func (s *stallClock) isLate(stamp uint64) bool { return stamp <= s.late }

func (s *stallClock) tick() {
	s.ticks++
	mark := &s.marks[s.ticks%stallTicks]
	s.late, *mark = max(s.late, *mark), s.stamp
}
