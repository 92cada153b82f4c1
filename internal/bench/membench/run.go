//go:build cgo && linux

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

func (b *bench) run() {
	for _, work := range []struct {
		name string
		run  func()
	}{
		{"one", b.oneSize}, {"sycl", b.rawSYCL}, {"random", b.randomSizes}, {"batch", b.batches}, {"larson", b.larson},
		{"handover", b.handover}, {"million", b.millionLive}, {"rmm", b.rmm}, {"rounds", b.largeRounds},
		{"fragmentation", b.fragmentation}, {"refusal", b.refusals}, {"tenant", b.tenants}, {"traces", b.traces},
		{"off", b.off},
	} {
		if b.only.MatchString(work.name) {
			work.run()
		}
	}
}

// best runs our work and the peer's in turns, and returns the best time of each for one of n operations.
func (b *bench) best(n int, ours, theirs func() int64) (o, t float64) {
	o, t = math.Inf(1), math.Inf(1)
	for range b.rounds {
		o = min(o, float64(ours())/float64(n))
		if theirs != nil {
			t = min(t, float64(theirs())/float64(n))
		}
	}
	return o, t
}

func hostPool() *memmgr.Pool { return memmgr.NewPool(memmgr.Host(), memmgr.WithDecay(0)) }

func closePool(p *memmgr.Pool) {
	if err := p.Close(); err != nil {
		panic(err)
	}
}

// compare measures one work on a pool of ours and a disjoint pool of UMF.
func (b *bench) compare(r result, params disjointParams, n int, ours func(p *memmgr.Pool) int64, theirs func(peer) int64) {
	p := hostPool()
	defer closePool(p)
	disjoint(params, func(u peer) {
		r.Ours, r.Peer = b.best(n, func() int64 { return ours(p) }, func() int64 { return theirs(u) })
		r.Name, r.Unit, r.Ratio = "UMF", "ns", r.Ours/r.Peer
		b.add(r)
	})
}

func (b *bench) oneSize() {
	const n, size = 50000, 4 << 10
	b.compare(result{Work: "allocate and free 4 KiB", Bound: 0.6}, deviceParams(), n,
		func(p *memmgr.Pool) int64 { return oneSize(p, size, n) },
		func(u peer) int64 { return u.oneSize(size, n) })
}

func (b *bench) rawSYCL() {
	rt, err := syclobj.Open()
	if err != nil || !rt.HasSYCL() {
		fmt.Fprintf(os.Stderr, "membench: without raw SYCL: %v\n", rt.SYCLError())
		return
	}
	defer func() { _ = rt.Close() }()
	upstream := memmgr.USM(rt.DefaultQueue(), syclobj.USMDevice)
	p := memmgr.NewPool(upstream, memmgr.WithDecay(0))
	const n, raw, size = 50000, 500, 4 << 10
	ours, _ := b.best(n, func() int64 { return oneSize(p, size, n) }, nil)
	theirs, _ := b.best(raw, func() int64 { return rawSYCL(upstream.Place(), size, raw) }, nil)
	closePool(p)
	exitOn(memmgr.Close(upstream))
	b.add(result{
		Work: "device USM, 4 KiB, against raw USM", Ours: ours, Peer: theirs, Name: "C library", Unit: "ns",
		Ratio: ours / theirs, Bound: 1.0 / 30,
	})
}

// draws makes n random places and sizes.
func draws(n, slots int, size func(*rand.Rand) uint32) (where, sizes []uint32) {
	rng := rand.New(rand.NewPCG(42, 42))
	for range n {
		where = append(where, uint32(rng.IntN(slots)))
		sizes = append(sizes, size(rng))
	}
	return where, sizes
}

