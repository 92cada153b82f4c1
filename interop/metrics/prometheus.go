package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/usmbridge/usmbridge/memmgr"
)

// source is a group of metrics.
type source struct {
	descs []*prometheus.Desc
	read  func(to chan<- prometheus.Metric)
}

// row is a metric. It is a counter if its name ends with "_total", and otherwise a gauge.
type row[T any] struct {
	name, help string
	of         func(T) float64
}

// newSource makes a source of rows with the same labels. each calls its argument for every value, with the values of the
// labels.
func newSource[T any](labels []string, rows []row[T], each func(func(value T, labels ...string))) source {
	descs, send := describe(labels, rows)
	return source{descs, func(to chan<- prometheus.Metric) {
		each(func(value T, labels ...string) { send(to, value, labels...) })
	}}
}

// describe returns the descriptions of rows with the same labels, and a function that sends the metrics of a value.
func describe[T any](labels []string, rows []row[T]) (descs []*prometheus.Desc, send func(to chan<- prometheus.Metric, value T, labels ...string)) {
	for _, r := range rows {
		descs = append(descs, prometheus.NewDesc("usmbridge_"+r.name, r.help, labels, nil))
	}
	return descs, func(to chan<- prometheus.Metric, value T, labels ...string) {
		for i, r := range rows {
			kind := prometheus.GaugeValue
			if strings.HasSuffix(r.name, "_total") {
				kind = prometheus.CounterValue
			}
			to <- prometheus.MustNewConstMetric(descs[i], kind, r.of(value), labels...)
		}
	}
}

// Collector implements prometheus.Collector for the open pools of the process and the sources of
// its options.
type Collector struct{ sources []source }

// NewCollector returns a collector. Register it once. Pools may be created and closed at any time. Safe
// for concurrent use.
func NewCollector(options ...Option) *Collector {
	c := &Collector{[]source{pools()}}
	for _, add := range options {
		add(&c.sources)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, s := range c.sources {
		for _, d := range s.descs {
			to <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.sources {
		s.read(to)
	}
}

// poolLabels are the labels of every metric of a pool: its name and its memory, such as "shared memory of
// opencl:cpu:0".
var poolLabels = []string{"pool", "place"}

// pools is the source of the counters and histograms of the pools. It reads the state of each pool once.
func pools() source {
	descs, send := describe(poolLabels, []row[*memmgr.Stats]{
		{"memory_allocated_bytes", "Bytes of buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.AllocatedBytes.Current) }},
		{"memory_allocated_bytes_peak", "Maximum of the bytes in use since the last reset of peaks.", func(s *memmgr.Stats) float64 { return float64(s.AllocatedBytes.Peak) }},
		{"memory_requested_bytes", "Requested bytes of the buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.RequestedBytes.Current) }},
		{"memory_active_bytes", "Bytes in use, or with pending device work.", func(s *memmgr.Stats) float64 { return float64(s.ActiveBytes.Current) }},
		{"memory_reserved_bytes", "Bytes of segments held from the upstream.", func(s *memmgr.Stats) float64 { return float64(s.ReservedBytes.Current) }},
		{"memory_reserved_bytes_peak", "Maximum of the bytes of segments since the last reset of peaks.", func(s *memmgr.Stats) float64 { return float64(s.ReservedBytes.Peak) }},
		{"memory_inactive_split_bytes", "Free bytes in segments with buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.InactiveSplitBytes.Current) }},
		{"memory_cached_bytes", "Bytes of free blocks kept for their size class.", func(s *memmgr.Stats) float64 { return float64(s.CachedBytes) }},
		{"memory_metadata_bytes", "Bytes of the pool's own bookkeeping.", func(s *memmgr.Stats) float64 { return float64(s.MetadataBytes) }},
		{"memory_buffers", "Buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.Allocation.Current) }},
		{"memory_segments", "Segments held from the upstream.", func(s *memmgr.Stats) float64 { return float64(s.Segment.Current) }},
		{"memory_waiting_requests", "Requests that wait for memory.", func(s *memmgr.Stats) float64 { return float64(s.NumWaiting) }},
		{"memory_allocations_total", "Allocations.", func(s *memmgr.Stats) float64 { return float64(s.Allocation.Allocated) }},
		{"memory_frees_total", "Frees.", func(s *memmgr.Stats) float64 { return float64(s.Allocation.Freed) }},
		{"memory_refusals_total", "Requests that failed because memory was missing.", func(s *memmgr.Stats) float64 { return float64(s.NumOOMs) }},
		{"memory_retries_total", "Retries of requests after idle memory was reclaimed.", func(s *memmgr.Stats) float64 { return float64(s.NumAllocRetries) }},
		{"memory_segment_allocations_total", "Segments allocated from the upstream.", func(s *memmgr.Stats) float64 { return float64(s.NumDeviceAlloc) }},
		{"memory_segment_frees_total", "Segments freed to the upstream.", func(s *memmgr.Stats) float64 { return float64(s.NumDeviceFree) }},
	})
	counters, durations := len(descs), []struct {
		name, help string
		of         func(*memmgr.Stats) *memmgr.Latency
	}{
		{"allocation_seconds", "Duration of allocations; those from a processor's cache count in the smallest bucket.",
			func(s *memmgr.Stats) *memmgr.Latency { return &s.AllocationLatency }},
		{"upstream_seconds", "Duration of the upstream's allocations of segments.",
			func(s *memmgr.Stats) *memmgr.Latency { return &s.UpstreamLatency }},
		{"wait_seconds", "Time that requests waited for memory.",
			func(s *memmgr.Stats) *memmgr.Latency { return &s.WaitLatency }},
	}
	for _, h := range durations {
		descs = append(descs, prometheus.NewDesc("usmbridge_memory_"+h.name, h.help, poolLabels, nil))
	}
	return source{descs, func(to chan<- prometheus.Metric) {
		all := sums()
		for _, key := range inOrder(all) {
			send(to, all[key], key.pool, key.place)
			for i, h := range durations {
				to <- histogram(descs[counters+i], h.of(all[key]), key)
			}
		}
	}}
}

// histogram converts a distribution to the form of Prometheus: the number of calls up to each bound. The
// pool does not record the sum of the durations. It is estimated by the upper bounds of the buckets.
func histogram(desc *prometheus.Desc, l *memmgr.Latency, key series) prometheus.Metric {
	upTo, sum, calls := map[float64]uint64{}, 0.0, uint64(0)
	for top, n := range l.Buckets {
		calls += uint64(n)
		sum += top.Seconds() * float64(n)
		upTo[top.Seconds()] = calls
	}
	return prometheus.MustNewConstHistogram(desc, calls, sum, upTo, key.pool, key.place)
}
