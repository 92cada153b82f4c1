package transfer

import (
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
)

// PieceBytes is the maximum size of one read or write. The costs of a system call and of a submission
// to a queue are negligible at this size, and a cancelled transfer stops soon.
const PieceBytes = 1 << 20

// Part is a contiguous range of memory and the runs of bytes in a file that fill it. The runs are
// adjacent in memory and at equal distances in the file.
type Part struct {
	To     unsafe.Pointer // an address in Buffer
	Buffer memmgr.Buffer
	From   int64 // position of the first run
	Run    int64 // bytes of each run; 0 if the part is empty
	Stride int64 // bytes from the beginning of a run to the next
	Count  int64 // number of runs
	Swap   int   // as in Elements
}

func (p *Part) bytes() int64 { return p.Run * p.Count }

// piece is the share of a part that is read at a time: several whole runs, or some bytes of one.
type piece struct {
	part *Part
	run  int64 // the first run
	runs int64 // number of runs
	off  int64 // offset within the run, if runs is 1
	n    int64 // bytes of the piece
}

// from returns the position of the first byte in the file.
func (p *piece) from() int64 { return p.part.From + p.run*p.part.Stride + p.off }

// to returns the address of the piece in memory.
func (p *piece) to() unsafe.Pointer { return unsafe.Add(p.part.To, p.run*p.part.Run+p.off) }

// cursor hands out the pieces of parts, in the order of the parts. It is safe for concurrent use.
type cursor struct {
	mu    sync.Mutex
	parts []Part
	run   int64
	off   int64
}

// next returns the next piece. ok is false if none is left.
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

// pieces returns the approximate number of pieces, which bounds the useful number of goroutines.
func pieces(parts []Part) int64 {
	n := int64(0)
	for i := range parts {
		n += (parts[i].bytes() + PieceBytes - 1) / PieceBytes
	}
	return n
}
