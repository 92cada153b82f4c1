package memmgr_test

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Memory cannot be moved, so free bytes may be fragmented by blocks in use, whose owners may wait themselves. The
// time that a request was blocked although enough bytes were free is therefore compared with the earliest moment
// at which an ideal pool could have served it. From the first snapshot on, the ideal pool reserves the adjacent
// blocks that are freed soonest, or the segments that become empty soonest. Only the time after that moment is
// attributed to the pool.

// release is the release of a buffer.
type release struct {
	address uintptr
	at      time.Time
}

// releases records the releases while on is set.
type releases struct {
	on  atomic.Bool
	mu  sync.Mutex
	all []release
}

func (r *releases) note(b memmgr.Buffer) {
	if !r.on.Load() {
		return
	}
	at := time.Now()
	r.mu.Lock()
	r.all = append(r.all, release{uintptr(b.Data()), at})
	r.mu.Unlock()
}

// stop stops recording and removes all records.
func (r *releases) stop() {
	if !r.on.Load() {
		return
	}
	r.on.Store(false)
	r.mu.Lock()
	r.all = r.all[:0]
	r.mu.Unlock()
}

func (r *releases) since(n int) []release {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all[n:])
}

// inquiry observes one request that seems to be blocked for long.
type inquiry struct {
	size   int64
	waited time.Duration // until the first snapshot, without the time in which the watch did not run
	first  *memmgr.Snapshot
	from   int // index of the first release after the snapshot
	clock  []watchStep
}

// watchStep is the part of the time since the first snapshot in which the watch ran.
type watchStep struct {
	at    time.Time
	awake time.Duration
}

// inquire begins an inquiry with a snapshot.
func (s *serviceLoad) inquire(size int64, waited time.Duration) *inquiry {
	q := &inquiry{size: size, waited: waited}
	s.released.on.Store(true)
	s.released.mu.Lock()
	q.from = len(s.released.all)
	s.released.mu.Unlock()
	q.first = s.pool.Snapshot()
	q.clock = []watchStep{{at: q.first.Taken}}
	return q
}

// step continues an inquiry.
func (q *inquiry) step(at time.Time, awake time.Duration) {
	q.clock = append(q.clock, watchStep{at, q.clock[len(q.clock)-1].awake + awake})
}

// awakeAt returns the time from the first snapshot to at in which the watch ran.
func (q *inquiry) awakeAt(at time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(q.clock, at, func(w watchStep, at time.Time) int { return w.at.Compare(at) })
	return q.clock[min(i, len(q.clock)-1)].awake
}

func free(b *memmgr.SnapshotBlock) bool { return b.State == memmgr.BlockFree || b.Cached }

// earliest returns when the first place became free: a range in a segment, or whole segments that can be
// returned to the upstream. If there was one at the first snapshot, it returns the time of the snapshot, and if
// there was none, the zero time.
func (q *inquiry) earliest(back []release, limit int64) time.Time {
	freed := map[uintptr]time.Time{}
	for _, r := range back {
		if _, ok := freed[r.address]; !ok {
			freed[r.address] = r.at
		}
	}
	never := q.first.Taken.Add(math.MaxInt64 / 2)
	when := func(b *memmgr.SnapshotBlock) time.Time {
		if free(b) {
			return q.first.Taken
		}
		if at, ok := freed[b.Address]; ok {
			return at
		}
		return never
	}
	best := never
	try := func(at time.Time) {
		if at.Before(best) {
			best = at
		}
	}
	type whole struct {
		at   time.Time
		size int64
	}
	var wholes []whole
	room := limit
	for i := range q.first.Segments {
		seg := &q.first.Segments[i]
		room -= int64(seg.Size)
		empty := q.first.Taken
		for k := range seg.Blocks {
			at, run := q.first.Taken, int64(0)
			for n := k; n < len(seg.Blocks); n++ {
				b := &seg.Blocks[n]
				if t := when(b); t.After(at) {
					at = t
				}
				if run += int64(b.Size); run >= q.size {
					try(at)
					break
				}
			}
			if t := when(&seg.Blocks[k]); t.After(empty) {
				empty = t
			}
		}
		wholes = append(wholes, whole{empty, int64(seg.Size)})
	}
	slices.SortFunc(wholes, func(a, b whole) int { return a.at.Compare(b.at) })
	at := q.first.Taken
	for _, w := range wholes {
		if room >= q.size {
			break
		}
		room += w.size
		at = w.at
	}
	if room >= q.size {
		try(at)
	}
	if best.Equal(never) {
		return time.Time{}
	}
	return best
}

// end ends an inquiry after the request is no longer blocked. It returns the time blocked after the earliest
// place became free.
func (q *inquiry) end(s *serviceLoad) time.Duration {
	at := q.earliest(s.released.since(q.from), s.limit)
	if at.IsZero() {
		return q.waited // no place became free during the inquiry
	}
	return q.waited + q.clock[len(q.clock)-1].awake - q.awakeAt(at)
}
