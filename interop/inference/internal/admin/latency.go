package admin

import "github.com/usmbridge/usmbridge/interop/inference/internal/engine"

type histogram = engine.Histogram

// since is what a histogram counted after an earlier one.
func since(now, then *histogram) (d histogram) {
	for i := range now.Counts {
		d.Counts[i] = now.Counts[i] - then.Counts[i]
	}
	d.NS = now.NS - then.NS
	return d
}

func sum(into, h *histogram) {
	for i, n := range h.Counts {
		into.Counts[i] += n
	}
	into.NS += h.NS
}

// quantile estimates below how many seconds a part of the requests took, evenly within a
// bucket; nil where there were none. What took longer than the last bound counts as that.
func quantile(h *histogram, part float64) *float64 {
	total := uint64(0)
	for _, n := range h.Counts {
		total += n
	}
	if total == 0 {
		return nil
	}
	left, low := part*float64(total), 0.0
	for i, n := range h.Counts {
		if i == len(engine.LatencyBounds) {
			break
		}
		high := engine.LatencyBounds[i]
		if left <= float64(n) {
			v := low + (high-low)*left/float64(n)
			return &v
		}
		left -= float64(n)
		low = high
	}
	return &low
}

func count(h *histogram) (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}
