//go:build cgo && linux

package main

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
)

// This file has our part of each work.

func oneSize(p memmgr.Resource, size uintptr, rounds int) int64 {
	start := time.Now()
	for range rounds {
		b, err := memmgr.New(p, memmgr.Request{Size: size})
		if err != nil {
			panic(err)
		}
		b.Release()
	}
	return time.Since(start).Nanoseconds()
}

// together runs the work on the given number of goroutines and returns the time of the slowest. Like the peer's
// threads, the goroutines start when all are ready.
func together(n int, work func(g int)) int64 {
	var there atomic.Int32
	var longest atomic.Int64
	var done sync.WaitGroup
	for g := range n {
		done.Go(func() {
			there.Add(1)
			for there.Load() < int32(n) {
				if n > runtime.GOMAXPROCS(0) {
					runtime.Gosched()
				}
			}
			start := time.Now()
			work(g)
			ns := time.Since(start).Nanoseconds()
			for old := longest.Load(); ns > old && !longest.CompareAndSwap(old, ns); old = longest.Load() {
			}
		})
	}
	done.Wait()
	return longest.Load()
}

func replace(p *memmgr.Pool, live []memmgr.Buffer, where, sizes []uint32) int64 {
	start := time.Now()
	for i, at := range where {
		slot := &live[at]
		if *slot != (memmgr.Buffer{}) {
			slot.Release()
		}
		b, err := memmgr.New(p, memmgr.Request{Size: uintptr(sizes[i])})
		if err != nil {
			panic(err)
		}
		*slot = b
	}
	return time.Since(start).Nanoseconds()
}

func clearBuffers(live []memmgr.Buffer) {
	for i := range live {
		if live[i].Valid() {
			live[i].Release()
		}
		live[i] = memmgr.Buffer{}
	}
}

func batch(p *memmgr.Pool, size uintptr, count, rounds int) int64 {
	all := make([]memmgr.Buffer, count)
	start := time.Now()
	for range rounds {
		for i := range all {
			b, err := memmgr.New(p, memmgr.Request{Size: size})
			if err != nil {
				panic(err)
			}
			all[i] = b
		}
		for i := range all {
			all[i].Release()
		}
	}
	return time.Since(start).Nanoseconds()
}

// script is random_allocations of RMM: 2n steps, 73 % of which allocate while there are blocks to free, with uniform
// sizes of 1 byte to max MiB. It returns the steps as (slot, size or 0) and the peak of the requested bytes.
func script(n int, maxMiB uint64, seed uint64) (which []uint32, sizes []uint64, nslots int, peak uint64) {
	rng := rand.New(rand.NewPCG(seed, 73))
	type block struct {
		slot uint32
		size uint64
	}
	var live []block
	var spare []uint32
	now := uint64(0)
	for range 2 * n {
		if len(live) == 0 || rng.Float64() < 0.73 {
			slot := uint32(nslots)
			if len(spare) > 0 {
				slot = spare[len(spare)-1]
				spare = spare[:len(spare)-1]
			} else {
				nslots++
			}
			size := 1 + rng.Uint64N(maxMiB<<20)
			live = append(live, block{slot, size})
			which, sizes = append(which, slot), append(sizes, size)
			now += size
			peak = max(peak, now)
			continue
		}
		k := rng.IntN(len(live))
		b := live[k]
		live[k] = live[len(live)-1]
		live = live[:len(live)-1]
		spare = append(spare, b.slot)
		which, sizes = append(which, b.slot), append(sizes, 0)
		now -= b.size
	}
	return which, sizes, nslots, peak
}

func runScript(p *memmgr.Pool, live []memmgr.Buffer, which []uint32, sizes []uint64) int64 {
	start := time.Now()
	for i, at := range which {
		if sizes[i] == 0 {
			live[at].Release()
			live[at] = memmgr.Buffer{}
			continue
		}
		b, err := memmgr.New(p, memmgr.Request{Size: uintptr(sizes[i])})
		if err != nil {
			panic(err)
		}
		live[at] = b
	}
	return time.Since(start).Nanoseconds()
}

// handover allocates in one goroutine and frees in another one, in batches of 100.
func handover(p *memmgr.Pool, size uintptr, batches int) int64 {
	const batchSize, ring = 100, 64
	var blocks [ring][batchSize]memmgr.Buffer
	var made, taken atomic.Int64
	full, free := make(chan struct{}, 1), make(chan struct{}, 1)
	poke := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	start := time.Now()
	go func() {
		for b := range int64(batches) {
			for b-taken.Load() >= ring {
				<-free
			}
			for i := range batchSize {
				m, err := memmgr.New(p, memmgr.Request{Size: size})
				if err != nil {
					panic(err)
				}
				blocks[b%ring][i] = m
			}
			made.Store(b + 1)
			poke(full)
		}
	}()
	for b := range int64(batches) {
		for made.Load() <= b {
			<-full
		}
		for i := range batchSize {
			blocks[b%ring][i].Release()
		}
		taken.Store(b + 1)
		poke(free)
	}
	return time.Since(start).Nanoseconds()
}
