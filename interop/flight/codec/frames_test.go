package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Get returns the requested length, also for a reused buffer that was shortened.
func TestFrames(t *testing.T) {
	var p Frames
	for range 3 {
		for _, n := range []int{0, 1, 100, frameBytes / 4, frameBytes/4 + 1, frameBytes - 1, frameBytes, frameBytes + 1, 1 << 20} {
			b := p.Get(n)
			require.Len(t, *b, n)
			if n > frameBytes/4 && n <= frameBytes {
				require.Equal(t, frameBytes, cap(*b))
			}
			*b = (*b)[:n/2] // gRPC may return a shortened buffer
			p.Put(b)
		}
	}
	p.Put(nil)
}
