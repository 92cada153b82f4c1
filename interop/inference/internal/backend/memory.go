package backend

import (
	"fmt"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

// openMemory makes the pools.
func (b *Backend) openMemory(rt *syclobj.Runtime) error {
	b.Queue, b.Kind = rt.DefaultQueue(), syclobj.USMShared
	if b.Queue.IsHost() {
		b.Kind = syclobj.USMUnknown
	}
	from, err := b.upstream(rt)
	if err != nil {
		return err
	}
	limit := b.options.Limit
	pool := func(name string, bytes uint64) engine.Pool {
		return engine.Pool{Pool: memmgr.NewPool(memmgr.NewLimit(from, bytes), memmgr.WithName(name)), Limit: bytes}
	}
	b.Memory = pool("tensors", max(limit-limit/4-min(b.options.Regions, limit/2), 1))
	b.Calls, b.Results = pool("calls", max(limit/8, 1)), pool("results", max(limit/8, 1))
	memmgr.SetDefaultLimit(max(limit/2, 1))
	return nil
}

// upstream returns the upstream of the pools. Memory for workers is in segments that they can map.
func (b *Backend) upstream(rt *syclobj.Runtime) (_ memmgr.Resource, err error) {
	switch {
	case b.options.Workers == 0 && b.Queue.IsHost():
		return memmgr.Host(), nil
	case b.options.Workers == 0:
		return memmgr.USM(b.Queue, b.Kind), nil
	}
	if !b.Queue.IsHost() {
		if b.segments, err = segment.NewUSM(b.Queue, b.Kind, segment.PeersWrite); err == nil {
			return b.segments, nil
		}
		b.options.Log.Warn("USM of this device cannot be shared with workers: tensors are in host memory", "reason", err)
		b.Queue, b.Kind = rt.HostQueue(), syclobj.USMUnknown
	}
	if b.segments, err = segment.NewHost(segment.PeersWrite); err != nil {
		return nil, fmt.Errorf("backend: memory for workers: %w", err)
	}
	return b.segments, nil
}

// ForModels is engine.Options.ForModels: arrays of the kind of memory of the pools are in calls, and other
// arrays are in the default pools. Workers have memory of their own.
func (b *Backend) ForModels(calls memmgr.Resource, q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	host := q == nil || q.IsHost()
	if host && b.Queue.IsHost() || !host && !b.Queue.IsHost() && kind == b.Kind && q.Context().Equal(b.Queue.Context()) && q.Device().Equal(b.Queue.Device()) {
		return calls, nil
	}
	p, err := memmgr.Default(q, kind)
	if err != nil {
		return nil, err
	}
	return p, nil
}
