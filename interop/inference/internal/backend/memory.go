package backend

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

// memory is where tensors lie: shared USM of the default device, which host and device both
// reach, else memory of the host; for workers such that other processes can map.
type memory struct {
	queue *syclobj.Queue
	kind  syclobj.USMKind
	// pool is for tensors, and calls for what calls that run allocate: a quarter of the limit,
	// which requests that wait for their turn cannot take from those.
	pool, calls           *memmgr.Pool
	poolLimit, callsLimit uint64
	// segments is below the pool where workers map it; nil else.
	segments *segment.Resource
}

// openMemory makes the pools for limit bytes, minus regions.
func openMemory(rt *syclobj.Runtime, limit, regions uint64, workers bool, log *slog.Logger) (*memory, error) {
	m := &memory{queue: rt.DefaultQueue(), kind: syclobj.USMShared}
	if m.queue.IsHost() {
		m.kind = syclobj.USMUnknown
	}
	from, err := m.source(rt, workers, log)
	if err != nil {
		return nil, err
	}
	m.callsLimit = max(limit/4, 1)
	m.poolLimit = max(limit-min(m.callsLimit+regions, limit), 1)
	m.pool = memmgr.NewPool(memmgr.NewLimit(from, m.poolLimit), memmgr.WithName("tensors"))
	m.calls = memmgr.NewPool(memmgr.NewLimit(from, m.callsLimit), memmgr.WithName("calls"))
	memmgr.SetDefaultLimit(max(limit/2, 1))
	return m, nil
}

// source returns the upstream of the pools.
func (m *memory) source(rt *syclobj.Runtime, workers bool, log *slog.Logger) (memmgr.Resource, error) {
	switch {
	case !workers && m.queue.IsHost():
		return memmgr.Host(), nil
	case !workers:
		return memmgr.USM(m.queue, m.kind), nil
	}
	if !m.queue.IsHost() {
		shared, err := segment.NewUSM(m.queue, m.kind, segment.PeersWrite)
		if err == nil {
			m.segments = shared
			return shared, nil
		}
		log.Warn("USM of this device cannot be shared with workers: tensors lie in memory of the host", "reason", err)
		m.queue, m.kind = rt.HostQueue(), syclobj.USMUnknown
	}
	shared, err := segment.NewHost(segment.PeersWrite)
	if err != nil {
		return nil, fmt.Errorf("backend: memory for workers: %w", err)
	}
	m.segments = shared
	return shared, nil
}

func (m *memory) close() error {
	err := errors.Join(m.pool.Close(), m.calls.Close())
	if m.segments != nil {
		err = errors.Join(err, m.segments.Close())
	}
	return err
}

// choose returns account, of the pool for calls, for memory of its kind, and the default pools for
// other memory.
func (m *memory) choose(account memmgr.Resource, q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	if m.has(q, kind) {
		return account, nil
	}
	p, err := memmgr.Default(q, kind)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (m *memory) has(q *syclobj.Queue, kind syclobj.USMKind) bool {
	if q == nil || q.IsHost() {
		return m.queue.IsHost()
	}
	return kind == m.kind && !m.queue.IsHost() && q.Context().Equal(m.queue.Context()) && q.Device().Equal(m.queue.Device())
}
