package pymodule

import (
	"sort"

	"github.com/usmbridge/usmbridge/memmgr"
)

// counter is one entry of stats().
type counter struct {
	name  string
	value int64
}

// counters gives what the memory manager counts: the sum of its pools, by the
// names of PyTorch's memory_stats, and what is referenced at all, memory of
// others included.
func counters() []counter {
	total := memmgr.TotalStats()
	m := total.Map()
	n, bytes := memmgr.LiveCount()
	m["live_buffers.all.current"] = int64(n)
	m["live_bytes.all.current"] = int64(bytes)
	list := make([]counter, 0, len(m))
	for name, value := range m {
		list = append(list, counter{name, value})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	return list
}
