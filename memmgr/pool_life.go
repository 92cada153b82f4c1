package memmgr

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/memmgr/owner"
)

// tickTime is how often idle memory is looked at while there are pools.
const tickTime = 250 * time.Millisecond

// livePools are the open pools, and the goroutine that looks after them while
// there are any.
var livePools poolSet

type poolSet struct {
	mu      sync.Mutex
	all     []*Pool
	closing []*Pool // closed, and not all of their memory is back
	stop    chan struct{}
	stopped bool           // for good, by StopBackground
	running sync.WaitGroup // the goroutine
}

// StopBackground ends the work that this package does by itself, for good, and
// waits for what is under way: the look after idle pools, and the reaper that
// takes back what C dropped (owner.StopReaper). It is for a process that is about
// to end through C's exit, as Python's own does, because the destructors that run
// then take SYCL down under such work. Memory can still be allocated and released;
// what C drops afterwards is leaked. A Go program that ends by itself need not
// call it.
func StopBackground() {
	livePools.mu.Lock()
	livePools.stopped = true
	if livePools.stop != nil {
		close(livePools.stop)
		livePools.stop = nil
	}
	livePools.mu.Unlock()
	livePools.running.Wait()
	owner.StopReaper()
}

func (s *poolSet) add(p *Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, p)
	if s.stop == nil && !s.stopped {
		stop := make(chan struct{})
		s.stop = stop
		s.running.Go(func() { s.maintain(stop) })
	}
}

// remove takes a closed pool out. One that lingers, because memory of it is in
// use or on its way back, is still looked after: nobody else would see the end
// of work that is pending on that memory.
func (s *poolSet) remove(p *Pool, lingers bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.all, p); i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
	}
	if i := slices.Index(s.closing, p); i >= 0 {
		s.closing = slices.Delete(s.closing, i, i+1)
	}
	if lingers {
		s.closing = append(s.closing, p)
	}
	if len(s.all)+len(s.closing) == 0 && s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
}

func (s *poolSet) list() []*Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// tended lists what maintain looks after.
func (s *poolSet) tended() []*Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Clone(s.all), s.closing...)
}

func (s *poolSet) maintain(stop chan struct{}) {
	ticker := time.NewTicker(tickTime)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		for _, p := range s.tended() {
			select {
			case <-stop:
				return
			default:
			}
			if p.tick() {
				s.remove(p, false)
			}
		}
	}
}

// Pools lists the open pools, oldest first.
func Pools() []*Pool { return livePools.list() }

// tick completes what waits for the device, and lets memory go that has been
// idle for the time of [WithDecay]. It tells whether the pool was closed and the
// last of its memory is back.
func (p *Pool) tick() (ended bool) {
	p.h.list.Drain()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticks++
	if p.waiting.Load() != 0 {
		p.collect(-1)
	}
	if p.closed {
		return !p.leaked
	}
	if p.options.decay <= 0 || p.counters.reserved == 0 {
		return false
	}
	age := uint32(max(1, p.options.decay/tickTime))
	p.watchFront(age)
	p.decay(age)
	return false
}

// watchFront dissolves the caches when nobody has used them for a while.
func (p *Pool) watchFront(age uint32) {
	ops := uint64(0)
	cached := p.counters.middleBytes
	p.stopShards()
	for i := range p.shards {
		ops += p.shards[i].asked + p.shards[i].unasked
		cached += p.shards[i].cached()
	}
	p.resumeShards()
	ops += p.counters.asked + p.counters.unasked
	if ops != p.lastOps {
		p.lastOps, p.quiet = ops, 0
		return
	}
	p.quiet++
	if p.quiet >= age && cached > 0 {
		p.flush()
	}
}

// decay gives back the segments that have been empty for so many ticks.
func (p *Pool) decay(age uint32) {
	for at := 0; at < len(p.idle); {
		if p.ticks-p.idle[at].tick < age {
			at++
			continue
		}
		p.dropIdle(at)
	}
	if p.heap.Counts().EmptySegments == 0 {
		return
	}
	for _, n := range p.heap.EmptySegmentNumbers(nil) {
		if p.ticks-p.segs[n].emptyTick >= age {
			p.dropSegment(n)
		}
	}
}

// LeakError is what Close returns when buffers of the pool are still in use.
type LeakError struct {
	Pool    string
	Buffers []LiveBuffer
}

// Error counts them and tells of the first.
func (e *LeakError) Error() string {
	bytes := uint64(0)
	for _, b := range e.Buffers {
		bytes += b.Size
	}
	s := fmt.Sprintf("memmgr: pool %q was closed with %d buffers (%s) in use; they stay valid, and their memory goes back as they are released",
		e.Pool, len(e.Buffers), bytesText(bytes))
	if stack := e.Buffers[0].Stack; stack != "" {
		return s + "; the first was allocated at\n" + stack
	}
	return s
}

// Close waits for pending work, gives all idle memory back and ends the pool.
// Buffers in use stay valid; their memory goes back to the upstream as they are
// released, and Close returns a [*LeakError] that lists them. Allocate fails
// afterwards. Close may be called again.
func (p *Pool) Close() error {
	p.h.list.Sync()
	p.awaitAll()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.flush()
	p.release(0)
	var live []LiveBuffer
	p.eachUsed(func(c *owner.Cell) { live = append(live, describe(c, int(c.Count()))) })
	// Beside the buffers in use there may be some that others release right now:
	// as long as a block is out, its cell comes home to this pool.
	lingers := p.heap.Counts().Segments > 0
	p.leaked = lingers
	if !lingers {
		p.h.leave()
	}
	p.mu.Unlock()
	livePools.remove(p, lingers)
	holders.known.Delete(Resource(p))
	if len(live) > 0 {
		return &LeakError{Pool: p.options.name, Buffers: live}
	}
	return nil
}
