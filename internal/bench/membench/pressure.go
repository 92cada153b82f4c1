//go:build cgo && linux

package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
)

// full returns a pool at its limit. The given number of blocks and one block of spare bytes are in use. A request
// of refused bytes always fails.
const (
	liveSize    = 1 << 10
	spareSize   = 4 << 10
	refusedSize = 1 << 20
)

func full(live int) (p *memmgr.Pool, buffers []memmgr.Buffer) {
	p = memmgr.NewPool(newAddresses(), memmgr.WithDecay(0), memmgr.WithLimit(uint64(live)*liveSize+refusedSize/4))
	buffers = make([]memmgr.Buffer, live)
	for i := range buffers {
		b, err := memmgr.New(p, memmgr.Request{Size: liveSize})
		if err != nil {
			panic(err)
		}
		buffers[i] = b
	}
	return p, buffers
}

// refuse sends rounds requests that do not fit, and returns the time.
func refuse(r memmgr.Resource, rounds int) int64 {
	start := time.Now()
	for range rounds {
		if b, err := memmgr.New(r, memmgr.Request{Size: refusedSize}); err == nil {
			b.Release()
			panic(errors.New("membench: a request beyond the limit was served"))
		}
	}
	return time.Since(start).Nanoseconds()
}

// refusals measures the cost of a request beyond a limit, for itself and for concurrent requests.
func (b *bench) refusals() {
	first := 0.0
	for _, live := range []int{1000, 10000, 100000, 500000} {
		p, buffers := full(live)
		const n = 200
		ns, _ := b.best(n, func() int64 { return refuse(p, n) }, nil)
		b.add(result{Work: fmt.Sprintf("refusal at a limit, %d live", live), Ours: ns / 1000, Unit: "us", Ratio: ns / 1000, Bound: 20})
		if first == 0 {
			first = ns
		} else if live == 500000 {
			b.add(result{Work: "  to that with 1000 live", Ours: ns / 1000, Peer: first / 1000, Name: "1000", Unit: "us", Ratio: ns / first, Bound: 2})
		}
		if live == 100000 {
			b.besideRefusals("the pool", p, p)
		}
		clearBuffers(buffers)
		closePool(p)
	}
	p := memmgr.NewPool(newAddresses(), memmgr.WithDecay(0))
	tenant, err := p.NewTenant("refused", memmgr.TenantOptions{Hard: refusedSize / 2})
	exitOn(err)
	b.besideRefusals("a tenant", p, tenant)
	exitOn(tenant.Close())
	closePool(p)
}

// besideRefusals compares the throughput of a goroutine that allocates while another goroutine's requests fail with
// its throughput while the other goroutine only spins.
func (b *bench) besideRefusals(refuser string, p *memmgr.Pool, refused memmgr.Resource) {
	const n = 500000
	times := int64(0)
	beside := func(other func()) float64 {
		var stop atomic.Bool
		var ready, done sync.WaitGroup
		ready.Add(1)
		done.Go(func() {
			other()
			ready.Done()
			for times = 0; !stop.Load(); times++ {
				other()
			}
		})
		ready.Wait()
		ns := oneSize(p, spareSize, n)
		stop.Store(true)
		done.Wait()
		return float64(ns) / n
	}
	spun := 0
	spin := func() {
		for i := range 1000 {
			spun += i
		}
	}
	var ratios []float64
	var with, without float64
	refusals := int64(0)
	for range min(b.rounds, 15) { // the median counts: in the best round the other goroutine may not have run
		with = beside(func() { refuse(refused, 1) })
		refusals += times
		without = beside(spin)
		ratios = append(ratios, without/with)
	}
	b.add(result{
		Work: fmt.Sprintf("allocate and free beside refusals by %s: throughput to beside a spinning goroutine", refuser),
		Ours: with, Peer: without, Name: "spinning", Unit: "ns", Ratio: median(ratios), Bound: 0.6, Least: true,
		Note: fmt.Sprintf("%d refusals meanwhile", refusals),
	})
	runtime.KeepAlive(&spun)
}

// tenants compares an operation on a tenant to one on the bare pool.
func (b *bench) tenants() {
	const n = 50000
	for _, size := range []uintptr{64, 4 << 10, 64 << 10, 1 << 20} {
		p := hostPool()
		tenant, err := p.NewTenant("measured", memmgr.TenantOptions{Soft: 32 << 20, Hard: 64 << 20, Weight: 2})
		exitOn(err)
		ours, bare := b.best(n, func() int64 { return oneSizeOf(tenant, size, n) }, func() int64 { return oneSizeOf(p, size, n) })
		b.add(result{
			Work: fmt.Sprintf("a tenant's %s to the bare pool's", sizeText(size)),
			Ours: ours, Peer: bare, Name: "pool", Unit: "ns", Ratio: ours / bare, Bound: 1.5,
		})
		exitOn(tenant.Close())
		closePool(p)
	}
}

// oneSizeOf is oneSize for any resource.
func oneSizeOf(r memmgr.Resource, size uintptr, rounds int) int64 {
	start := time.Now()
	for range rounds {
		b, err := memmgr.New(r, memmgr.Request{Size: size})
		if err != nil {
			panic(err)
		}
		b.Release()
	}
	return time.Since(start).Nanoseconds()
}

// service is the mixed load: see serviceLoad.
func (b *bench) service() {
	const slices = 8
	each := b.serviceTime / 2 / slices
	pressed := newServiceLoad(256<<20, 80<<20)
	seen := pressed.run(b.serviceTime / 2)
	pressed.close()
	b.add(result{
		Work: "mixed service, limits hit: longest time blocked while room was there",
		Ours: float64(seen.blocked) / 1e6, Unit: "ms", Ratio: float64(seen.blocked) / 1e6, Bound: 50,
		Note: fmt.Sprintf("longest bracket of a no-op %.3g ms, blocked without such brackets %.3g ms (for %d KiB), %.3g ms without a waiter in the pool; %d requests, %d waits, %d gave up",
			float64(seen.noop)/1e6, float64(seen.awake)/1e6, seen.size>>10, float64(seen.ready)/1e6, pressed.served.Load(), pressed.waits, pressed.failed.Load()),
	})
	b.add(result{
		Work: "  beyond the time until a place for it could have been free, without brackets of a no-op",
		Ours: float64(seen.beyond) / 1e6, Unit: "ms", Ratio: float64(seen.beyond) / 1e6, Bound: 50,
		Account: append(seen.report("blocked longest", seen.account), seen.report("blocked longest beyond that time", seen.worst)...),
	})
	// In turns, so that other load on the machine affects both.
	var ratios []float64
	var ours, bare float64
	for range slices {
		with, without := newServiceLoad(64<<30, 16<<30), newServiceLoad(0, 0)
		with.run(each / 2)
		without.run(each / 2)
		ours, bare = float64(with.served.Load())/(each/2).Seconds(), float64(without.served.Load())/(each/2).Seconds()
		ratios = append(ratios, ours/bare)
		with.close()
		without.close()
	}
	b.add(result{
		Work: "mixed service, limits above the peaks: throughput to that without limits",
		Ours: ours, Peer: bare, Name: "no limits", Unit: "requests/s", Ratio: median(ratios), Bound: 0.7, Least: true,
	})
}

func median(values []float64) float64 {
	slices.Sort(values)
	if len(values) == 0 {
		return math.NaN()
	}
	return values[len(values)/2]
}
