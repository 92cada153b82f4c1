package memmgr

import (
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/histogram"
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
	histogram.EachOctave(l.counts, yield)
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

// latencyOf returns the distribution of calls, with a number of calls added that were too quick
// to be timed.
func latencyOf(h *histogram.Histogram, quick int64) Latency {
	counts, longest := h.Counts()
	counts[0] += quick
	if quick > 0 {
		longest = max(longest, histogram.Floor)
	}
	return summary(counts, longest)
}

// summary makes a Latency of the calls by bucket and takes over counts.
func summary(counts []int64, longest time.Duration) Latency {
	s := Latency{Max: longest, counts: counts}
	for _, n := range counts {
		s.Count += n
	}
	if s.Count == 0 {
		return Latency{}
	}
	tops := histogram.Percentiles(counts, 500, 900, 990, 999)
	for i, to := range []*time.Duration{&s.P50, &s.P90, &s.P99, &s.P999} {
		*to = min(tops[i], s.Max)
	}
	return s
}

// lockTimed locks the pool for a request. It returns the start time of a timed request, 0
// if it is not timed, and how many requests it stands for. All requests that wait for the
// lock are timed.
func (p *Pool) lockTimed() (since time.Duration, stands int64) {
	if p.mu.TryLock() {
		if !p.account.Sampled() {
			return 0, 0
		}
		return now(), account.Sample
	}
	since = now()
	p.mu.Lock()
	return since, 1
}

// now is the time since the process started.
func now() time.Duration { return time.Since(processStart) }

var processStart = time.Now()
