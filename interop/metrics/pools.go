package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/usmbridge/usmbridge/memmgr"
)

// series is what tells the pools of one set of labels from others.
type series struct {
	pool     string // its name
	place    string // its memory, such as "shared memory on opencl:cpu:0"
	hardware string // what that is of: "gpu", "cpu", "accelerator" or "memory"
}

// seriesOf names the series of a pool.
func seriesOf(p *memmgr.Pool) series {
	s := series{pool: p.Name(), place: "none", hardware: "memory"}
	place := p.Place()
	if place == nil {
		return s
	}
	s.place = place.String()
	if device, err := place.Device(); err == nil && !place.IsHost() {
		s.hardware = device.Info().Type.String()
	}
	return s
}

// sums reads the counters of all open pools, those of one series added up.
func sums() map[series]*memmgr.Stats {
	all := map[series]*memmgr.Stats{}
	for _, p := range memmgr.Pools() {
		s := p.Stats()
		key := seriesOf(p)
		if sum, ok := all[key]; ok {
			sum.Add(&s)
			continue
		}
		all[key] = &s
	}
	return all
}

// inOrder lists the series by name.
func inOrder(all map[series]*memmgr.Stats) []series {
	return slices.SortedFunc(maps.Keys(all), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.place, b.place))
	})
}
