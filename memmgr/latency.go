package memmgr

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// Latency is the distribution of the durations of calls. Percentiles are rounded up by at
// most an eighth.
type Latency struct {
	Count int64         `json:"count"` // calls
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"` // exact

	counts []int64 // by bucket; nil when there were no calls
}

// Buckets yields the number of calls by octave of duration, shortest first: those that
// took at most top and more than the previous octave. It skips octaves without calls.
func (l *Latency) Buckets(yield func(top time.Duration, calls int64) bool) {
	for at := 0; at < len(l.counts); {
		last := (at + 7) / 8 * 8 // 0, then the eighths of an octave
		calls := int64(0)
		for ; at <= last; at++ {
			calls += l.counts[at]
		}
		if calls > 0 && !yield(latencyTop(last), calls) {
			return
		}
	}
}

// add adds the calls of another distribution.
func (l *Latency) add(o *Latency) {
	if o.Count == 0 {
		return
	}
	counts := slices.Clone(o.counts)
	for i, n := range l.counts {
		counts[i] += n
	}
	*l = summary(counts, max(l.Max, o.Max))
}

// Durations are counted in eight buckets per octave, from latencyFloor up to hours. The
// last bucket counts all longer durations.
const (
	latencyFloor   = 512 // nanoseconds; the first bucket counts all durations up to it
	latencyOctaves = 34
	latencyBuckets = 1 + 8*latencyOctaves
)

// latencies counts calls by duration. Safe for concurrent use.
type latencies struct {
	counts [latencyBuckets]atomic.Int64
	max    atomic.Int64
}

// add counts n calls of one duration.
func (l *latencies) add(d time.Duration, n int64) {
	l.counts[latencyBucket(d)].Add(n)
	for {
		most := l.max.Load()
		if int64(d) <= most || l.max.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// latencyBucket returns the first bucket whose top is at least d.
func latencyBucket(d time.Duration) int {
	if d <= latencyFloor {
		return 0
	}
	n := uint64(d - 1) // buckets are open below and closed above
	octave := bits.Len64(n) - 1
	eighth := n >> (octave - 3) & 7
	return min(1+8*(octave-bits.Len64(latencyFloor)+1)+int(eighth), latencyBuckets-1)
}

// latencyTop returns the longest duration of a bucket.
func latencyTop(bucket int) time.Duration {
	if bucket == 0 {
		return latencyFloor
	}
	octave, eighth := (bucket-1)/8, (bucket-1)%8
	return latencyFloor << octave / 8 * time.Duration(9+eighth)
}

// summary returns the distribution, with a number of calls added that were too quick to be
// timed.
func (l *latencies) summary(quick int64) Latency {
	counts := make([]int64, latencyBuckets)
	for i := range l.counts {
		counts[i] = l.counts[i].Load()
	}
	counts[0] += quick
	longest := time.Duration(l.max.Load())
	if quick > 0 {
		longest = max(longest, latencyFloor)
	}
	return summary(counts, longest)
}

// summary makes a Latency of the calls by bucket and takes over counts.
func summary(counts []int64, longest time.Duration) Latency {
	s := Latency{Max: longest}
	for _, n := range counts {
		s.Count += n
	}
	if s.Count == 0 {
		return Latency{}
	}
	s.counts = counts
	sum, at := counts[0], 0
	for _, each := range []struct {
		to       *time.Duration
		permille int64
	}{{&s.P50, 500}, {&s.P90, 900}, {&s.P99, 990}, {&s.P999, 999}} {
		for sum*1000 < s.Count*each.permille {
			at++
			sum += counts[at]
		}
		*each.to = min(latencyTop(at), s.Max)
	}
	return s
}

// lockTimed locks the pool for a request. It returns the start time of a timed request, 0
// if it is not timed, and how many requests it stands for. All requests that wait for the
// lock are timed.
func (p *Pool) lockTimed() (since time.Duration, stands int64) {
	if p.mu.TryLock() {
		if !p.account.sample() {
			return 0, 0
		}
		return now(), latencySample
	}
	since = now()
	p.mu.Lock()
	return since, 1
}

// sample counts a request that found the lock free, and reports whether it is timed. Pool.mu
// is held.
func (a *account) sample() bool {
	a.locked++
	return a.locked%latencySample == 0
}

// now is the time since the process started.
func now() time.Duration { return time.Since(processStart) }

var processStart = time.Now()

// quick estimates how many of the allocations the front served: those that no timed request
// stands for.
func (a *account) quick(allocations int64) int64 {
	for i := range a.slow.counts {
		allocations -= a.slow.counts[i].Load()
	}
	return max(0, allocations)
}
