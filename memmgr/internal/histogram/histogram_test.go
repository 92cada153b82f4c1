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

func TestCountsAndPercentiles(t *testing.T) {
	var h Histogram
	h.Add(100, 90)
	h.Add(time.Millisecond, 9)
	h.Add(time.Second, 1)
	require.EqualValues(t, 100, h.Total())
	counts, longest := h.Counts()
	require.Equal(t, time.Second, longest)
	tops := Percentiles(counts, 500, 900, 990, 999)
	require.Equal(t, []time.Duration{Floor, Floor}, tops[:2])
	require.Equal(t, []time.Duration{Top(bucket(time.Millisecond)), Top(bucket(time.Second))}, tops[2:])
	var octaves []int64
	EachOctave(counts, func(_ time.Duration, calls int64) bool {
		octaves = append(octaves, calls)
		return true
	})
	require.Equal(t, []int64{90, 9, 1}, octaves)
}
