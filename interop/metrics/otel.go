package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/usmbridge/usmbridge/memmgr"
)

// instrument is an instrument of OpenTelemetry that is read when the reader collects.
type instrument struct {
	metric.Int64Observable
	of func(*memmgr.Stats) int64
}

// Observe creates instruments on a meter. They read the pools and the sources of the options whenever
// the meter's reader collects. The caller unregisters the registration. The memory of a pool has the
// names of OpenTelemetry's conventions for hardware (hw.gpu.memory.usage and hw.gpu.memory.limit,
// status development), with the pool's memory as hw.id and "gpu", "cpu" or, for the host backend,
// "memory" as hw.type. Other names begin with "usmbridge.".
func Observe(meter metric.Meter, options ...Option) (metric.Registration, error) {
	b := builder{meter: meter}
	b.upDown("hw.gpu.memory.usage", "By", "Memory of the device that the pool holds.", func(s *memmgr.Stats) int64 { return s.ReservedBytes.Current })
	b.upDown("usmbridge.memory.allocated", "By", "Memory of buffers in use.", func(s *memmgr.Stats) int64 { return s.AllocatedBytes.Current })
	b.upDown("usmbridge.memory.active", "By", "Memory in use, or with pending device work.", func(s *memmgr.Stats) int64 { return s.ActiveBytes.Current })
	b.upDown("usmbridge.memory.requested", "By", "Requested memory of the buffers in use.", func(s *memmgr.Stats) int64 { return s.RequestedBytes.Current })
	b.upDown("usmbridge.memory.cached", "By", "Memory of free blocks kept for their size class.", func(s *memmgr.Stats) int64 { return s.CachedBytes })
	b.upDown("usmbridge.memory.buffers", "{buffer}", "Buffers in use.", func(s *memmgr.Stats) int64 { return s.Allocation.Current })
	b.upDown("usmbridge.memory.waiting", "{request}", "Requests that wait for memory.", func(s *memmgr.Stats) int64 { return s.NumWaiting })
	b.counter("usmbridge.memory.allocations", "{allocation}", "Allocations.", func(s *memmgr.Stats) int64 { return s.Allocation.Allocated })
	b.counter("usmbridge.memory.frees", "{free}", "Frees.", func(s *memmgr.Stats) int64 { return s.Allocation.Freed })
	b.counter("usmbridge.memory.refusals", "{request}", "Requests that failed because memory was missing.", func(s *memmgr.Stats) int64 { return s.NumOOMs })
	b.counter("usmbridge.memory.segment.allocations", "{segment}", "Segments allocated from the upstream.", func(s *memmgr.Stats) int64 { return s.NumDeviceAlloc })
	limit := b.observable(meter.Int64ObservableUpDownCounter("hw.gpu.memory.limit", metric.WithUnit("By"),
		metric.WithDescription("Memory of the device.")))
	latency, err := meter.Float64ObservableGauge("usmbridge.memory.allocation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of allocations, by quantile."))
	if b.err == nil {
		b.err = err
	}
	var sources []source
	for _, add := range options {
		add(&sources)
	}
	var more [][]metric.Float64Observable // of the metrics of each source
	all := []metric.Observable{limit, latency}
	for _, s := range sources {
		instruments := b.source(s)
		more = append(more, instruments)
		for _, i := range instruments {
			all = append(all, i)
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	for _, i := range b.all {
		all = append(all, i.Int64Observable)
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		sizes := deviceSizes()
		pools := sums()
		for _, key := range inOrder(pools) {
			s, with := pools[key], metric.WithAttributes(key.attributes()...)
			for _, i := range b.all {
				o.ObserveInt64(i.Int64Observable, i.of(s), with)
			}
			if size := sizes[key]; size > 0 {
				o.ObserveInt64(limit, size, with)
			}
			l := &s.AllocationLatency
			for _, q := range []struct {
				name  string
				value float64
			}{{"0.5", l.P50.Seconds()}, {"0.9", l.P90.Seconds()}, {"0.99", l.P99.Seconds()}, {"0.999", l.P999.Seconds()}, {"1", l.Max.Seconds()}} {
				o.ObserveFloat64(latency, q.value, with, metric.WithAttributes(attribute.String("quantile", q.name)))
			}
		}
		for i, s := range sources {
			s.read(func(m int, value float64, labels ...string) {
				var attributes []attribute.KeyValue
				for k, name := range s.metrics[m].labels {
					attributes = append(attributes, attribute.String("usmbridge."+name, labels[k]))
				}
				o.ObserveFloat64(more[i][m], value, metric.WithAttributes(attributes...))
			})
		}
		return nil
	}, all...)
}

// attributes returns the attributes of every observation of a pool.
func (k series) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("hw.id", k.place), attribute.String("hw.type", k.hardware),
		attribute.String("usmbridge.pool", k.pool),
	}
}

// deviceSizes returns the memory sizes of the pools' devices, as far as they are known.
func deviceSizes() map[series]int64 {
	all := map[series]int64{}
	for _, p := range memmgr.Pools() {
		sized, ok := memmgr.As[interface{ DeviceTotal() uint64 }](p.Upstream())
		if ok {
			all[seriesOf(p)] = int64(sized.DeviceTotal())
		}
	}
	return all
}

// builder creates instruments and keeps the first error.
type builder struct {
	meter metric.Meter
	all   []instrument
	err   error
}

func (b *builder) observable(i metric.Int64Observable, err error) metric.Int64Observable {
	if b.err == nil {
		b.err = err
	}
	return i
}

func (b *builder) upDown(name, unit, help string, of func(*memmgr.Stats) int64) {
	i := b.observable(b.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(help)))
	b.all = append(b.all, instrument{i, of})
}

func (b *builder) counter(name, unit, help string, of func(*memmgr.Stats) int64) {
	i := b.observable(b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help)))
	b.all = append(b.all, instrument{i, of})
}

// source creates the instruments of a source.
func (b *builder) source(s source) []metric.Float64Observable {
	var all []metric.Float64Observable
	for i := range s.metrics {
		d := &s.metrics[i]
		var o metric.Float64Observable
		var err error
		if name := "usmbridge." + d.name; d.counter {
			o, err = b.meter.Float64ObservableCounter(name, metric.WithUnit(d.unit), metric.WithDescription(d.help))
		} else {
			o, err = b.meter.Float64ObservableGauge(name, metric.WithUnit(d.unit), metric.WithDescription(d.help))
		}
		if b.err == nil {
			b.err = err
		}
		all = append(all, o)
	}
	return all
}
