//go:build cgo && linux

package memmgr_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// BenchmarkPending measures the processor time from the end of work on a block to its reuse, for blocks of an
// in-order SYCL queue, each used in an operation of its own. The metric driver-ns is the part in which the
// SYCL library queries and releases the events; the bound for the rest is 300 ns. One thread does all this, so
// that other load on the machine does not change it.
func BenchmarkPending(b *testing.B) {
	const n = 10000
	rt := openSYCL(b)
	q, err := rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder)
	require.NoError(b, err)
	defer func() { require.NoError(b, q.Close()) }()
	upstream := memmgr.USM(q, syclobj.USMDevice)
	defer func() { require.NoError(b, memmgr.Close(upstream)) }()
	memmgr.RecordStacks(0)
	var pool, driver float64
	rounds := 0
	for b.Loop() {
		pool += completing(b, q, upstream, n)
		driver += bareEvents(b, q, upstream, n)
		rounds++
	}
	pool, driver = pool/float64(rounds*n), driver/float64(rounds*n)
	b.ReportMetric(pool, "block-ns")
	b.ReportMetric(driver, "driver-ns")
	b.ReportMetric(pool-driver, "rest-ns")
}

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

// completing uses n blocks and returns the processor time in which the pool completes them.
func completing(b *testing.B, q *syclobj.Queue, upstream memmgr.Resource, n int) float64 {
	b.Helper()
	g := newGate(upstream)
	p := memmgr.NewPool(g.withBatches(), memmgr.WithDecay(0))
	defer func() { require.NoError(b, p.Close()) }()
	buffers := make([]memmgr.Buffer, n)
	for i := range buffers {
		var err error
		buffers[i], err = memmgr.New(p, memmgr.Request{Size: 4096})
		require.NoError(b, err)
		ev, err := q.Memset(buffers[i].Data(), 1, 64)
		require.NoError(b, err)
		require.NoError(b, buffers[i].SetPending(q, ev))
		require.NoError(b, ev.Close())
	}
	for _, buffer := range buffers {
		buffer.Release()
	}
	time.Sleep(100 * time.Millisecond) // let the queue finish
	require.EqualValues(b, n, p.Stats().Active.Current)
	g.open.Store(true)
	before := processorTime(b)
	memmgr.Flush()
	busy := processorTime(b) - before
	require.Zero(b, p.Stats().Active.Current)
	return busy
}

// processorTime returns the processor time of the process, in nanoseconds.
func processorTime(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

// bareEvents measures the time in which the library queries n completed events and releases them.
func bareEvents(b *testing.B, q *syclobj.Queue, upstream memmgr.Resource, n int) float64 {
	b.Helper()
	s, _ := memmgr.As[memmgr.Synchronizer](upstream)
	all, ok := s.(batcher)
	buffer, err := memmgr.New(upstream, memmgr.Request{Size: 64})
	require.NoError(b, err)
	defer buffer.Release()
	events, done := make([]uintptr, n), make([]bool, n)
	for i := range events {
		ev, err := q.Memset(buffer.Data(), 1, 64)
		require.NoError(b, err)
		if events[i] = s.CopyEvent(uintptr(ev.Ref())); events[i] == 0 || !ok {
			return 0 // the event completed before the query
		}
		require.NoError(b, ev.Close())
	}
	require.NoError(b, s.WaitEvent(events[n-1]))
	time.Sleep(100 * time.Millisecond)
	start := processorTime(b)
	for at := 0; at < n; at += 64 {
		end := min(at+64, n)
		all.EventsDone(events[at:end], done[at:end])
		all.ReleaseEvents(events[at:end])
	}
	return processorTime(b) - start
}
