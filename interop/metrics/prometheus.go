package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/usmbridge/usmbridge/memmgr"
)

// family is a metric with one number a series.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*memmgr.Stats) int64
}

// histogram is a metric of durations.
type histogram struct {
	desc *prometheus.Desc
	of   func(*memmgr.Stats) *memmgr.Latency
}

// labels of every metric: the pool's name and its memory, such as
// "shared memory of opencl:cpu:0".
var labels = []string{"pool", "place"}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("usmbridge_memory_"+name, help, labels, nil)
}

func gauge(name, help string, of func(*memmgr.Stats) int64) family {
	return family{describe(name, help), prometheus.GaugeValue, of}
}

func counter(name, help string, of func(*memmgr.Stats) int64) family {
	return family{describe(name, help), prometheus.CounterValue, of}
}

// Collector implements prometheus.Collector for the open pools of the process.
type Collector struct {
	families   []family
	histograms []histogram
}

// NewCollector returns a collector, to be registered once:
//
//	prometheus.MustRegister(metrics.NewCollector())
//
// Pools may be made and closed at any time. Safe for concurrent use.
func NewCollector() *Collector {
	return &Collector{
		families: []family{
			gauge("allocated_bytes", "Bytes of buffers in use.", func(s *memmgr.Stats) int64 { return s.AllocatedBytes.Current }),
			gauge("allocated_bytes_peak", "Most bytes in use since the last reset of peaks.", func(s *memmgr.Stats) int64 { return s.AllocatedBytes.Peak }),
			gauge("requested_bytes", "Bytes that users asked for of those in use.", func(s *memmgr.Stats) int64 { return s.RequestedBytes.Current }),
			gauge("active_bytes", "Bytes in use or waiting for the device.", func(s *memmgr.Stats) int64 { return s.ActiveBytes.Current }),
			gauge("reserved_bytes", "Bytes of segments held from the upstream.", func(s *memmgr.Stats) int64 { return s.ReservedBytes.Current }),
			gauge("reserved_bytes_peak", "Most bytes of segments since the last reset of peaks.", func(s *memmgr.Stats) int64 { return s.ReservedBytes.Peak }),
			gauge("inactive_split_bytes", "Free bytes in segments that are partly in use.", func(s *memmgr.Stats) int64 { return s.InactiveSplitBytes.Current }),
			gauge("cached_bytes", "Bytes of free blocks kept for their size class.", func(s *memmgr.Stats) int64 { return s.CachedBytes }),
			gauge("metadata_bytes", "Bytes that keeping the books takes.", func(s *memmgr.Stats) int64 { return s.MetadataBytes }),
			gauge("buffers", "Buffers in use.", func(s *memmgr.Stats) int64 { return s.Allocation.Current }),
			gauge("segments", "Segments held from the upstream.", func(s *memmgr.Stats) int64 { return s.Segment.Current }),
			gauge("waiting_requests", "Requests that wait for memory now.", func(s *memmgr.Stats) int64 { return s.NumWaiting }),
			counter("allocations_total", "Buffers given out.", func(s *memmgr.Stats) int64 { return s.Allocation.Allocated }),
			counter("frees_total", "Buffers taken back.", func(s *memmgr.Stats) int64 { return s.Allocation.Freed }),
			counter("refusals_total", "Requests that failed for want of memory.", func(s *memmgr.Stats) int64 { return s.NumOOMs }),
			counter("retries_total", "Times that memory was looked for again.", func(s *memmgr.Stats) int64 { return s.NumAllocRetries }),
			counter("segment_allocations_total", "Segments taken from the upstream.", func(s *memmgr.Stats) int64 { return s.NumDeviceAlloc }),
			counter("segment_frees_total", "Segments given back to the upstream.", func(s *memmgr.Stats) int64 { return s.NumDeviceFree }),
		},
		histograms: []histogram{
			{describe("allocation_seconds", "Time that allocations took; those from a processor's cache count in the least bucket."),
				func(s *memmgr.Stats) *memmgr.Latency { return &s.AllocationLatency }},
			{describe("upstream_seconds", "Time that calls of the upstream for segments took."),
				func(s *memmgr.Stats) *memmgr.Latency { return &s.UpstreamLatency }},
			{describe("wait_seconds", "Time that requests waited for memory."),
				func(s *memmgr.Stats) *memmgr.Latency { return &s.WaitLatency }},
		},
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for i := range c.families {
		to <- c.families[i].desc
	}
	for i := range c.histograms {
		to <- c.histograms[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	all := sums()
	for _, key := range inOrder(all) {
		s := all[key]
		for i := range c.families {
			f := &c.families[i]
			to <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(f.of(s)), key.pool, key.place)
		}
		for i := range c.histograms {
			h := &c.histograms[i]
			to <- h.metric(h.of(s), key)
		}
	}
}

// metric makes Prometheus's form of a distribution: calls up to each bound. The sum
// of durations is not known, and estimated by the tops of the buckets.
func (h *histogram) metric(l *memmgr.Latency, key series) prometheus.Metric {
	upTo, sum, calls := map[float64]uint64{}, 0.0, uint64(0)
	for top, n := range l.Buckets {
		calls += uint64(n)
		sum += top.Seconds() * float64(n)
		upTo[top.Seconds()] = calls
	}
	return prometheus.MustNewConstHistogram(h.desc, calls, sum, upTo, key.pool, key.place)
}
