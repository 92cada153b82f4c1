package flight

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// frameBytes is what grpc-go puts into an HTTP/2 frame.
const frameBytes = 16 << 10

// frames is where gRPC reads frames to. Its own pool clears each buffer before it is
// filled, which took a twelfth of a transfer's processor time; what is read here is as
// long as what is used, so that nobody sees what was there before. Small frames are
// allocated: a message of a few bytes that waits does not hold 16 KiB.
type frames struct{ full sync.Pool }

var _ mem.BufferPool = (*frames)(nil)

func (p *frames) Get(n int) *[]byte {
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

func (p *frames) Put(b *[]byte) {
	if b != nil && cap(*b) == frameBytes {
		p.full.Put(b)
	}
}
