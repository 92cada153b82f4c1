package transfer

import (
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
)

// PieceBytes is the most that is read or written at a time: enough that a system call and a
// submission to a queue cost nothing beside it, and little enough that a cancelled transfer
// stops soon.
const PieceBytes = 1 << 20

// Part is one stretch of memory and the runs of bytes in a file that fill it, one after
// another in the memory, at equal distances in the file.
type Part struct {
	To     unsafe.Pointer // in Buffer
	Buffer memmgr.Buffer
	From   int64 // position of the first run
	Run    int64 // bytes of each run; 0 for none at all
	Stride int64 // bytes between the beginnings of runs
	Count  int64 // runs
	Swap   int   // see Elements
}

func (p *Part) bytes() int64 { return p.Run * p.Count }

// piece is a part's share that is read at a time: several whole runs, or bytes of one.
type piece struct {
	part *Part
	run  int64 // the first
	runs int64
	off  int64 // within the run, where it is one
	n    int64 // bytes of all
}

// from is the position of the first byte.
func (p *piece) from() int64 { return p.part.From + p.run*p.part.Stride + p.off }

// to is where the piece belongs.
func (p *piece) to() unsafe.Pointer { return unsafe.Add(p.part.To, p.run*p.part.Run+p.off) }

// cursor deals the pieces of parts out, in order of the parts.
type cursor struct {
	mu    sync.Mutex
	parts []Part
	run   int64
	off   int64
}

// next is the next piece; none is left when ok is false.
func (c *cursor) next() (p piece, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.parts) > 0 && (c.run == c.parts[0].Count || c.parts[0].Run == 0) {
		c.parts, c.run, c.off = c.parts[1:], 0, 0
	}
	if len(c.parts) == 0 {
		return piece{}, false
	}
	p = piece{part: &c.parts[0], run: c.run, runs: 1, off: c.off}
	if whole := PieceBytes / p.part.Run; whole > 0 {
		p.runs = min(whole, p.part.Count-c.run)
		p.n = p.runs * p.part.Run
		c.run += p.runs
		return p, true
	}
	p.n = min(p.part.Run-c.off, PieceBytes)
	if c.off += p.n; c.off == p.part.Run {
		c.run, c.off = c.run+1, 0
	}
	return p, true
}

// pieces is about how many there are: as many goroutines have something to do.
func pieces(parts []Part) int64 {
	n := int64(0)
	for i := range parts {
		n += (parts[i].bytes() + PieceBytes - 1) / PieceBytes
	}
	return n
}
