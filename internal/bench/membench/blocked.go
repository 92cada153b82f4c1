//go:build cgo && linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
)

// This file explains why a request was blocked although enough bytes were free. Memory cannot be moved,
// so the free bytes may be fragmented by blocks in use, whose owners may wait themselves. The time that
// a request was blocked is therefore compared with the earliest moment at which an ideal pool could
// have served it. From the first snapshot on, the ideal pool reserves the adjacent blocks that are
// freed soonest, or the segments that become empty soonest. Only the time after that moment is
// attributed to the pool.

// holding is a buffer in use.
type holding struct {
	address, size, since atomic.Int64
}

func (h *holding) take(b memmgr.Buffer) {
	h.size.Store(int64(b.Size()))
	h.since.Store(time.Now().UnixNano())
	h.address.Store(int64(uintptr(b.Data())))
}

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

// holder describes the owner of a block in use.
type holder struct {
	worker int
	size   int64
	age    time.Duration
	wants  int64 // bytes that its worker waits for, 0 for none
}

// inquiry observes one request that seems to be blocked for long.
type inquiry struct {
	worker   int
	size     int64
	waited   time.Duration // until the first snapshot, without the time in which the watch did not run
	first    *memmgr.Snapshot
	holders  map[uintptr]holder
	from     int // index of the first release after the snapshot
	last     time.Time
	together time.Duration // from the first snapshot to one with a free range of the size; negative for none
	clock    []watchStep
}

// watchStep is the part of the time since the first snapshot in which the watch ran.
type watchStep struct {
	at    time.Time
	awake time.Duration
}

// inquire begins an inquiry with a snapshot.
func (s *serviceLoad) inquire(g int, size int64, waited time.Duration) *inquiry {
	q := &inquiry{worker: g, size: size, waited: waited, together: -1}
	s.released.on.Store(true)
	s.released.mu.Lock()
	q.from = len(s.released.all)
	s.released.mu.Unlock()
	q.first = s.pool.Snapshot()
	q.last = q.first.Taken
	q.holders = s.holders(q.first.Taken)
	q.clock = []watchStep{{at: q.first.Taken}}
	if lyingTogether(q.first) >= size {
		q.together = 0
	}
	return q
}

func (s *serviceLoad) holders(at time.Time) map[uintptr]holder {
	all := map[uintptr]holder{}
	for g := range s.holding {
		for k := range s.holding[g] {
			h := &s.holding[g][k]
			if a := h.address.Load(); a != 0 {
				all[uintptr(a)] = holder{g, h.size.Load(), at.Sub(time.Unix(0, h.since.Load())), s.waiting[g].size.Load()}
			}
		}
	}
	return all
}

// inquiryPause is the least time between two snapshots of an inquiry.
const inquiryPause = 2 * time.Millisecond

// step continues an inquiry.
func (q *inquiry) step(s *serviceLoad, at time.Time, awake time.Duration) {
	q.clock = append(q.clock, watchStep{at, q.clock[len(q.clock)-1].awake + awake})
	if q.together < 0 && at.Sub(q.last) > inquiryPause {
		q.last = at
		if lyingTogether(s.pool.Snapshot()) >= q.size {
			q.together = at.Sub(q.first.Taken)
		}
	}
}

// awakeAt returns the time from the first snapshot to at in which the watch ran.
func (q *inquiry) awakeAt(at time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(q.clock, at, func(w watchStep, at time.Time) int { return w.at.Compare(at) })
	return q.clock[min(i, len(q.clock)-1)].awake
}

func free(b *memmgr.SnapshotBlock) bool { return b.State == memmgr.BlockFree || b.Cached }

// lyingTogether returns the size of the largest free range inside a segment.
func lyingTogether(s *memmgr.Snapshot) (largest int64) {
	for i := range s.Segments {
		run := int64(0)
		for k := range s.Segments[i].Blocks {
			b := &s.Segments[i].Blocks[k]
			if run += int64(b.Size); !free(b) {
				run = 0
			}
			largest = max(largest, run)
		}
	}
	return largest
}

// place is memory that could have served a request.
type place struct {
	at     time.Time // when it became free
	blocks []*memmgr.SnapshotBlock
	name   string
}

// earliest returns the place that became free first: a range in a segment, or whole segments that can
// be returned to the upstream. If it was free at the first snapshot, its time is that of the
// snapshot. If there was none, earliest returns the zero place.
func (q *inquiry) earliest(back []release, limit int64) (best place) {
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
	best.at = never
	try := func(p place) {
		if p.at.Before(best.at) {
			best = p
		}
	}
	type whole struct {
		at time.Time
		of *memmgr.SnapshotSegment
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
					try(place{at, inUse(seg.Blocks[k : n+1]), fmt.Sprintf("in a segment of %s", mib(int64(seg.Size)))})
					break
				}
			}
			if t := when(&seg.Blocks[k]); t.After(empty) {
				empty = t
			}
		}
		wholes = append(wholes, whole{empty, seg})
	}
	slices.SortFunc(wholes, func(a, b whole) int { return a.at.Compare(b.at) })
	p := place{at: q.first.Taken}
	for n, w := range wholes {
		if room >= q.size {
			break
		}
		room += int64(w.of.Size)
		p.at, p.blocks, p.name = w.at, append(p.blocks, inUse(w.of.Blocks)...), fmt.Sprintf("of %d whole segments", n+1)
	}
	if room >= q.size {
		try(p)
	}
	if best.at.Equal(never) {
		return place{}
	}
	return best
}

