//go:build cgo && linux

package main

import (
	"github.com/usmbridge/usmbridge/memmgr"
)

// largeRounds allocates and frees the same large buffers in each round, like the steps of a model. Each round must
// reuse the memory of the round before. The peer caches the same amount.
func (b *bench) largeRounds() {
	const size, count, rounds = 20 << 20, 16, 200
	p := hostPool()
	defer closePool(p)
	ours := func() int64 { return batch(p, size, count, rounds) }
	r := result{Work: "rounds of 16 buffers of 20 MiB", Unit: "ns"}
	if b.lib == nil {
		r.Ours, _ = b.best(count*rounds, ours, nil)
		b.add(r)
	} else {
		params := deviceParams()
		params.MaxPoolableSize, params.Capacity = 32<<20, count
		b.disjoint(params, func(u peer) {
			r.Ours, r.Peer = b.best(count*rounds, ours, func() int64 { return u.batch(size, count, rounds) })
			r.Name, r.Ratio, r.Bound = "UMF to 32 MiB", r.Ours/r.Peer, 1
			b.add(r)
		})
	}
	asked := float64(p.Stats().NumDeviceAlloc)
	b.add(result{Work: "  upstream allocations in all", Ours: asked, Ratio: asked, Bound: count})
	trimmed := func() int64 {
		q := memmgr.NewPool(memmgr.Host(), memmgr.WithDecay(0), memmgr.WithRetention(0, 0))
		defer closePool(q)
		return batch(q, size, count, 2)
	}
	without, _ := b.best(count*2, trimmed, nil)
	b.add(result{Work: "  with nothing retained", Ours: without, Unit: "ns"})
}