// replacing measures the random replacement of blocks on a pool, with the given number of blocks in use.
func (b *bench) replacing(upstream memmgr.Resource, params disjointParams, nslots int, size func(*rand.Rand) uint32) (ours, umf, malloc float64) {
	const n = 50000
	where, sizes := draws(n, nslots, size)
	all := seq(nslots)
	live := make([]memmgr.Buffer, nslots)
	p := memmgr.NewPool(upstream, memmgr.WithDecay(0))
	for at := 0; at < nslots; at += n {
		replace(p, live, all[at:min(at+n, nslots)], sizes)
	}
	theirs := newSlots(nslots)
	defer theirs.free()
	ofPeer := func(u peer) (ns float64) {
		for at := 0; at < nslots; at += n {
			u.replace(theirs, all[at:min(at+n, nslots)], sizes)
		}
		own, peers := func() int64 { return replace(p, live, where, sizes) }, func() int64 { return u.replace(theirs, where, sizes) }
		if nslots > n { // not in turns, which would evict the blocks of the other from the processor's caches
			ours, _ = b.best(n, own, nil)
			ns, _ = b.best(n, peers, nil)
		} else {
			ours, ns = b.best(n, own, peers)
		}
		u.clear(theirs)
		return ns
	}
	malloc = ofPeer(peer{})
	disjoint(params, func(u peer) { umf = ofPeer(u) })
	clearBuffers(live)
	closePool(p)
	return ours, umf, malloc
}

func (b *bench) randomSizes() {
	ours, umf, malloc := b.replacing(memmgr.Host(), deviceParams(), 1000, func(rng *rand.Rand) uint32 { return 256 << rng.IntN(13) })
	b.add(result{
		Work: "random powers of two, 256 B to 1 MiB, 1000 slots", Ours: ours, Peer: umf, Name: "UMF", Unit: "ns",
		Ratio: ours / umf, Bound: 1, Note: fmt.Sprintf("malloc %.4g ns", malloc),
	})
}

// millionLive compares the cost of an operation with a million blocks in use to the cost with a thousand.
func (b *bench) millionLive() {
	params := deviceParams()
	params.address_only = 1
	size := func(rng *rand.Rand) uint32 { return 256 << rng.IntN(4) }
	large, umfLarge, mallocLarge := b.replacing(newAddresses(), params, 1000000, size)
	small, umfSmall, mallocSmall := b.replacing(newAddresses(), params, 1000, size)
	b.add(result{
		Work: "replace a random one of 10^6, to of 10^3", Ours: large, Peer: small, Name: "10^3", Unit: "ns", Ratio: large / small, Bound: 2,
		Note: fmt.Sprintf("UMF %.3g, malloc %.3g", umfLarge/umfSmall, mallocLarge/mallocSmall),
	})
}

func (b *bench) larson() {
	const nslots, n, threads = 1000, 50000, 2
	where, sizes := draws(n, nslots, func(rng *rand.Rand) uint32 { return 8 + uint32(rng.IntN(1017)) })
	live := make([]memmgr.Buffer, nslots*threads)
	theirs := newSlots(nslots * threads)
	defer theirs.free()
	turn := 0
	b.compare(result{Work: "larson: 1000 live each, 8 to 1024 B, 2 threads", Bound: 1}, deviceParams(), n*threads,
		func(p *memmgr.Pool) int64 { // in each turn, every goroutine has the slots that another one filled before
			turn++
			ns := together(threads, func(g int) {
				from := (g + turn) % threads * nslots
				replace(p, live[from:from+nslots], where, sizes)
			})
			if turn == b.rounds {
				clearBuffers(live)
			}
			return ns
		},
		func(u peer) int64 {
			ns := u.replaceThreads(theirs, nslots, where, sizes, threads)
			if turn == b.rounds {
				u.clear(theirs)
			}
			return ns
		})
}

func (b *bench) batches() {
	const count, rounds = 500, 4
	b.compare(result{Work: "500 blocks of 1 MiB live, batch", Bound: 1.0 / 20}, deviceParams(), count*rounds,
		func(p *memmgr.Pool) int64 { return batch(p, 1<<20, count, rounds) },
		func(u peer) int64 { return u.batch(1<<20, count, rounds) })
}

// largeRounds allocates and frees the same large buffers in each round, like the steps of a model. The peer
// caches the same amount. The bound is in nanoseconds: the first touch of such a buffer takes far longer.
func (b *bench) largeRounds() {
	const size, count, rounds = 20 << 20, 16, 200
	params := deviceParams()
	params.max_poolable_size, params.capacity = 32<<20, count
	before := len(b.results)
	b.compare(result{Work: "rounds of 16 buffers of 20 MiB"}, params, count*rounds,
		func(p *memmgr.Pool) int64 { return batch(p, size, count, rounds) },
		func(u peer) int64 { return u.batch(size, count, rounds) })
	for i := before; i < len(b.results); i++ {
		b.results[i].Ratio, b.results[i].Bound = b.results[i].Ours, 200
	}
}

