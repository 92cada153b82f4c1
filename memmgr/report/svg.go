package report

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/bytesize"
)

// Sizes and colours of the picture.
const (
	svgWidth  = 1200
	svgBar    = 22
	svgGap    = 10
	svgLeft   = 230
	svgTop    = 96
	svgMargin = 20
)

// svgColours differ for colour-blind readers, too.
var svgColours = []struct{ name, fill string }{
	{"in use", "#3b6fb6"}, {"rounding", "#9dbde3"}, {"waiting for the device", "#d97b29"},
	{"cached", "#b9b9b9"}, {"free", "#ffffff"},
}

// WriteSVG draws the segments as bars, to one scale, with their blocks: in use
// (with the bytes that rounding added), waiting for the device, cached, free. Hovering over
// a block shows its address, sizes and tag.
func WriteSVG(w io.Writer, s *memmgr.Snapshot) error {
	segments := append([]memmgr.SnapshotSegment(nil), s.Segments...)
	sort.SliceStable(segments, func(i, j int) bool { return segments[i].Size > segments[j].Size })
	largest := uint64(1)
	for i := range segments {
		largest = max(largest, segments[i].Size)
	}
	height := svgTop + len(segments)*(svgBar+svgGap) + svgMargin
	b := bufio.NewWriter(w)
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format, args...) } // Flush returns the error
	put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, height, svgWidth, height)
	put(`<rect width="100%%" height="100%%" fill="#fafafa"/>` + "\n")
	put(`<text x="%d" y="28" font-size="18">%s</text>`+"\n", svgMargin, xmlText(fmt.Sprintf("Pool %q: %s", s.Pool, s.Place)))
	put(`<text x="%d" y="50">%s</text>`+"\n", svgMargin, xmlText(fmt.Sprintf(
		"%s in use in %d buffers (%s asked for), %s reserved in %d segments, peak %s",
		bytesize.Text(uint64(s.Stats.AllocatedBytes.Current)), s.Stats.Allocation.Current, bytesize.Text(uint64(s.Stats.RequestedBytes.Current)),
		bytesize.Text(uint64(s.Stats.ReservedBytes.Current)), len(s.Segments), bytesize.Text(uint64(s.Stats.ReservedBytes.Peak)))))
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

// xmlText escapes a text. Bytes and characters that XML does not allow become U+FFFD.
func xmlText(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder returns no error
	return b.String()
}

func drawSegment(put func(string, ...any), seg *memmgr.SnapshotSegment, y int, scale float64) {
	use := useOf(seg)
	put(`<text x="%d" y="%d">%#x</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
		svgMargin, y+15, seg.Address, svgLeft-8, y+15, bytesize.Text(seg.Size))
	put(`<rect x="%d" y="%d" width="%.2f" height="%d" fill="#ffffff" stroke="#333"><title>%s of %s in use, largest free block %s</title></rect>`+"\n",
		svgLeft, y, float64(seg.Size)*scale, svgBar, bytesize.Text(use.used), bytesize.Text(seg.Size), bytesize.Text(use.largest))
	for i := range seg.Blocks {
		b := &seg.Blocks[i]
		at := svgLeft + float64(b.Address-seg.Address)*scale
		title := xmlText(fmt.Sprintf("%#x: %s, %s asked for %s", b.Address, bytesize.Text(b.Size), bytesize.Text(b.Requested), b.Tag))
		bar := func(x float64, size uint64, fill string) {
			put(`<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="#333" stroke-width="0.3"><title>%s</title></rect>`+"\n",
				x, y, float64(size)*scale, svgBar, fill, title)
		}
		switch {
		case b.State == memmgr.BlockActive:
			bar(at, b.Size, svgColours[1].fill)
			bar(at, b.Requested, svgColours[0].fill)
		case b.State == memmgr.BlockPending:
			bar(at, b.Size, svgColours[2].fill)
		case b.Cached:
			bar(at, b.Size, svgColours[3].fill)
		}
	}
}
