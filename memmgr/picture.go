package memmgr

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"sort"
	"strconv"
	"text/tabwriter"
)

func itoa(n int) string { return strconv.Itoa(n) }

// WriteTable writes the pool's state as text: its counters, its segments, and
// who holds its memory.
func (s *Snapshot) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) } // Flush tells
	line("pool %q\t%s\n\n", s.Pool, s.Place)
	line("\tcurrent\tpeak\tever\n")
	for _, row := range []struct {
		name string
		of   Stat
	}{
		{"requested", s.Stats.RequestedBytes}, {"allocated", s.Stats.AllocatedBytes},
		{"active", s.Stats.ActiveBytes}, {"reserved", s.Stats.ReservedBytes},
		{"free in used segments", s.Stats.InactiveSplitBytes},
	} {
		line("%s\t%s\t%s\t%s\n", row.name, bytesText(uint64(row.of.Current)), bytesText(uint64(row.of.Peak)), bytesText(uint64(row.of.Allocated)))
	}
	line("cached\t%s\nbookkeeping\t%s\n", bytesText(uint64(s.Stats.CachedBytes)), bytesText(uint64(s.Stats.MetadataBytes)))
	line("buffers\t%d\t%d\t%d\n", s.Stats.Allocation.Current, s.Stats.Allocation.Peak, s.Stats.Allocation.Allocated)
	line("segments\t%d\t%d\t%d\n", s.Stats.Segment.Current, s.Stats.Segment.Peak, s.Stats.Segment.Allocated)
	line("retries, failures\t%d\t%d\n\n", s.Stats.NumAllocRetries, s.Stats.NumOOMs)
	line("segment\tsize\tused\tpending\tcached\tfree\tblocks\tlargest free\n")
	for i := range s.Segments {
		f := s.Segments[i].use()
		line("%#x\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", s.Segments[i].Address, bytesText(s.Segments[i].Size), bytesText(f.used),
			bytesText(f.pending), bytesText(f.cached), bytesText(f.free), len(s.Segments[i].Blocks), bytesText(f.largest))
	}
	line("\ntag\tbytes\tbuffers\n")
	for _, h := range s.holders() {
		tag := h.Tag
		if tag == "" {
			tag = "(no tag)"
		}
		line("%s\t%s\t%d\n", tag, bytesText(h.Bytes), h.Count)
	}
	return t.Flush()
}

type segmentUse struct {
	used, pending, cached, free, largest uint64
}

func (s *SnapshotSegment) use() (u segmentUse) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		switch {
		case b.State == BlockActive:
			u.used += b.Size
		case b.State == BlockPending:
			u.pending += b.Size
		case b.Cached:
			u.cached += b.Size
		default:
			u.free += b.Size
			u.largest = max(u.largest, b.Size)
		}
	}
	return u
}

func (s *Snapshot) holders() []Holder {
	byTag := map[string]*Holder{}
	for i := range s.Segments {
		for _, b := range s.Segments[i].Blocks {
			if b.State != BlockActive {
				continue
			}
			h := byTag[b.Tag]
			if h == nil {
				h = &Holder{Tag: b.Tag}
				byTag[b.Tag] = h
			}
			h.Bytes += b.Size
			h.Count++
		}
	}
	all := make([]Holder, 0, len(byTag))
	for _, h := range byTag {
		all = append(all, *h)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Bytes > all[j].Bytes })
	return all
}

// Sizes and colours of the picture.
const (
	svgWidth  = 1200
	svgBar    = 22
	svgGap    = 10
	svgLeft   = 230
	svgTop    = 96
	svgMargin = 20
)

// svgColours are told apart by people who see few colours, too.
var svgColours = []struct{ name, fill string }{
	{"in use", "#3b6fb6"}, {"rounding", "#9dbde3"}, {"waiting for the device", "#d97b29"},
	{"cached", "#b9b9b9"}, {"free", "#ffffff"},
}

// WriteSVG draws the segments as bars, to one scale, with their blocks: in use
// (with what rounding added), waiting for the device, cached, free. Hovering over
// a block shows its address, sizes and tag.
func (s *Snapshot) WriteSVG(w io.Writer) error {
	segments := append([]SnapshotSegment(nil), s.Segments...)
	sort.SliceStable(segments, func(i, j int) bool { return segments[i].Size > segments[j].Size })
	largest := uint64(1)
	for i := range segments {
		largest = max(largest, segments[i].Size)
	}
	height := svgTop + len(segments)*(svgBar+svgGap) + svgMargin
	b := bufio.NewWriter(w)
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format, args...) } // Flush tells
	put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, height, svgWidth, height)
	put(`<rect width="100%%" height="100%%" fill="#fafafa"/>` + "\n")
	put(`<text x="%d" y="28" font-size="18">%s</text>`+"\n", svgMargin, html.EscapeString(fmt.Sprintf("Pool %q: %s", s.Pool, s.Place)))
	put(`<text x="%d" y="50">%s</text>`+"\n", svgMargin, html.EscapeString(fmt.Sprintf(
		"%s in use in %d buffers (%s asked for), %s reserved in %d segments, peak %s",
		bytesText(uint64(s.Stats.AllocatedBytes.Current)), s.Stats.Allocation.Current, bytesText(uint64(s.Stats.RequestedBytes.Current)),
		bytesText(uint64(s.Stats.ReservedBytes.Current)), len(s.Segments), bytesText(uint64(s.Stats.ReservedBytes.Peak)))))
	x := svgMargin
	for _, c := range svgColours {
		put(`<rect x="%d" y="64" width="14" height="14" fill="%s" stroke="#555"/><text x="%d" y="76">%s</text>`+"\n", x, c.fill, x+20, c.name)
		x += 40 + 8*len(c.name)
	}
	scale := float64(svgWidth-svgLeft-svgMargin) / float64(largest)
	for i := range segments {
		drawSegment(put, &segments[i], svgTop+i*(svgBar+svgGap), scale)
	}
	put("</svg>\n")
	return b.Flush()
}

func drawSegment(put func(string, ...any), seg *SnapshotSegment, y int, scale float64) {
	use := seg.use()
	put(`<text x="%d" y="%d">%#x</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
		svgMargin, y+15, seg.Address, svgLeft-8, y+15, bytesText(seg.Size))
	put(`<rect x="%d" y="%d" width="%.2f" height="%d" fill="#ffffff" stroke="#333"><title>%s of %s in use, largest free block %s</title></rect>`+"\n",
		svgLeft, y, float64(seg.Size)*scale, svgBar, bytesText(use.used), bytesText(seg.Size), bytesText(use.largest))
	for i := range seg.Blocks {
		b := &seg.Blocks[i]
		at := svgLeft + float64(b.Address-seg.Address)*scale
		title := html.EscapeString(fmt.Sprintf("%#x: %s, %s asked for %s", b.Address, bytesText(b.Size), bytesText(b.Requested), b.Tag))
		bar := func(x float64, size uint64, fill string) {
			put(`<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="#333" stroke-width="0.3"><title>%s</title></rect>`+"\n",
				x, y, float64(size)*scale, svgBar, fill, title)
		}
		switch {
		case b.State == BlockActive:
			bar(at, b.Size, svgColours[1].fill)
			bar(at, b.Requested, svgColours[0].fill)
		case b.State == BlockPending:
			bar(at, b.Size, svgColours[2].fill)
		case b.Cached:
			bar(at, b.Size, svgColours[3].fill)
		}
	}
}
