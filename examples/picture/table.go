package main

import (
	"fmt"
	"io"
	"text/tabwriter"
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "buffer\tprotocol\tfrom -> to\tGo's pointer\ttheir pointer\tbytes copied\ttime")
	for _, h := range list {
		fmt.Fprintf(t, "%s\t%s\t%s -> %s\t0x%x\t0x%x\t%d of %d\t%.1f us\n",
			h.buffer, h.protocol, h.from, h.to, h.here, h.there, h.copied(), h.bytes, float64(h.took.Nanoseconds())/1000)
	}
	_ = t.Flush() // fails only if w does
}
