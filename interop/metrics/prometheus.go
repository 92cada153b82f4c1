package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/usmbridge/usmbridge/memmgr"
)

// family is a metric with one number per series.
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

// labels are the labels of every metric of a pool: its name and its memory, such as "shared memory of
// opencl:cpu:0".
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

// Collector implements prometheus.Collector for the open pools of the process and the sources of
// its options.
type Collector struct {
	families   []family
	histograms []histogram
	sources    []source
	descs      [][]*prometheus.Desc // of the metrics of each source
}

// NewCollector returns a collector. Register it once. Pools may be created and closed at any time. Safe
// for concurrent use.
func NewCollector(options ...Option) *Collector {
	c := newPoolCollector()
	for _, add := range options {
		add(&c.sources)
	}
	for _, s := range c.sources {
		var descs []*prometheus.Desc
		for i := range s.metrics {
			descs = append(descs, prometheus.NewDesc(s.metrics[i].prometheusName(), s.metrics[i].help, s.metrics[i].labels, nil))
		}
		c.descs = append(c.descs, descs)
	}
	return c
}

// prometheusName returns the name of a metric with the suffixes that Prometheus uses for its unit and
// for counters.
func (d *definition) prometheusName() string {
	name := "usmbridge_" + strings.ReplaceAll(d.name, ".", "_")
	switch d.unit {
	case "By":
		name += "_bytes"
	case "s":
		name += "_seconds"
	}
	if d.counter {
		name += "_total"
	}
	return name
}

func newPoolCollector() *Collector {
	return &Collector{
		families: []family{
			gauge("allocated_bytes", "Bytes of buffers in use.", func(s *memmgr.Stats) int64 { return s.AllocatedBytes.Current }),
			gauge("allocated_bytes_peak", "Maximum of the bytes in use since the last reset of peaks.", func(s *memmgr.Stats) int64 { return s.AllocatedBytes.Peak }),
			gauge("requested_bytes", "Requested bytes of the buffers in use.", func(s *memmgr.Stats) int64 { return s.RequestedBytes.Current }),
			gauge("active_bytes", "Bytes in use, or with pending device work.", func(s *memmgr.Stats) int64 { return s.ActiveBytes.Current }),
			gauge("reserved_bytes", "Bytes of segments held from the upstream.", func(s *memmgr.Stats) int64 { return s.ReservedBytes.Current }),
			gauge("reserved_bytes_peak", "Maximum of the bytes of segments since the last reset of peaks.", func(s *memmgr.Stats) int64 { return s.ReservedBytes.Peak }),
			gauge("inactive_split_bytes", "Free bytes in segments with buffers in use.", func(s *memmgr.Stats) int64 { return s.InactiveSplitBytes.Current }),
			gauge("cached_bytes", "Bytes of free blocks kept for their size class.", func(s *memmgr.Stats) int64 { return s.CachedBytes }),
			gauge("metadata_bytes", "Bytes of the pool's own bookkeeping.", func(s *memmgr.Stats) int64 { return s.MetadataBytes }),
			gauge("buffers", "Buffers in use.", func(s *memmgr.Stats) int64 { return s.Allocation.Current }),
			gauge("segments", "Segments held from the upstream.", func(s *memmgr.Stats) int64 { return s.Segment.Current }),
			gauge("waiting_requests", "Requests that wait for memory.", func(s *memmgr.Stats) int64 { return s.NumWaiting }),
			counter("allocations_total", "Allocations.", func(s *memmgr.Stats) int64 { return s.Allocation.Allocated }),
			counter("frees_total", "Frees.", func(s *memmgr.Stats) int64 { return s.Allocation.Freed }),
			counter("refusals_total", "Requests that failed because memory was missing.", func(s *memmgr.Stats) int64 { return s.NumOOMs }),
			counter("retries_total", "Retries of requests after idle memory was reclaimed.", func(s *memmgr.Stats) int64 { return s.NumAllocRetries }),
			counter("segment_allocations_total", "Segments allocated from the upstream.", func(s *memmgr.Stats) int64 { return s.NumDeviceAlloc }),
			counter("segment_frees_total", "Segments freed to the upstream.", func(s *memmgr.Stats) int64 { return s.NumDeviceFree }),
		},
		histograms: []histogram{
			{describe("allocation_seconds", "Duration of allocations; those from a processor's cache count in the smallest bucket."),
				func(s *memmgr.Stats) *memmgr.Latency { return &s.AllocationLatency }},
			{describe("upstream_seconds", "Duration of the upstream's allocations of segments."),
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
	for _, descs := range c.descs {
		for _, d := range descs {
			to <- d
		}
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
	for i, s := range c.sources {
		s.read(func(metric int, value float64, labels ...string) {
			kind := prometheus.GaugeValue
			if s.metrics[metric].counter {
				kind = prometheus.CounterValue
			}
			to <- prometheus.MustNewConstMetric(c.descs[i][metric], kind, value, labels...)
		})
	}
}

// metric converts a distribution to the form of Prometheus: the number of calls up to each bound. The
// pool does not record the sum of the durations. It is estimated by the upper bounds of the buckets.
func (h *histogram) metric(l *memmgr.Latency, key series) prometheus.Metric {
	upTo, sum, calls := map[float64]uint64{}, 0.0, uint64(0)
	for top, n := range l.Buckets {
		calls += uint64(n)
		sum += top.Seconds() * float64(n)
		upTo[top.Seconds()] = calls
	}
	return prometheus.MustNewConstHistogram(h.desc, calls, sum, upTo, key.pool, key.place)
}
