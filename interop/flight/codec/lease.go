package codec

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Leases tracks the buffers of one call that gRPC holds. The zero value is ready to use; it must
// not be copied. It is safe for concurrent use.
type Leases struct {
	mu    sync.Mutex
	count int           // number of buffers that gRPC holds
	moved int64         // number of buffers lent and returned so far
	wake  chan struct{} // closed when a buffer is returned; nil if there is no waiter
}

var outstanding struct{ count, bytes atomic.Int64 }

// Outstanding returns the number of buffers that gRPC holds in this process, and their total bytes.
func Outstanding() (pieces, bytes int64) {
	return outstanding.count.Load(), outstanding.bytes.Load()
}

// lease is the memory reference of one buffer. It is released once.
type lease struct {
	buffer memmgr.Buffer
	group  *Leases
	bytes  int64
	ended  atomic.Bool
}

// end releases the memory. Further calls have no effect.
func (l *lease) end() {
	if l.ended.Swap(true) {
		return
	}
	l.buffer.Release()
	outstanding.count.Add(-1)
	outstanding.bytes.Add(-l.bytes)
	l.group.add(-1)
}

// leasePool is the pool to which gRPC returns one buffer. Only gRPC's buffer refers to it. If gRPC
// drops the buffer without freeing it, the garbage collector runs the cleanup of the pool, which
// ends the lease.
type leasePool struct {
	lease   *lease
	cleanup runtime.Cleanup
}

// Get is never called: gRPC allocates received frames from another pool.
func (p *leasePool) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put ends the lease.
func (p *leasePool) Put(*[]byte) {
	p.cleanup.Stop()
	p.lease.end()
}

// Memory returns data as a buffer for a message. data must lie in the memory of buffer and be
// readable by the host. The result holds its own reference of buffer until gRPC has sent the bytes;
// data must not be modified before that. Data below gRPC's pooling threshold (1 KiB) is copied.
func (g *Leases) Memory(buffer memmgr.Buffer, data []byte) mem.Buffer {
	data = data[:len(data):len(data)]
	if mem.IsBelowBufferPoolingThreshold(len(data)) {
		return mem.SliceBuffer(append([]byte(nil), data...))
	}
	l := &lease{buffer: buffer.Retain(), group: g, bytes: int64(len(data))}
	outstanding.count.Add(1)
	outstanding.bytes.Add(l.bytes)
	g.add(1)
	p := &leasePool{lease: l}
	p.cleanup = runtime.AddCleanup(p, (*lease).end, l)
	return mem.NewBuffer(&data, p)
}

// add counts n more buffers and wakes the waiters.
func (g *Leases) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count += n
	g.moved++
	if g.wake != nil {
		close(g.wake)
		g.wake = nil
	}
}

// WaitBelow blocks until gRPC holds fewer than n buffers or the context ends. Senders with a few
// staging buffers use it to stay in step with the network.
func (g *Leases) WaitBelow(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		if g.count < n {
			g.mu.Unlock()
			return nil
		}
		if g.wake == nil {
			g.wake = make(chan struct{})
		}
		wake := g.wake
		g.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Wait blocks until gRPC holds no buffer. Call it at the end of every call that used Memory, with
// the context of the stream (grpc.ServerStream.Context, ClientStream.Context) or the call. If the
// context ends first, Wait abandons the remaining buffers and returns the error of the context.
func (g *Leases) Wait(ctx context.Context) error {
	err := g.WaitBelow(ctx, 1)
	if err != nil {
		g.Abandon()
	}
	return err
}

// Abandon frees the remaining buffers of an ended call in the background, usually within seconds. It
// does not block.
func (g *Leases) Abandon() {
	if g.held() > 0 {
		reclaim.add(g)
	}
}

// held returns the number of buffers that gRPC holds.
func (g *Leases) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// reclaimer runs the garbage collector until the buffers of ended calls are released.
type reclaimer struct {
	mu     sync.Mutex
	groups map[*Leases]time.Time
	busy   bool
}

var reclaim reclaimer

const (
	reclaimFirst = 50 * time.Millisecond // gRPC frees most buffers by itself in this time
	reclaimEvery = time.Second           // longest pause between two collections
	// After this time the collections of the program itself must suffice. It is longer than usual
	// call timeouts because the Go scheduler may keep a stopped timer, and with it the context and
	// the connection of its call, until the timer would have expired.
	reclaimLast = 2 * time.Minute
)

// add starts reclaiming the buffers of g.
func (r *reclaimer) add(g *Leases) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups == nil {
		r.groups = map[*Leases]time.Time{}
	}
	r.groups[g] = time.Now()
	if !r.busy {
		r.busy = true
		go r.run()
	}
}

// run collects until no group has outstanding buffers.
func (r *reclaimer) run() {
	for pause := reclaimFirst; ; pause = min(2*pause, reclaimEvery) {
		time.Sleep(pause)
		if !r.prune() {
			return
		}
		runtime.GC()
	}
}

// prune removes the groups that have no outstanding buffers or have expired, and reports whether any
// group remains.
func (r *reclaimer) prune() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for g, since := range r.groups {
		if g.held() == 0 || time.Since(since) > reclaimLast {
			delete(r.groups, g)
		}
	}
	r.busy = len(r.groups) > 0
	return r.busy
}

// Moved returns a counter that changes whenever a buffer is lent to or returned by gRPC. It shows
// whether the peer is still reading.
func (g *Leases) Moved() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moved
}