func inUse(blocks []memmgr.SnapshotBlock) (all []*memmgr.SnapshotBlock) {
	for i := range blocks {
		if !free(&blocks[i]) {
			all = append(all, &blocks[i])
		}
	}
	return all
}

// finding is the result of an inquiry.
type finding struct {
	beyond time.Duration // time blocked after the earliest place became free
	lines  []string
}

// end ends an inquiry after the request is no longer blocked.
func (q *inquiry) end(s *serviceLoad) finding {
	last := q.clock[len(q.clock)-1]
	p := q.earliest(s.released.since(q.from), s.limit)
	whole := q.waited + last.awake
	var f finding
	if p.at.IsZero() {
		f.beyond = q.waited // no place became free during the inquiry
	} else {
		f.beyond = whole - q.awakeAt(p.at)
	}
	t := &q.first.Stats
	f.lines = append(f.lines,
		fmt.Sprintf("worker %d of tenant %c wanted %s and was blocked for %s, %s of them until the first snapshot", q.worker, 'a'+q.worker%serviceTenants, mib(q.size), ms(whole), ms(q.waited)),
		fmt.Sprintf("there were %d segments of %s, of which %s was in use; %s was pending, %d requests waited; the largest free range had %s",
			len(q.first.Segments), mib(t.ReservedBytes.Current), mib(t.AllocatedBytes.Current), mib(t.ActiveBytes.Current-t.AllocatedBytes.Current),
			len(q.first.Waiting), mib(lyingTogether(q.first))))
	f.lines = append(f.lines, q.standing(), q.reservation())
	seen := "no free range of that size was seen"
	if q.together >= 0 {
		seen = fmt.Sprintf("a free range of that size was seen %s after the first snapshot", ms(q.together))
	}
	f.lines = append(f.lines, seen+"; "+p.describe(q)+fmt.Sprintf("; its wait ended after %s", ms(last.at.Sub(q.first.Taken))))
	return f
}

// standing describes where the request waited and the memory in use of its tenant.
func (q *inquiry) standing() string {
	where, tenant, inUse := "had been served already", string(rune('a'+q.worker%serviceTenants)), int64(0)
	for _, w := range q.first.Waiting {
		if w.Tenant != tenant || int64(w.Requested) != q.size {
			continue
		}
		if where = "waited for memory"; w.AtHard {
			where = "waited for room below its tenant's hard limit"
		}
		break
	}
	for _, h := range q.holders {
		if h.worker%serviceTenants == q.worker%serviceTenants {
			inUse += h.size
		}
	}
	return fmt.Sprintf("at the first snapshot it %s; its tenant had %s in use", where, mib(inUse))
}

// reservation describes the reservation of the pool at the first snapshot.
func (q *inquiry) reservation() string {
	for _, w := range q.first.Waiting {
		if w.ReservedSince.IsZero() {
			continue
		}
		var closed []string
		for i := range q.first.Segments {
			if seg := &q.first.Segments[i]; seg.Closed {
				closed = append(closed, fmt.Sprintf("%s with %d blocks in use", mib(int64(seg.Size)), len(inUse(seg.Blocks))))
			}
		}
		return fmt.Sprintf("a reservation had lasted for %s, for %s of tenant %s that had waited for %s; it was number %d, with the segments [%s]",
			ms(q.first.Taken.Sub(w.ReservedSince)), mib(int64(w.Requested)), w.Tenant, ms(q.first.Taken.Sub(w.Since)), w.Reservations, strings.Join(closed, ", "))
	}
	return "nothing was reserved"
}

// describe describes a place and the owners of its blocks.
func (p place) describe(q *inquiry) string {
	if p.at.IsZero() {
		return "no place for it became free"
	}
	var owners []holder
	for _, b := range p.blocks {
		h, ok := q.holders[b.Address]
		if !ok {
			h = holder{worker: -1, size: int64(b.Size)}
		}
		owners = append(owners, h)
	}
	slices.SortFunc(owners, func(a, b holder) int { return cmp.Compare(b.age, a.age) })
	const most = 6
	var names []string
	for _, h := range owners[:min(len(owners), most)] {
		name := fmt.Sprintf("%s by worker %d for %s", mib(h.size), h.worker, ms(h.age))
		if h.wants != 0 {
			name += fmt.Sprintf(" that waits for %s", mib(h.wants))
		}
		names = append(names, name)
	}
	if len(owners) > most {
		names = append(names, fmt.Sprintf("and %d more", len(owners)-most))
	}
	return fmt.Sprintf("the earliest place, %s, was free after %s, held until then: [%s]", p.name, ms(p.at.Sub(q.first.Taken)), strings.Join(names, ", "))
}

func mib(n int64) string        { return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20)) }
func ms(d time.Duration) string { return fmt.Sprintf("%.3g ms", float64(d)/1e6) }
