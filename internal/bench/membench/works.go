//go:build cgo && linux

package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
)

// This file has our part of each work.

// must returns the buffer of an allocation, which cannot fail.
func must(b memmgr.Buffer, err error) memmgr.Buffer {
	if err != nil {
		panic(err)
	}
	return b
}

func oneSize(p memmgr.Resource, size uintptr, rounds int) int64 {
	start := time.Now()
	for range rounds {
		b := must(memmgr.New(p, memmgr.Request{Size: size}))
		b.Release()
	}
	return time.Since(start).Nanoseconds()
}

// together runs the work on the given number of goroutines and returns the time of the slowest. Like the peer's
// threads, the goroutines start when all are ready.
func together(n int, work func(g int)) int64 {
	var there atomic.Int32
	var done sync.WaitGroup
	ns := make([]int64, n)
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
			ns[g] = time.Since(start).Nanoseconds()
		})
	}
	done.Wait()
	return slices.Max(ns)
}

func replace(p *memmgr.Pool, live []memmgr.Buffer, where, sizes []uint32) int64 {
	start := time.Now()
	for i, at := range where {
		slot := &live[at]
		if *slot != (memmgr.Buffer{}) {
			slot.Release()
		}
		*slot = must(memmgr.New(p, memmgr.Request{Size: uintptr(sizes[i])}))
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
			all[i] = must(memmgr.New(p, memmgr.Request{Size: size}))
		}
		for i := range all {
			all[i].Release()
		}
	}
	return time.Since(start).Nanoseconds()
}

func runScript(p *memmgr.Pool, live []memmgr.Buffer, which []uint32, sizes []uint64) int64 {
	start := time.Now()
	for i, at := range which {
		if sizes[i] == 0 {
			live[at].Release()
			live[at] = memmgr.Buffer{}
			continue
		}
		live[at] = must(memmgr.New(p, memmgr.Request{Size: uintptr(sizes[i])}))
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
				blocks[b%ring][i] = must(memmgr.New(p, memmgr.Request{Size: size}))
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
