// Package histogram counts durations in buckets whose bounds differ by at most an eighth.
package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Durations are counted in eight buckets per octave, from Floor up to hours. The last bucket counts all
// longer durations.
const (
	Floor   = 512 // nanoseconds; the first bucket counts all durations up to it
	octaves = 34
	Buckets = 1 + 8*octaves
)

// Histogram counts calls by duration. It is safe for concurrent use.
type Histogram struct {
	counts [Buckets]atomic.Int64
	max    atomic.Int64
}

// Add counts n calls of one duration.
func (h *Histogram) Add(d time.Duration, n int64) {
	h.counts[bucket(d)].Add(n)
	for {
		most := h.max.Load()
		if int64(d) <= most || h.max.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// Counts returns the number of calls by bucket, and the longest duration.
func (h *Histogram) Counts() (counts []int64, longest time.Duration) {
	counts = make([]int64, Buckets)
	for i := range h.counts {
		counts[i] = h.counts[i].Load()
	}
	return counts, time.Duration(h.max.Load())
}

// Total returns the number of calls.
func (h *Histogram) Total() (calls int64) {
	for i := range h.counts {
		calls += h.counts[i].Load()
	}
	return calls
}

// bucket returns the first bucket whose top is at least d.
func bucket(d time.Duration) int {
	if d <= Floor {
		return 0
	}
	n := uint64(d - 1) // buckets are open below and closed above
	octave := bits.Len64(n) - 1
	eighth := n >> (octave - 3) & 7
	return min(1+8*(octave-bits.Len64(Floor)+1)+int(eighth), Buckets-1)
}

// Top returns the longest duration of a bucket.
func Top(bucket int) time.Duration {
	if bucket == 0 {
		return Floor
	}
	octave, eighth := (bucket-1)/8, (bucket-1)%8
	return Floor << octave / 8 * time.Duration(9+eighth)
}

// EachOctave yields the number of calls by octave of duration, shortest first: those that took at most top and
// more than the previous octave. It skips octaves without calls.
func EachOctave(counts []int64, yield func(top time.Duration, calls int64) bool) {
	for at := 0; at < len(counts); {
		last := (at + 7) / 8 * 8 // 0, then the eighths of an octave
		calls := int64(0)
		for ; at <= last; at++ {
			calls += counts[at]
		}
		if calls > 0 && !yield(Top(last), calls) {
			return
		}
	}
}

// Percentiles returns the tops of the buckets that reach shares of all calls, which are increasing and in
// thousandths.
func Percentiles(counts []int64, permille ...int64) (tops []time.Duration) {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	sum, at := counts[0], 0
	for _, share := range permille {
		for sum*1000 < total*share {
			at++
			sum += counts[at]
		}
		tops = append(tops, Top(at))
	}
	return tops
}
