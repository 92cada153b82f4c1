package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
)

// What of a pool the page shows, however large it is.
const (
	mostSegments = 24  // the largest
	cells        = 128 // into which each is divided
	mostHolders  = 12
)

// poolView is the counters of a pool.
type poolView struct {
	Name      string `json:"name"`
	Place     string `json:"place"`
	Limit     uint64 `json:"limit"` // 0: none
	Allocated int64  `json:"allocated"`
	Requested int64  `json:"requested"`
	Reserved  int64  `json:"reserved"`
	Peak      int64  `json:"peak"` // of Reserved
	Buffers   int64  `json:"buffers"`
	Waiting   int64  `json:"waiting"`
	Count     int64  `json:"segment_count"`
}

// memoryView is the pool whose picture the page shows.
type memoryView struct {
	poolView
	picture
}

// picture is what takes a snapshot of the pool.
type picture struct {
	Segments []segmentView `json:"segments,omitempty"`
	More     int           `json:"more"` // segments that are not among Segments
	Holders  []holderView  `json:"holders,omitempty"`
}

type segmentView struct {
	Size  uint64 `json:"size"`
	Used  uint64 `json:"used"`
	Kept  bool   `json:"kept"`
	Cells string `json:"cells"` // a letter each: used, pending, cached, free
}

type holderView struct {
	Tag     string `json:"tag"`
	Bytes   uint64 `json:"bytes"`
	Buffers int    `json:"buffers"`
}

// artist draws the pool now and then.
type artist struct {
	last picture
	next time.Time // not before
}

// draw takes a new picture when it is time. The pool is locked for as long as the snapshot
// takes, and it stays so for a fiftieth of the time at most.
func (a *artist) draw(p *memmgr.Pool) picture {
	start := time.Now()
	if start.Before(a.next) {
		return a.last
	}
	s := p.Snapshot()
	a.next = start.Add(max(interval-interval/20, 50*time.Since(start)))
	a.last = paint(s)
	return a.last
}

// paint makes a picture of bounded size of a snapshot of any.
func paint(s *memmgr.Snapshot) picture {
	slices.SortStableFunc(s.Segments, func(a, b memmgr.SnapshotSegment) int { return cmp.Compare(b.Size, a.Size) })
	p := picture{Segments: []segmentView{}, More: max(0, len(s.Segments)-mostSegments)}
	held := map[string]*holderView{}
	for i := range s.Segments {
		seg := &s.Segments[i]
		var used uint64
		for _, b := range seg.Blocks {
			if b.State != memmgr.BlockActive {
				continue
			}
			used += b.Size
			h := held[b.Tag]
			if h == nil {
				h = &holderView{Tag: b.Tag}
				held[b.Tag] = h
			}
			h.Bytes += b.Size
			h.Buffers++
		}
		if i < mostSegments {
			p.Segments = append(p.Segments, segmentView{seg.Size, used, seg.Kept, cellsOf(seg)})
		}
	}
	p.Holders = []holderView{}
	for _, h := range held {
		p.Holders = append(p.Holders, *h)
	}
	slices.SortFunc(p.Holders, func(a, b holderView) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Tag, b.Tag))
	})
	if rest := len(p.Holders) - mostHolders; rest > 0 {
		others := holderView{Tag: "others"}
		for _, h := range p.Holders[mostHolders:] {
			others.Bytes += h.Bytes
			others.Buffers += h.Buffers
		}
		p.Holders = append(p.Holders[:mostHolders], others)
	}
	return p
}

// states are the letters of cells, in the order in which one state hides another of as many
// bytes.
const states = "upcf"

func stateOf(b *memmgr.SnapshotBlock) int {
	switch {
	case b.State == memmgr.BlockActive:
		return 0
	case b.State == memmgr.BlockPending:
		return 1
	case b.Cached:
		return 2
	}
	return 3
}

// cellsOf divides a segment into cells and gives each the state of most of its bytes; those
// in use count eight times, so that small buffers are seen.
func cellsOf(seg *memmgr.SnapshotSegment) string {
	var bytes [cells][len(states)]float64
	each := float64(seg.Size) / cells
	for i := range seg.Blocks {
		b := &seg.Blocks[i]
		state, at := stateOf(b), float64(b.Address-seg.Address)
		end := at + float64(b.Size)
		for cell := min(int(at/each), cells-1); cell < cells && float64(cell)*each < end; cell++ {
			part := min(end, float64(cell+1)*each) - max(at, float64(cell)*each)
			if state < 2 {
				part *= 8
			}
			bytes[cell][state] += part
		}
	}
	out := make([]byte, cells)
	for cell := range out {
		most := len(states) - 1
		for state := most - 1; state >= 0; state-- {
			if bytes[cell][state] > 0 && bytes[cell][state] >= bytes[cell][most] {
				most = state
			}
		}
		out[cell] = states[most]
	}
	return string(out)
}
