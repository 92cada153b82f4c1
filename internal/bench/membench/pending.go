//go:build cgo && linux

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// gate is a device whose events stay incomplete until it opens, so that all of the memory is pending
// and becomes reusable at the same time.
type gate struct {
	memmgr.Resource
	memmgr.Synchronizer
	open atomic.Bool
}

func newGate(r memmgr.Resource) *gate {
	s, _ := memmgr.As[memmgr.Synchronizer](r)
	return &gate{Resource: r, Synchronizer: s}
}

func (g *gate) Upstream() memmgr.Resource { return g.Resource }

func (g *gate) EventDone(event uintptr) bool { return g.open.Load() && g.Synchronizer.EventDone(event) }

// batcher is the optional interface of a Synchronizer that a pool uses for many events.
type batcher interface {
	EventsDone(events []uintptr, done []bool)
	ReleaseEvents(events []uintptr)
}

// batchGate is a gate on a device that implements batcher.
type batchGate struct {
	*gate
	batcher
}

func (g batchGate) EventsDone(events []uintptr, done []bool) {
	if !g.open.Load() {
		clear(done)
		return
	}
	g.batcher.EventsDone(events, done)
}

// withBatches returns g, as a batcher if the device is one.
func (g *gate) withBatches() memmgr.Resource {
	if b, ok := g.Synchronizer.(batcher); ok {
		return batchGate{g, b}
	}
	return g
}

// numbered is a device whose events are numbers without cost: the remaining cost is the
// pool's own part. Queue 1 is in-order.
type numbered struct{ memmgr.Resource }

func (numbered) EventDone(uintptr) bool                { return true }
func (numbered) WaitEvent(uintptr) error               { return nil }
func (numbered) CopyEvent(event uintptr) uintptr       { return event }
func (numbered) ReleaseEvent(uintptr)                  {}
func (numbered) Barrier(uintptr) (uintptr, error)      { return 0, nil }
func (numbered) Join(_, a, b uintptr) (uintptr, error) { return max(a, b), nil }
func (numbered) SameOrder(a, b uintptr) bool           { return a == b && a == 1 }
func (numbered) QueueRef(*syclobj.Queue) uintptr       { return 0 }

// pending measures the time from the end of work to the reuse of its memory.
func (b *bench) pending() {
	for _, queue := range []uintptr{1, 2} {
		events := uintptr(0)
		b.pendingOn([]string{1: "in-order", 2: "out-of-order"}[queue], numbered{memmgr.Host()}, func(p *memmgr.Pool) func() {
			block, err := p.Allocate(memmgr.Request{Size: 4096})
			exitOn(err)
			events++
			block.Queue, block.Event = queue, events
			return func() { p.Free(block) }
		}, nil)
	}
	rt, err := syclobj.Open()
	if err != nil || !rt.HasSYCL() {
		fmt.Fprintf(os.Stderr, "membench: without real queues: %v\n", rt.SYCLError())
		return
	}
	defer func() { _ = rt.Close() }()
	for _, order := range []syclobj.QueueProperty{syclobj.InOrder, syclobj.OutOfOrder} {
		b.pendingOnQueue(rt, order)
	}
}

func (b *bench) pendingOnQueue(rt *syclobj.Runtime, order syclobj.QueueProperty) {
	q, err := rt.NewQueue(nil, rt.DefaultDevice(), order)
	exitOn(err)
	defer func() { _ = q.Close() }()
	upstream := memmgr.USM(q, syclobj.USMDevice)
	name := "out-of-order SYCL queue"
	if order == syclobj.InOrder {
		name = "in-order SYCL queue"
	}
	b.pendingOn(name, upstream, func(p *memmgr.Pool) func() {
		buffer, err := memmgr.New(p, memmgr.Request{Size: 4096})
		exitOn(err)
		ev, err := q.Memset(buffer.Data(), 1, 64)
		exitOn(err)
		exitOn(buffer.SetPending(q, ev))
		exitOn(ev.Close())
		return buffer.Release
	}, func(n int) float64 { return bareEvents(q, upstream, n) })
	exitOn(upstream.(io.Closer).Close())
}

