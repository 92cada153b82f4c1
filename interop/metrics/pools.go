package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/usmbridge/usmbridge/memmgr"
)

// series identifies pools, or tenants of pools, with the same labels.
type series struct {
	pool   string // name of the pool
	place  string // its memory, such as "shared memory on opencl:cpu:0"
	tenant string // name of the tenant; "" for the pool itself
}

// label returns a text as the value of a label. Prometheus refuses values that are not UTF-8, and with them all
// metrics of the process. Names that differ only in such bytes have one series.
func label(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// seriesOf returns the series of a pool.
func seriesOf(p *memmgr.Pool) series {
	s := series{pool: label(p.Name()), place: "none"}
	if place := p.Place(); place != nil {
		s.place = label(place.String())
	}
	return s
}

// sums reads the counters of all open pools. Those of the same series are added.
func sums() map[series]*memmgr.Stats {
	all := map[series]*memmgr.Stats{}
	for _, p := range memmgr.Pools() {
		add(all, seriesOf(p), p.Stats())
	}
	return all
}

// tenantSums does the same for the open tenants of all open pools.
func tenantSums() map[series]*memmgr.Stats {
	all := map[series]*memmgr.Stats{}
	for _, p := range memmgr.Pools() {
		for _, t := range p.Tenants() {
			key := seriesOf(p)
			key.tenant = label(t.Name())
			add(all, key, t.Stats())
		}
	}
	return all
}

func add(all map[series]*memmgr.Stats, key series, s memmgr.Stats) {
	if sum, ok := all[key]; ok {
		sum.Add(&s)
		return
	}
	all[key] = &s
}

// inOrder returns the series, sorted by their names.
func inOrder(all map[series]*memmgr.Stats) []series {
	return slices.SortedFunc(maps.Keys(all), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.place, b.place), cmp.Compare(a.tenant, b.tenant))
	})
}
