package backend

import (
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// memory is where tensors lie: shared USM of the default device, which host and device both
// reach, else memory of the host.
type memory struct {
	queue *syclobj.Queue
	kind  syclobj.USMKind
	limit uint64
	pool  *memmgr.Pool
}

func openMemory(rt *syclobj.Runtime, limit uint64) *memory {
	m := &memory{queue: rt.DefaultQueue(), kind: syclobj.USMShared, limit: limit}
	from := memmgr.Host()
	if m.queue.IsHost() {
		m.kind = syclobj.USMUnknown
	} else {
		from = memmgr.USM(m.queue, m.kind)
	}
	m.pool = memmgr.NewPool(memmgr.NewLimit(from, limit), memmgr.WithName("tensors"))
	memmgr.SetDefaultLimit(limit)
	return m
}

// forPython is where arrays that models make lie: those of the kind of tensors in the same
// memory, under the same limit.
func (m *memory) forPython(q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	if m.has(q, kind) {
		return m.pool, nil
	}
	return memmgr.Default(q, kind)
}

func (m *memory) has(q *syclobj.Queue, kind syclobj.USMKind) bool {
	if q == nil || q.IsHost() {
		return m.queue.IsHost()
	}
	return kind == m.kind && !m.queue.IsHost() && q.Context().Equal(m.queue.Context()) && q.Device().Equal(m.queue.Device())
}
