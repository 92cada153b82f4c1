package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/usmbridge/usmbridge/memmgr"
)

// instrument is one of OpenTelemetry, read when the reader collects.
type instrument struct {
	metric.Int64Observable
	of func(*memmgr.Stats) int64
}

// Observe makes the instruments on a meter and reads the pools whenever the meter's
// reader collects, until the registration is unregistered. Memory is told by the
// names of OpenTelemetry's conventions for hardware (hw.gpu.memory.usage and
// hw.gpu.memory.limit, status development), with hw.id for the pool's memory and
// hw.type "gpu", "cpu" or, for the host backend, "memory"; what they have no name for
// is under usmbridge.memory.
func Observe(meter metric.Meter) (metric.Registration, error) {
	b := builder{meter: meter}
	b.upDown("hw.gpu.memory.usage", "By", "Memory that the pool holds of the device.", func(s *memmgr.Stats) int64 { return s.ReservedBytes.Current })
	b.upDown("usmbridge.memory.allocated", "By", "Memory of buffers in use.", func(s *memmgr.Stats) int64 { return s.AllocatedBytes.Current })
	b.upDown("usmbridge.memory.active", "By", "Memory in use or waiting for the device.", func(s *memmgr.Stats) int64 { return s.ActiveBytes.Current })
	b.upDown("usmbridge.memory.requested", "By", "Memory that users asked for of what is in use.", func(s *memmgr.Stats) int64 { return s.RequestedBytes.Current })
	b.upDown("usmbridge.memory.cached", "By", "Memory of free blocks kept for their size class.", func(s *memmgr.Stats) int64 { return s.CachedBytes })
	b.upDown("usmbridge.memory.buffers", "{buffer}", "Buffers in use.", func(s *memmgr.Stats) int64 { return s.Allocation.Current })
	b.upDown("usmbridge.memory.waiting", "{request}", "Requests that wait for memory.", func(s *memmgr.Stats) int64 { return s.NumWaiting })
	b.counter("usmbridge.memory.allocations", "{allocation}", "Buffers given out.", func(s *memmgr.Stats) int64 { return s.Allocation.Allocated })
	b.counter("usmbridge.memory.frees", "{free}", "Buffers taken back.", func(s *memmgr.Stats) int64 { return s.Allocation.Freed })
	b.counter("usmbridge.memory.refusals", "{request}", "Requests that failed for want of memory.", func(s *memmgr.Stats) int64 { return s.NumOOMs })
	b.counter("usmbridge.memory.segment.allocations", "{segment}", "Segments taken from the upstream.", func(s *memmgr.Stats) int64 { return s.NumDeviceAlloc })
	limit := b.observable(meter.Int64ObservableUpDownCounter("hw.gpu.memory.limit", metric.WithUnit("By"),
		metric.WithDescription("Memory of the device.")))
	latency, err := meter.Float64ObservableGauge("usmbridge.memory.allocation.duration", metric.WithUnit("s"),
		metric.WithDescription("Time that allocations took, by quantile."))
	if b.err == nil {
		b.err = err
	}
	if b.err != nil {
		return nil, b.err
	}
	all := []metric.Observable{limit, latency}
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
		return nil
	}, all...)
}

// attributes are those of every observation.
func (k series) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("hw.id", k.place), attribute.String("hw.type", k.hardware),
		attribute.String("usmbridge.pool", k.pool),
	}
}

// deviceSizes tells the memory of the devices that pools stand on, where it is known.
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

// builder makes instruments and keeps the first failure.
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
