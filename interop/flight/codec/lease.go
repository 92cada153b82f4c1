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

// Leases are the pieces of memory that one call has given to gRPC. The zero value is
// ready; it must not be copied.
type Leases struct {
	mu    sync.Mutex
	count int
	bytes int64
	moved int64         // pieces taken and given back so far
	wake  chan struct{} // closed when a piece comes back; nil while nobody waits
}

var outstanding struct{ count, bytes atomic.Int64 }

// Outstanding returns how many pieces of memory gRPC holds in this process, and their
// bytes.
func Outstanding() (pieces, bytes int64) {
	return outstanding.count.Load(), outstanding.bytes.Load()
}

// lease is one piece: the reference of the memory, ended once.
type lease struct {
	buffer memmgr.Buffer
	group  *Leases
	bytes  int64
	ended  atomic.Bool
}

func (l *lease) end() {
	if l.ended.Swap(true) {
		return
	}
	l.buffer.Release()
	outstanding.count.Add(-1)
	outstanding.bytes.Add(-l.bytes)
	l.group.returned(l.bytes)
}

// leasePool is what gRPC puts the piece back to. Nothing but gRPC's buffer refers to
// it, so when gRPC forgets the buffer the collector finds the pool, and ends the lease.
type leasePool struct {
	lease   *lease
	cleanup runtime.Cleanup
}

// Get is never called: gRPC's receiving side has a pool of its own.
func (p *leasePool) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put ends the lease.
func (p *leasePool) Put(*[]byte) {
	p.cleanup.Stop()
	p.lease.end()
}

// Memory is a piece of a message: data, which lies in memory of the buffer that the
// host can read. The piece holds a reference of its own until gRPC has sent it; nobody
// may write to data before that. Pieces below gRPC's threshold (1 KiB) are copied.
func (g *Leases) Memory(buffer memmgr.Buffer, data []byte) mem.Buffer {
	data = data[:len(data):len(data)]
	if mem.IsBelowBufferPoolingThreshold(len(data)) {
		return mem.SliceBuffer(append([]byte(nil), data...))
	}
	l := &lease{buffer: buffer.Retain(), group: g, bytes: int64(len(data))}
	outstanding.count.Add(1)
	outstanding.bytes.Add(l.bytes)
	g.mu.Lock()
	g.count++
	g.moved++
	g.bytes += l.bytes
	g.mu.Unlock()
	p := &leasePool{lease: l}
	p.cleanup = runtime.AddCleanup(p, (*lease).end, l)
	return mem.NewBuffer(&data, p)
}

func (g *Leases) returned(bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	g.moved++
	g.bytes -= bytes
	if g.wake != nil {
		close(g.wake)
		g.wake = nil
	}
}

// Outstanding returns how many pieces gRPC still holds, and their bytes.
func (g *Leases) Outstanding() (pieces int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count, g.bytes
}

// WaitBelow blocks until gRPC holds fewer than n pieces, or the context ends: for
// senders that stage their memory and must not run ahead of the network.
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

// Wait blocks until gRPC is done with every piece. When the context ends first, which
// is the stream's (grpc.ServerStream.Context, ClientStream.Context) or the call's, the
// pieces that are left belong to nobody any more: they are freed in the background,
// within some seconds, at times a minute, and Wait returns the context's error. A call that gave memory to
// gRPC ends with Wait.
func (g *Leases) Wait(ctx context.Context) error {
	err := g.WaitBelow(ctx, 1)
	if err != nil {
		reclaim.add(g)
	}
	return err
}

// reclaimer has the collector run while pieces of broken connections are out.
type reclaimer struct {
	mu     sync.Mutex
	groups map[*Leases]time.Time
	busy   bool
}

var reclaim reclaimer

const (
	reclaimFirst = 50 * time.Millisecond // gRPC frees most by itself in that time
	reclaimEvery = time.Second           // what the pauses grow to
	// After that the program's own collections must do. Longer than the time-outs of calls: the
	// scheduler may keep a timer that was stopped, and with it the context and the connection of its
	// call, until its time.
	reclaimLast = 2 * time.Minute
)

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

// run ends when no group has anything out.
func (r *reclaimer) run() {
	for pause := reclaimFirst; ; pause = min(2*pause, reclaimEvery) {
		time.Sleep(pause)
		if !r.left() {
			return
		}
		runtime.GC()
	}
}

// left drops the groups that are empty or too old, and reports whether others remain.
func (r *reclaimer) left() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for g, since := range r.groups {
		if n, _ := g.Outstanding(); n == 0 || time.Since(since) > reclaimLast {
			delete(r.groups, g)
		}
	}
	r.busy = len(r.groups) > 0
	return r.busy
}

// Moved returns a number that changes when gRPC takes or gives back a piece: for those
// who watch whether a peer still reads.
func (g *Leases) Moved() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moved
}

// Abandon is Wait for a call that is over: whatever is left is freed in the background.
func (g *Leases) Abandon() {
	if n, _ := g.Outstanding(); n > 0 {
		reclaim.add(g)
	}
}
