package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// handover is one passing of a buffer from one side to the other.
type handover struct {
	what     string // which buffer
	protocol string
	from, to string
	here     uintptr // its address as Go knows it
	there    uintptr // as the other side sees it
	bytes    int     // its size
	took     time.Duration
}

// copied is how many bytes the hand-over copied: none when both sides have the
// same address, otherwise the whole buffer.
func (h handover) copied() int {
	if h.here == h.there {
		return 0
	}
	return h.bytes
}

// printTable writes the hand-overs, one a line, in columns.
func printTable(w io.Writer, list []handover) {
	rows := [][]string{{"buffer", "protocol", "from -> to", "Go's pointer", "their pointer", "bytes copied", "time"}}
	for _, h := range list {
		rows = append(rows, []string{
			h.what, h.protocol, h.from + " -> " + h.to,
			fmt.Sprintf("0x%x", h.here), fmt.Sprintf("0x%x", h.there),
			fmt.Sprintf("%d of %d", h.copied(), h.bytes), micros(h.took),
		})
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", width[j], cell)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
		if i == 0 {
			total := 2 * (len(width) - 1)
			for _, n := range width {
				total += n
			}
			fmt.Fprintln(w, strings.Repeat("-", total))
		}
	}
}

// micros gives a time in microseconds, the unit of all hand-overs.
func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f us", float64(d.Nanoseconds())/1000)
}
