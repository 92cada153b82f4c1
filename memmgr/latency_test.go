package memmgr

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/histogram"
)

// Percentiles are those of the sorted durations, with an error of at most an eighth.
func TestLatencyPercentiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var l histogram.Histogram
	var all []time.Duration
	for range 20000 {
		d := time.Duration(1000 * (1 + rng.ExpFloat64()*100))
		all = append(all, d)
		l.Add(d, 1)
	}
	slices.Sort(all)
	s := latencyOf(&l, 0)
	require.EqualValues(t, len(all), s.Count)
	require.Equal(t, all[len(all)-1], s.Max)
	for _, c := range []struct {
		of   float64
		have time.Duration
	}{{.5, s.P50}, {.9, s.P90}, {.99, s.P99}, {.999, s.P999}} {
		want := all[int(c.of*float64(len(all)))-1]
		require.GreaterOrEqual(t, c.have, want)
		require.LessOrEqual(t, float64(c.have), float64(want)*1.126)
	}
}

// Calls that were too quick to be timed count at the lowest bucket.
func TestLatencyOfQuickCalls(t *testing.T) {
	var l histogram.Histogram
	require.Equal(t, Latency{}, latencyOf(&l, 0))
	l.Add(time.Millisecond, 1)
	s := latencyOf(&l, 999)
	require.EqualValues(t, 1000, s.Count)
	require.EqualValues(t, histogram.Floor, s.P99)
	require.EqualValues(t, histogram.Floor, s.P999)
	require.Equal(t, time.Millisecond, s.Max)
	only := latencyOf(new(histogram.Histogram), 3)
	require.EqualValues(t, 3, only.Count)
	require.EqualValues(t, histogram.Floor, only.Max)
}

// An octave contains the counts of its eighths, and the sum of two distributions is that of all
// calls.
func TestLatencyBucketsAndSum(t *testing.T) {
	var a, b, both histogram.Histogram
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 5000 {
		d := time.Duration(1 << rng.IntN(30))
		if i%2 == 0 {
			a.Add(d, 1)
		} else {
			b.Add(d, 16)
		}
		both.Add(d, int64(1+15*(i%2)))
	}
	sum, second := latencyOf(&a, 7), latencyOf(&b, 0)
	sum.add(&second)
	want := latencyOf(&both, 7)
	require.Equal(t, want, sum)
	total, before := int64(0), time.Duration(0)
	for top, calls := range want.Buckets {
		require.Greater(t, top, before)
		require.Positive(t, calls)
		total, before = total+calls, top
		require.Zero(t, int64(top)&(int64(top)-1), "octaves end at powers of two")
	}
	require.Equal(t, want.Count, total)
	none := Latency{}
	none.add(&second)
	require.Equal(t, second, none)
}

// The distributions contain each request of a pool, fast-path requests in the lowest bucket, and each
// call of the upstream.
func TestLatencyOfPool(t *testing.T) {
	p := NewPool(Host())
	const n = 1000
	for range n {
		testenv.Must(New(p, Request{Size: 4000}))(t).Release()
	}
	s := p.Stats()
	require.InDelta(t, n, s.AllocationLatency.Count, account.Sample)
	require.EqualValues(t, histogram.Floor, s.AllocationLatency.P50)
	require.EqualValues(t, 1, s.UpstreamLatency.Count)
	require.Positive(t, s.UpstreamLatency.Max)
	require.GreaterOrEqual(t, s.AllocationLatency.Max, s.UpstreamLatency.Max, "a request waited for that call")
	require.Equal(t, s.UpstreamLatency.Count, s.Map()["upstream_latency.count"])
	require.NoError(t, p.Close())
}