func (b *bench) handover() {
	const batches, size = 1000, 4 << 10
	b.compare(result{Work: "4 KiB freed on the other thread", Bound: 1}, deviceParams(), batches*100,
		func(p *memmgr.Pool) int64 { return handover(p, size, batches) },
		func(u peer) int64 { return u.handover(size, batches) })
}

// rmm runs RMM's benchmark on upstreams of addresses alone.
func (b *bench) rmm() {
	params := deviceParams()
	params.address_only = 1
	for _, maxMiB := range []int64{1, 64} {
		for _, n := range []int{1000, 100000} {
			t := randomAllocations(n, maxMiB<<20, uint64(n)+uint64(maxMiB))
			theirs := newSlots(len(t.slots))
			ours, umf, reserved, umfReserved := math.Inf(1), math.Inf(1), 0.0, 0.0
			for range max(9, min(20, 200000/n)) {
				p := memmgr.NewPool(newAddresses(), memmgr.WithDecay(0))
				live := make([]memmgr.Buffer, len(t.slots))
				ours = min(ours, float64(runScript(p, live, t.which, t.sizes))/float64(len(t.which)))
				reserved = float64(p.Stats().ReservedBytes.Peak)
				clearBuffers(live)
				closePool(p)
				disjoint(params, func(u peer) {
					umf = min(umf, float64(u.script(theirs, t.which, t.sizes))/float64(len(t.which)))
					umfReserved = float64(u.peak())
					u.clear(theirs)
				})
			}
			theirs.free()
			bound := 1.0
			if n == 1000 {
				bound = 1.5 // most steps are the first use of their memory
			}
			name := fmt.Sprintf("random_allocations N=%d, to %d MiB: ", n, maxMiB)
			b.add(result{Work: name + "a step", Ours: ours, Peer: umf, Name: "UMF", Unit: "ns", Ratio: ours / umf, Bound: bound})
			b.add(result{
				Work: name + "peak reserved to requested", Ours: reserved / (1 << 20), Peer: umfReserved / (1 << 20), Name: "UMF", Unit: "MiB",
				Ratio: reserved / float64(t.peak), Bound: 1.15, Note: fmt.Sprintf("UMF %.3g", umfReserved/float64(t.peak)),
			})
		}
	}
}

// refusals measures the cost of a request beyond the limit of a pool, with many blocks in use.
func (b *bench) refusals() {
	const n, size, refused = 200, 1 << 10, 1 << 20
	for _, live := range []int{1000, 500000} {
		p := memmgr.NewPool(newAddresses(), memmgr.WithDecay(0), memmgr.WithLimit(uint64(live)*size+refused/4))
		buffers := make([]memmgr.Buffer, live)
		replace(p, buffers, seq(live), slices.Repeat([]uint32{size}, live))
		ns, _ := b.best(n, func() int64 {
			start := time.Now()
			for range n {
				if _, err := memmgr.New(p, memmgr.Request{Size: refused}); err == nil {
					panic("membench: a request beyond the limit was served")
				}
			}
			return time.Since(start).Nanoseconds()
		}, nil)
		b.add(result{Work: fmt.Sprintf("refusal at a limit, %d live", live), Ours: ns / 1000, Unit: "us", Ratio: ns / 1000, Bound: 20})
		clearBuffers(buffers)
		closePool(p)
	}
}

// tenants compares an operation on a tenant to one on the bare pool.
func (b *bench) tenants() {
	const n, size = 50000, 4 << 10
	p := hostPool()
	tenant, err := p.NewTenant("measured", memmgr.TenantOptions{Soft: 32 << 20, Hard: 64 << 20, Weight: 2})
	exitOn(err)
	ours, bare := b.best(n, func() int64 { return oneSize(tenant, size, n) }, func() int64 { return oneSize(p, size, n) })
	b.add(result{Work: "a tenant's 4 KiB to the bare pool's", Ours: ours, Peer: bare, Name: "pool", Unit: "ns", Ratio: ours / bare, Bound: 1.5})
	exitOn(tenant.Close())
	closePool(p)
}

// seq returns the numbers below n.
func seq(n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}