// pendingOn uses each of n blocks in an operation of its own, and measures the time from the end of all operations.
// bare, which may be nil, measures the time in which the device's library queries and releases n events; the bound
// is for the time beyond that. One thread does all this, so the processor time is measured, which
// other load on the machine does not change.
func (b *bench) pendingOn(name string, upstream memmgr.Resource, use func(*memmgr.Pool) (free func()), bare func(n int) float64) {
	var times, wall [2]float64
	counts := [2]int{10000, 100000}
	alone := math.Inf(1)
	for i, n := range counts {
		times[i], wall[i] = math.Inf(1), math.Inf(1)
		for range min(3, b.rounds) {
			took, worked := completing(upstream, n, use)
			wall[i] = min(wall[i], took/float64(n))
			times[i] = min(times[i], worked/float64(n))
			if bare != nil {
				alone = min(alone, bare(n)/float64(n))
			}
		}
	}
	r := result{
		Work: "complete 100000 pending blocks, " + name, Ours: times[1], Unit: "ns", Ratio: times[1], Bound: 300,
		Note: fmt.Sprintf("of processor time; %.0f ns by the clock", wall[1]),
	}
	if bare != nil {
		r.Peer, r.Name, r.Ratio = alone, "C library alone", max(times[1]-alone, 1)
		r.Note += "; the bound is on the difference"
	}
	b.add(r)
	b.add(result{Work: "  to a block of 10000", Ours: times[1], Peer: times[0], Name: "10000", Unit: "ns", Ratio: times[1] / times[0], Bound: 2})
}

func completing(upstream memmgr.Resource, n int, use func(*memmgr.Pool) func()) (took, busy float64) {
	g := newGate(upstream)
	p := memmgr.NewPool(g.withBatches(), memmgr.WithDecay(0))
	defer closePool(p)
	frees := make([]func(), n)
	for i := range frees {
		frees[i] = use(p)
	}
	for _, free := range frees {
		free()
	}
	time.Sleep(100 * time.Millisecond) // let the queue finish
	if got := p.Stats().Active.Current; got != int64(n) {
		panic(fmt.Errorf("membench: %d blocks wait, not %d", got, n))
	}
	g.open.Store(true)
	start, before := time.Now(), processorTime()
	memmgr.Flush()
	took, busy = float64(time.Since(start).Nanoseconds()), processorTime()-before
	if got := p.Stats().Active.Current; got != 0 {
		panic(fmt.Errorf("membench: %d blocks wait still", got))
	}
	return took, busy
}

// processorTime returns the processor time of the process, in nanoseconds.
func processorTime() float64 {
	var u syscall.Rusage
	exitOn(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

// bareEvents measures the time in which the library queries n completed events and releases them.
func bareEvents(q *syclobj.Queue, upstream memmgr.Resource, n int) float64 {
	s, _ := memmgr.As[memmgr.Synchronizer](upstream)
	all, ok := s.(batcher)
	buffer, err := memmgr.New(upstream, memmgr.Request{Size: 64})
	exitOn(err)
	defer buffer.Release()
	events, done := make([]uintptr, n), make([]bool, n)
	for i := range events {
		ev, err := q.Memset(buffer.Data(), 1, 64)
		exitOn(err)
		if events[i] = s.CopyEvent(uintptr(ev.Ref())); events[i] == 0 || !ok {
			return 0 // the event completed before the query
		}
		exitOn(ev.Close())
	}
	exitOn(s.WaitEvent(events[n-1]))
	time.Sleep(100 * time.Millisecond)
	start := processorTime()
	for at := 0; at < n; at += 64 {
		end := min(at+64, n)
		all.EventsDone(events[at:end], done[at:end])
		all.ReleaseEvents(events[at:end])
	}
	return processorTime() - start
}
