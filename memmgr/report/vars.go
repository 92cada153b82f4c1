package report

import "github.com/usmbridge/usmbridge/memmgr"

// Vars returns the counters of the open pools as package expvar publishes them, by
// the pool's name, or its memory when it has none; pools that share it are added up.
//
//	expvar.Publish("usmbridge", expvar.Func(func() any { return report.Vars() }))
func Vars() map[string]map[string]int64 {
	sums := map[string]*memmgr.Stats{}
	for _, p := range memmgr.Pools() {
		name, s := p.Name(), p.Stats()
		if place := p.Place(); name == "" && place != nil {
			name = place.String()
		}
		if sum := sums[name]; sum != nil {
			sum.Add(&s)
			continue
		}
		sums[name] = &s
	}
	all := map[string]map[string]int64{}
	for name, s := range sums {
		all[name] = s.Map()
	}
	return all
}
