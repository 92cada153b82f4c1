package report

import (
	"cmp"
	"fmt"
	"io"
	"sort"
	"text/tabwriter"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/bytesize"
)

// WriteTable writes the state of a pool as text: its counters, its segments, and the
// memory in use by tag.
func WriteTable(w io.Writer, s *memmgr.Snapshot) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) } // Flush returns the error
	line("pool %q\t%s\n\n", s.Pool, s.Place)
	line("\tcurrent\tpeak\tever\n")
	for _, row := range []struct {
		name string
		of   memmgr.Stat
	}{
		{"requested", s.Stats.RequestedBytes}, {"allocated", s.Stats.AllocatedBytes},
		{"active", s.Stats.ActiveBytes}, {"reserved", s.Stats.ReservedBytes},
		{"free in used segments", s.Stats.InactiveSplitBytes},
	} {
		line("%s\t%s\t%s\t%s\n", row.name, bytesize.Text(uint64(row.of.Current)), bytesize.Text(uint64(row.of.Peak)), bytesize.Text(uint64(row.of.Allocated)))
	}
	line("cached\t%s\nbookkeeping\t%s\n", bytesize.Text(uint64(s.Stats.CachedBytes)), bytesize.Text(uint64(s.Stats.MetadataBytes)))
	line("buffers\t%d\t%d\t%d\n", s.Stats.Allocation.Current, s.Stats.Allocation.Peak, s.Stats.Allocation.Allocated)
	line("segments\t%d\t%d\t%d\n", s.Stats.Segment.Current, s.Stats.Segment.Peak, s.Stats.Segment.Allocated)
	line("retries, failures\t%d\t%d\n\n", s.Stats.NumAllocRetries, s.Stats.NumOOMs)
	line("segment\tsize\tused\tpending\tcached\tfree\tblocks\tlargest free\n")
	for i := range s.Segments {
		f := useOf(&s.Segments[i])
		line("%#x\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", s.Segments[i].Address, bytesize.Text(s.Segments[i].Size), bytesize.Text(f.used),
			bytesize.Text(f.pending), bytesize.Text(f.cached), bytesize.Text(f.free), len(s.Segments[i].Blocks), bytesize.Text(f.largest))
	}
	line("\ntag\tbytes\tbuffers\n")
	for _, h := range holders(s) {
		line("%s\t%s\t%d\n", cmp.Or(h.Tag, "(no tag)"), bytesize.Text(h.Bytes), h.Count)
	}
	return t.Flush()
}

type segmentUse struct {
	used, pending, cached, free, largest uint64
}

// useOf adds up the blocks of a segment by state.
func useOf(s *memmgr.SnapshotSegment) (u segmentUse) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		switch {
		case b.State == memmgr.BlockActive:
			u.used += b.Size
		case b.State == memmgr.BlockPending:
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

// holders adds up the blocks in use by tag, largest first.
func holders(s *memmgr.Snapshot) []memmgr.Holder {
	byTag := map[string]*memmgr.Holder{}
	for i := range s.Segments {
		for _, b := range s.Segments[i].Blocks {
			if b.State != memmgr.BlockActive {
				continue
			}
			h := byTag[b.Tag]
			if h == nil {
				h = &memmgr.Holder{Tag: b.Tag}
				byTag[b.Tag] = h
			}
			h.Bytes += b.Size
			h.Count++
		}
	}
	all := make([]memmgr.Holder, 0, len(byTag))
	for _, h := range byTag {
		all = append(all, *h)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Bytes > all[j].Bytes })
	return all
}

// leakKey identifies a place of allocation and a tag. Each place has one array of addresses.
type leakKey struct {
	stack *uintptr
	tag   string
}

// WriteLeaks writes the memory that is still referenced, grouped by place of allocation and
// tag, largest first. It returns how many pieces of memory it found.
func WriteLeaks(w io.Writer) (int, error) {
	type group struct {
		first memmgr.LiveBuffer
		n     int
		bytes uint64
	}
	groups := map[leakKey]*group{}
	all := memmgr.Live()
	for _, b := range all {
		k := leakKey{unsafe.SliceData(b.Stack), b.Tag}
		g := groups[k]
		if g == nil {
			g = &group{first: b}
			groups[k] = g
		}
		g.n++
		if b.Size != memmgr.UnknownSize {
			g.bytes += b.Size
		}
	}
	sorted := make([]*group, 0, len(groups))
	for _, g := range groups {
		sorted = append(sorted, g)
	}
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].bytes > sorted[j].bytes })
	for _, g := range sorted {
		where := g.first.Stack.String()
		if where == "" {
			where = "\t(memmgr.RecordStacks(16) records where)\n"
		}
		tag := ""
		if g.first.Tag != "" {
			tag = fmt.Sprintf(" tagged %q", g.first.Tag)
		}
		_, err := fmt.Fprintf(w, "%d still referenced, %s%s, first at %#x, allocated at\n%s",
			g.n, bytesize.Text(g.bytes), tag, g.first.Address, where)
		if err != nil {
			return len(all), err
		}
	}
	return len(all), nil
}
