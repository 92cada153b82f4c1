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

// What stood in the way of a request for which there was room in bytes. Memory does
// not move: such room may lie in pieces, between blocks that others hold, and those may
// wait themselves. So the time that a request was blocked is compared with the earliest
// moment at which a pool that knew the future could have served it: one that from the
// first look on keeps exactly the blocks free that are given back soonest and lie
// together, or the segments that empty soonest, and that serves nobody else out of
// them. What is later than that is the pool's.

// holding is a buffer in use.
type holding struct {
	address, size, since atomic.Int64
}

func (h *holding) take(b memmgr.Buffer) {
	h.size.Store(int64(b.Size()))
	h.since.Store(time.Now().UnixNano())
	h.address.Store(int64(uintptr(b.Data())))
}

// release is one that was given back.
type release struct {
	address uintptr
	at      time.Time
}

// releases notes them while somebody looks.
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

// stop forgets everything.
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

// holder is what is known of a block in use.
type holder struct {
	worker int
	size   int64
	age    time.Duration
	wants  int64 // what its worker waits for
}

// inquiry looks at one request that seems to be blocked for long.
type inquiry struct {
	worker   int
	size     int64
	waited   time.Duration // without the time that the watch was kept from running, until the first look
	first    *memmgr.Snapshot
	holders  map[uintptr]holder
	from     int // of the releases
	last     time.Time
	together time.Duration // after the first look, when a free range of the size was seen; negative: never
	clock    []watchStep
}

// watchStep is how much of the time until a moment counts.
type watchStep struct {
	at    time.Time
	awake time.Duration
}

// inquire takes the first look.
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

// inquiryPause is how often the pool is looked at again.
const inquiryPause = 2 * time.Millisecond

// step goes on with an inquiry.
func (q *inquiry) step(s *serviceLoad, at time.Time, awake time.Duration) {
	q.clock = append(q.clock, watchStep{at, q.clock[len(q.clock)-1].awake + awake})
	if q.together < 0 && at.Sub(q.last) > inquiryPause {
		q.last = at
		if lyingTogether(s.pool.Snapshot()) >= q.size {
			q.together = at.Sub(q.first.Taken)
		}
	}
}

// awakeAt is how much of the time from the first look to a moment counts.
func (q *inquiry) awakeAt(at time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(q.clock, at, func(w watchStep, at time.Time) int { return w.at.Compare(at) })
	return q.clock[min(i, len(q.clock)-1)].awake
}

func free(b *memmgr.SnapshotBlock) bool { return b.State == memmgr.BlockFree || b.Cached }

// lyingTogether is the largest free range inside a segment.
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
	at     time.Time // from when on
	blocks []*memmgr.SnapshotBlock
	what   string
}

// earliest returns the place that is free first: inside of a segment, or by segments
// that go back to the upstream. The time is the first look's where it was free then;
// the zero place, of no time, where nothing was until the end.
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
		p.at, p.blocks, p.what = w.at, append(p.blocks, inUse(w.of.Blocks)...), fmt.Sprintf("of %d whole segments", n+1)
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

// finding is what an inquiry came to.
type finding struct {
	beyond time.Duration // blocked, without the time until the earliest place was free
	lines  []string
}

// end closes an inquiry when the request is not blocked any more.
func (q *inquiry) end(s *serviceLoad) finding {
	last := q.clock[len(q.clock)-1]
	p := q.earliest(s.released.since(q.from), s.limit)
	whole := q.waited + last.awake
	var f finding
	if p.at.IsZero() {
		f.beyond = q.waited // no place was there in all the time
		p.what = "nowhere"
	} else {
		f.beyond = whole - q.awakeAt(p.at)
	}
	t := &q.first.Stats
	f.lines = append(f.lines,
		fmt.Sprintf("worker %d of tenant %c wanted %s and was blocked for %s, %s of them until the first look", q.worker, 'a'+q.worker%serviceTenants, mib(q.size), ms(whole), ms(q.waited)),
		fmt.Sprintf("there were %d segments of %s, of which %s was in use; %s of others' pending, %d waited; the largest free range had %s",
			len(q.first.Segments), mib(t.ReservedBytes.Current), mib(t.AllocatedBytes.Current), mib(t.ActiveBytes.Current-t.AllocatedBytes.Current),
			len(q.first.Waiting), mib(lyingTogether(q.first))))
	f.lines = append(f.lines, q.standing(), q.keeping())
	seen := "no free range of that size was seen"
	if q.together >= 0 {
		seen = fmt.Sprintf("a free range of that size was seen %s after the first look", ms(q.together))
	}
	f.lines = append(f.lines, seen+"; "+p.told(q)+fmt.Sprintf("; it was blocked no more at %s", ms(last.at.Sub(q.first.Taken))))
	return f
}

// standing tells where the request waited, and what its tenant had.
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
	return fmt.Sprintf("at the first look it %s; its tenant had %s in use", where, mib(inUse))
}

// keeping tells for whom the pool kept room at the first look.
func (q *inquiry) keeping() string {
	for _, w := range q.first.Waiting {
		if w.KeptSince.IsZero() {
			continue
		}
		var closed []string
		for i := range q.first.Segments {
			if seg := &q.first.Segments[i]; seg.Kept {
				closed = append(closed, fmt.Sprintf("%s with %d blocks in use", mib(int64(seg.Size)), len(inUse(seg.Blocks))))
			}
		}
		return fmt.Sprintf("room had been kept for %s, for %s of tenant %s that waited for %s, for the %d. time: segments [%s]",
			ms(q.first.Taken.Sub(w.KeptSince)), mib(int64(w.Requested)), w.Tenant, ms(q.first.Taken.Sub(w.Since)), w.Kept, strings.Join(closed, ", "))
	}
	return "room was kept for nobody"
}

// told describes a place and who was there.
func (p place) told(q *inquiry) string {
	if p.at.IsZero() {
		return "no place for it became free, however it is chosen"
	}
	var who []holder
	for _, b := range p.blocks {
		h, ok := q.holders[b.Address]
		if !ok {
			h = holder{worker: -1, size: int64(b.Size)}
		}
		who = append(who, h)
	}
	slices.SortFunc(who, func(a, b holder) int { return cmp.Compare(b.age, a.age) })
	const most = 6
	var names []string
	for _, h := range who[:min(len(who), most)] {
		name := fmt.Sprintf("%s by worker %d for %s", mib(h.size), h.worker, ms(h.age))
		if h.wants != 0 {
			name += fmt.Sprintf(" who waits for %s", mib(h.wants))
		}
		names = append(names, name)
	}
	if len(who) > most {
		names = append(names, fmt.Sprintf("and %d more", len(who)-most))
	}
	return fmt.Sprintf("the earliest place, %s, was free after %s, held until then: [%s]", p.what, ms(p.at.Sub(q.first.Taken)), strings.Join(names, ", "))
}

func mib(n int64) string        { return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20)) }
func ms(d time.Duration) string { return fmt.Sprintf("%.3g ms", float64(d)/1e6) }
