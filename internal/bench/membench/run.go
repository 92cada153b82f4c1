//go:build cgo && linux

package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

func (b *bench) run() {
	for _, work := range []struct {
		name string
		run  func()
	}{
		{"one", b.oneSize}, {"two", b.twoGoroutines}, {"sycl", b.rawSYCL}, {"random", b.randomSizes},
		{"batch", b.batches}, {"umf", b.umfBenchmark}, {"larson", b.larson}, {"handover", b.handover},
		{"million", b.millionLive}, {"heap", b.allocations}, {"rmm", b.randomAllocations},
		{"fragmentation", b.fragmentation},
		{"pending", b.pending}, {"refusal", b.refusals}, {"tenant", b.tenants}, {"service", b.service},
		{"rounds", b.largeRounds}, {"off", b.off},
	} {
		if b.only == nil || b.only.MatchString(work.name) {
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

// disjoint calls f with a peer, if there is one.
func (b *bench) disjoint(params disjointParams, f func(peer)) {
	if b.lib == nil {
		return
	}
	p, err := b.lib.newDisjoint(params)
	if err != nil {
		fmt.Fprintln(os.Stderr, "membench:", err)
		return
	}
	f(peer{p})
	if err := p.close(); err != nil {
		fmt.Fprintln(os.Stderr, "membench:", err)
	}
}

// compare measures one work on a pool of ours and a disjoint pool of UMF.
func (b *bench) compare(r result, n int, ours func(p *memmgr.Pool) int64, theirs func(peer) int64) {
	p := hostPool()
	defer closePool(p)
	r.Unit = "ns"
	if b.lib == nil {
		r.Ours, _ = b.best(n, func() int64 { return ours(p) }, nil)
		r.Bound = 0
		b.add(r)
		return
	}
	b.disjoint(deviceParams(), func(u peer) {
		r.Ours, r.Peer = b.best(n, func() int64 { return ours(p) }, func() int64 { return theirs(u) })
		r.Name, r.Ratio = "UMF", r.Ours/r.Peer
		b.add(r)
	})
}

func (b *bench) oneSize() {
	const n = 50000
	for _, size := range []uintptr{64, 4 << 10, 64 << 10, 1 << 20} {
		b.compare(result{Work: fmt.Sprintf("allocate and free %s", sizeText(size)), Bound: 0.6}, n,
			func(p *memmgr.Pool) int64 { return oneSize(p, size, n) },
			func(u peer) int64 { return u.oneSize(size, n) })
	}
}

func (b *bench) twoGoroutines() {
	const n = 50000
	for _, size := range []uintptr{64, 4 << 10, 64 << 10, 1 << 20} {
		p := hostPool()
		one, two := b.best(n, func() int64 { return oneSize(p, size, n) },
			func() int64 { return oneSizeParallel(p, size, n, 2) })
		closePool(p)
		b.add(result{
			Work: fmt.Sprintf("2 goroutines, %s: throughput to that of one", sizeText(size)),
			Ours: two / 2, Unit: "ns", Ratio: 2 * one / two, Bound: 1.7, Least: true,
		})
		b.disjoint(deviceParams(), func(u peer) {
			one, two := b.best(n, func() int64 { return u.oneSize(size, n) },
				func() int64 { return u.oneSizeThreads(size, n, 2) })
			b.add(result{Work: fmt.Sprintf("  UMF, 2 threads, %s", sizeText(size)), Ours: two / 2, Unit: "ns", Ratio: 2 * one / two})
		})
	}
}

func (b *bench) rawSYCL() {
	rt, err := syclobj.Open()
	if err != nil || !rt.HasSYCL() {
		fmt.Fprintf(os.Stderr, "membench: without raw SYCL: %v\n", rt.SYCLError())
		return
	}
	defer func() { _ = rt.Close() }()
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared} {
		upstream := memmgr.USM(rt.DefaultQueue(), kind).(interface {
			memmgr.Resource
			io.Closer
		})
		for _, size := range []uintptr{64, 4 << 10, 64 << 10, 1 << 20} {
			p := memmgr.NewPool(upstream, memmgr.WithDecay(0))
			const n, raw = 50000, 500
			ours, _ := b.best(n, func() int64 { return oneSize(p, size, n) }, nil)
			theirs, _ := b.best(raw, func() int64 { return rawSYCL(upstream.Place(), size, raw) }, nil)
			closePool(p)
			b.add(result{
				Work: fmt.Sprintf("%v USM %s against raw SYCL", kind, sizeText(size)), Ours: ours, Peer: theirs,
				Name: "C library", Unit: "ns", Ratio: ours / theirs, Bound: 1.0 / 30,
			})
		}
		_ = upstream.Close()
	}
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

// replacing compares random replacement of blocks, with the given number of blocks in use.
func (b *bench) replacing(r result, nslots, n int, size func(*rand.Rand) uint32) {
	where, sizes := draws(n, nslots, size)
	live := make([]memmgr.Buffer, nslots)
	theirs := newSlots(nslots)
	defer theirs.free()
	p := hostPool()
	defer closePool(p)
	replace(p, live, where, sizes)
	r.Unit = "ns"
	b.disjoint(deviceParams(), func(u peer) {
		u.replace(theirs, where, sizes)
		r.Ours, r.Peer = b.best(n, func() int64 { return replace(p, live, where, sizes) },
			func() int64 { return u.replace(theirs, where, sizes) })
		r.Name, r.Ratio = "UMF", r.Ours/r.Peer
		b.add(r)
		u.clear(theirs)
	})
	m := peer{}
	m.replace(theirs, where, sizes)
	_, malloc := b.best(n, func() int64 { return 0 }, func() int64 { return m.replace(theirs, where, sizes) })
	b.add(result{Work: "  malloc", Ours: malloc, Unit: "ns"})
	m.clear(theirs)
	clearBuffers(live)
}

func (b *bench) randomSizes() {
	b.replacing(result{Work: "random powers of two, 256 B to 1 MiB, 1000 slots", Bound: 1}, 1000, 20000,
		func(rng *rand.Rand) uint32 { return 256 << rng.IntN(13) })
}

func (b *bench) umfBenchmark() {
	b.replacing(result{Work: "10000 live, 4096 B", Bound: 1}, 10000, 50000,
		func(*rand.Rand) uint32 { return 4096 })
	b.replacing(result{Work: "10000 live, 8 to 4096 B", Bound: 1}, 10000, 50000,
		func(rng *rand.Rand) uint32 { return 8 + uint32(rng.IntN(4089)) })
	b.parallelReplacing(result{Work: "10000 live each, 8 to 4096 B, 4 threads", Bound: 1}, 10000, 50000, 4)
}

func (b *bench) larson() {
	b.parallelReplacing(result{Work: "larson: 1000 live each, 8 to 1024 B, 2 threads", Bound: 1}, 1000, 50000, 2)
}

func (b *bench) parallelReplacing(r result, nslots, n, threads int) {
	top := 4089
	if nslots == 1000 {
		top = 1017
	}
	where, sizes := draws(n, nslots, func(rng *rand.Rand) uint32 { return 8 + uint32(rng.IntN(top)) })
	live := make([]memmgr.Buffer, nslots*threads)
	theirs := newSlots(nslots * threads)
	defer theirs.free()
	p := hostPool()
	defer closePool(p)
	// In each turn, every goroutine has the slots that another goroutine filled before.
	turn := 0
	ours := func() int64 {
		turn++
		return together(threads, func(g int) {
			from := (g + turn) % threads * nslots
			replace(p, live[from:from+nslots], where, sizes)
		})
	}
	ours()
	r.Unit = "ns"
	b.disjoint(deviceParams(), func(u peer) {
		u.replaceThreads(theirs, nslots, where, sizes, threads)
		r.Ours, r.Peer = b.best(n*threads, ours, func() int64 { return u.replaceThreads(theirs, nslots, where, sizes, threads) })
		r.Name, r.Ratio = "UMF", r.Ours/r.Peer
		b.add(r)
		u.clear(theirs)
	})
	clearBuffers(live)
}

func (b *bench) batches() {
	const count, rounds = 500, 4
	b.compare(result{Work: "500 blocks of 1 MiB live, batch", Bound: 1.0 / 20}, count*rounds,
		func(p *memmgr.Pool) int64 { return batch(p, 1<<20, count, rounds) },
		func(u peer) int64 { return u.batch(1<<20, count, rounds) })
}

func (b *bench) handover() {
	const batches = 1000
	for _, size := range []uintptr{64, 4 << 10} {
		b.compare(result{Work: fmt.Sprintf("xmalloc-test: freed on the other thread, %s", sizeText(size)), Bound: 1}, batches*100,
			func(p *memmgr.Pool) int64 { return handover(p, size, batches) },
			func(u peer) int64 { return u.handover(size, batches) })
	}
}

// millionLive compares the cost of an operation with a million blocks in use to the cost with a thousand, and
// measures the memory of the pool's metadata.
func (b *bench) millionLive() {
	cost := func(nslots int) (beside, ns, bytes float64) {
		const n = 50000
		where, sizes := draws(n, nslots, func(rng *rand.Rand) uint32 { return 256 << rng.IntN(4) })
		p := memmgr.NewPool(newAddresses(), memmgr.WithDecay(0))
		live := make([]memmgr.Buffer, nslots)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cells := owner.Bytes()
		for i := range live {
			buffer, err := memmgr.New(p, memmgr.Request{Size: uintptr(sizes[i%n])})
			if err != nil {
				panic(err)
			}
			live[i] = buffer
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		bytes = float64(after.HeapAlloc-before.HeapAlloc) + float64(owner.Bytes()-cells)
		beside, _ = b.best(n, func() int64 { return oneSize(p, 1024, n) }, nil)
		ns, _ = b.best(n, func() int64 { return replace(p, live, where, sizes) }, nil)
		clearBuffers(live)
		closePool(p)
		return beside, ns, bytes / float64(nslots)
	}
	// The larger number first: owner cells are never unmapped, so a second run would not count their memory.
	besideLarge, large, bytes := cost(1000000)
	besideSmall, small, _ := cost(1000)
	b.add(result{Work: "allocate and free beside 10^6 live blocks, to beside 10^3", Ours: besideLarge, Peer: besideSmall, Name: "10^3", Unit: "ns", Ratio: besideLarge / besideSmall, Bound: 2})
	b.add(result{
		Work: "replace a random one of 10^6, to of 10^3", Ours: large, Peer: small, Name: "10^3", Unit: "ns", Ratio: large / small, Bound: 2,
		Note: "two or three misses of every cache: the caller's slot and the block's owner",
	})
	b.peerMillion(nil)
	if b.lib != nil {
		params := deviceParams()
		params.AddressOnly = true
		b.disjoint(params, func(u peer) { b.peerMillion(u.pool) })
	}
	b.add(result{Work: "Go and C memory for a live block, of 10^6", Ours: bytes, Unit: "bytes", Ratio: bytes, Bound: 192})
}

// peerMillion is the same for malloc or UMF.
func (b *bench) peerMillion(pool *umfPool) {
	cost := func(nslots int) float64 {
		const n = 50000
		where, sizes := draws(n, nslots, func(rng *rand.Rand) uint32 { return 256 << rng.IntN(4) })
		all := make([]uint32, nslots)
		for i := range all {
			all[i] = uint32(i)
		}
		p, s := peer{pool}, newSlots(nslots)
		defer s.free()
		for at := 0; at < nslots; at += n {
			p.replace(s, all[at:min(at+n, nslots)], sizes)
		}
		ns, _ := b.best(n, func() int64 { return p.replace(s, where, sizes) }, nil)
		p.clear(s)
		return ns
	}
	name := "  malloc"
	if pool != nil {
		name = "  UMF"
	}
	large, small := cost(1000000), cost(1000)
	b.add(result{Work: name + ", the same", Ours: large, Peer: small, Name: "10^3", Unit: "ns", Ratio: large / small})
}

func (b *bench) allocations() {
	p := hostPool()
	defer closePool(p)
	n := testing.AllocsPerRun(10000, func() { oneSize(p, 4096, 1) })
	b.add(result{Work: "Go heap allocations for an allocation and free", Ours: n, Unit: "", Ratio: n, Bound: 1e-9})
}

// randomAllocations is RMM's benchmark on upstreams of addresses alone.
func (b *bench) randomAllocations() {
	for _, maxMiB := range []uint64{1, 4, 64} {
		first := 0.0
		for _, n := range []int{1000, 10000, 100000} {
			which, sizes, nslots, peak := script(n, maxMiB, uint64(n)+maxMiB)
			turns := max(9, min(20, 200000/n))
			step, reserved := math.Inf(1), 0.0
			for range turns {
				p := memmgr.NewPool(newAddresses(), memmgr.WithDecay(0))
				live := make([]memmgr.Buffer, nslots)
				step = min(step, float64(runScript(p, live, which, sizes))/float64(len(which)))
				reserved = float64(p.Stats().ReservedBytes.Peak)
				clearBuffers(live)
				closePool(p)
			}
			name := fmt.Sprintf("random_allocations N=%d, to %d MiB", n, maxMiB)
			b.add(result{Work: name + ": peak reserved to requested", Ours: reserved / (1 << 20), Unit: "MiB", Ratio: reserved / float64(peak), Bound: 1.15})
			r := result{Work: name + ": a step", Ours: step, Unit: "ns"}
			if n == 1000 {
				first = step
			} else if n == 100000 {
				r.Ratio, r.Bound, r.Note = step/first, 2, "to N=1000"
			}
			b.add(r)
			b.peersRandomAllocations(which, sizes, nslots, peak, turns)
		}
	}
}

func (b *bench) peersRandomAllocations(which []uint32, sizes []uint64, nslots int, peak uint64, turns int) {
	theirs := newSlots(nslots)
	defer theirs.free()
	params := deviceParams()
	params.AddressOnly = true
	step, reserved := math.Inf(1), int64(0)
	for range turns {
		b.disjoint(params, func(u peer) {
			step = min(step, float64(u.script(theirs, which, sizes, nil))/float64(len(which)))
			_, reserved, _ = u.pool.provided()
			u.clear(theirs)
		})
	}
	if reserved > 0 {
		b.add(result{Work: "  UMF: peak reserved to requested, and a step", Ours: step, Unit: "ns", Ratio: float64(reserved) / float64(peak)})
	}
	if peak > 16<<30 || b.quick {
		return // malloc cannot allocate that much address space
	}
	m := peer{}
	var held uint64
	step = float64(m.script(theirs, which, sizes, nil)) / float64(len(which))
	m.clear(theirs)
	m.script(theirs, which, sizes, &held)
	m.clear(theirs)
	b.add(result{Work: "  malloc: peak reserved to requested, and a step", Ours: step, Unit: "ns", Ratio: float64(held) / float64(peak)})
}

func sizeText(n uintptr) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
