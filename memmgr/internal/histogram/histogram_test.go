package histogram

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each duration is in the first bucket whose top is not less. Tops differ by at most an eighth.
func TestBuckets(t *testing.T) {
	for at := 1; at < Buckets; at++ {
		below, top := Top(at-1), Top(at)
		require.Greater(t, top, below)
		require.LessOrEqual(t, float64(top), float64(below)*1.125)
		require.Equal(t, at, bucket(top), "the top of bucket %d", at)
		require.Equal(t, at, bucket(below+1), "the least of bucket %d", at)
	}
	require.Equal(t, 0, bucket(0))
	require.Equal(t, 0, bucket(-time.Second), "a clock that went back")
	require.Equal(t, Buckets-1, bucket(1<<62))
}
