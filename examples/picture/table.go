package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// handover is one exchange of a buffer between Go and Python.
type handover struct {
	buffer   string // name of the buffer
	protocol string
	from, to string
	here     uintptr // its address in Go
	there    uintptr // its address in Python
	bytes    int     // its size
	took     time.Duration
}

// copied returns the number of bytes that the hand-over copied: 0 if both addresses are equal, otherwise
// the size of the buffer.
func (h handover) copied() int {
	if h.here == h.there {
		return 0
	}
	return h.bytes
}

// printTable writes a table with one line for each hand-over.
func printTable(w io.Writer, list []handover) {
	rows := [][]string{{"buffer", "protocol", "from -> to", "Go's pointer", "their pointer", "bytes copied", "time"}}
	for _, h := range list {
		rows = append(rows, []string{
			h.buffer, h.protocol, h.from + " -> " + h.to,
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

// micros formats a time in microseconds.
func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f us", float64(d.Nanoseconds())/1000)
}
