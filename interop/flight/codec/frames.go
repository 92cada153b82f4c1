package codec

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// frameBytes is what grpc-go puts into an HTTP/2 frame.
const frameBytes = 16 << 10

// Frames is a pool for gRPC to read frames to (experimental.BufferPool); the zero value is
// ready, and any goroutine may use it. gRPC's own clears each buffer before it is
// filled, which took a twelfth of a transfer's processor time; what is read here is as
// long as what is used, so that nobody sees what was there before. Small frames are
// allocated: a message of a few bytes that waits does not hold 16 KiB.
type Frames struct{ full sync.Pool }

var _ mem.BufferPool = (*Frames)(nil)

// Get implements mem.BufferPool: a buffer of n bytes, with whatever was in it before.
func (p *Frames) Get(n int) *[]byte {
	if n > frameBytes/4 && n <= frameBytes {
		if b, ok := p.full.Get().(*[]byte); ok {
			*b = (*b)[:n]
			return b
		}
		b := make([]byte, n, frameBytes)
		return &b
	}
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool.
func (p *Frames) Put(b *[]byte) {
	if b != nil && cap(*b) == frameBytes {
		p.full.Put(b)
	}
}
