package memmgr

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Pool keeps memory of one place ready for use.
//
// In front lie caches of free blocks by size class, one set for each processor;
// behind them a segregated best fit over large segments of the upstream, with
// splitting and merging; the largest requests get segments of their own.
// Everything that the pool knows lies in Go memory: it never touches the memory
// it manages.
//
// Memory that is released with work pending is reused at once by a request for
// the same in-order queue ([Request.Queue]), and by others when its event is
// done. Memory that was exported is reused behind a barrier on its queue.
//
// A Pool is a [Resource]; [New] on it costs no allocation of the Go heap. It is
// safe for concurrent use.
type Pool struct {
	// What the fast path reads.
	home     *atomic.Uintptr // head of the home list
	front    front
	minUnits uintptr
	trace    *traceRing
	flags    uint32 // of every cell
	watched  bool   // traced or poisoned: no block goes the short way
	poisons  bool   // see DebugEnv

	upstream   Resource
	sync       Synchronizer
	origin     *origin
	options    poolOptions
	placeQueue *syclobj.Queue // for telling it by its address only

	published gauges // see peakStep

	mu       poolMutex
	heap     heap
	pending  pending
	closed   bool
	leaked   bool // closed, and blocks are still out
	counters poolCounters
	rate     rate // of allocations

	purging purging
	sleep   sleep

	growing chan struct{} // held by the one who asks the upstream

	slow, upstreamCalls latencies // of requests that the front did not serve, and for segments

	searched, yielded futileFlush // for requests of the pool, and for other pools

	waitlist waitlist  // guarded by mu
	waits    latencies // of waiters

	tenants     atomic.Pointer[[]*Tenant] // by number; 0 is nobody. Copied on write
	roomsMu     rankedMutex               // of the tenants' rooms on shards, for those who look without stopping them; after mu
	tagged      tagUse
	limits      []*Limit    // between the pool and its memory, outermost first
	poolBelow   bool        // the memory comes from another pool
	deviceSized deviceSized // nil where the upstream does not know its device
}

// poolTable finds the pool of a cell by its resource number in one step, for
// Release; pools beyond it are found through the origins.
var poolTable [1024]atomic.Pointer[Pool]

// PoolOption changes how a pool behaves.
type PoolOption func(*poolOptions)

type poolOptions struct {
	name       string
	minSegment uintptr
	growth     uintptr
	large      uintptr
	cache      int64
	high, low  uint64 // bytes out of use
	decay      time.Duration
	limit      uint64
	onOOM      func(*OutOfMemoryError) bool
	traceSize  int
}

// WithName names the pool in reports.
func WithName(name string) PoolOption { return func(o *poolOptions) { o.name = name } }

// WithSegment sets the smallest segment that is asked of the upstream; the
// default is 2 MiB.
func WithSegment(bytes uintptr) PoolOption { return func(o *poolOptions) { o.minSegment = bytes } }

// WithLarge sets the size from which a request gets a segment of its own; the
// default is 16 MiB.
func WithLarge(bytes uintptr) PoolOption { return func(o *poolOptions) { o.large = bytes } }

// WithCache bounds the bytes of free blocks that the pool keeps at hand by class, on
// all processors together and between them. It holds at all times, to the one block
// that each processor is about to put away; 0 keeps nothing.
//
// The default depends on the pool's state, and is set anew four times a second and
// when more may be kept: what is out of use beyond a sixth of what the pool has
// from its upstream, at least 32 MiB and a 64th of it. More makes a pool of which
// most is in use larger, because blocks that are kept for their class do not merge.
func WithCache(bytes int64) PoolOption { return func(o *poolOptions) { o.cache = max(bytes, 0) } }

// WithDecay sets how long memory stays idle before it goes back to the upstream;
// the default is 10 seconds, 0 keeps it for ever. So long, too, a free range stays in
// memory whose segment is in use (see [Discarder]).
func WithDecay(d time.Duration) PoolOption { return func(o *poolOptions) { o.decay = d } }

// WithRetention bounds the bytes that the pool keeps out of use, in segments of which
// no part is in use: above high the oldest go back to the upstream until low are
// left. The default has no such bound, and memory goes back by age alone.
func WithRetention(high, low uint64) PoolOption {
	return func(o *poolOptions) { o.high, o.low = high, min(low, high) }
}

// WithLimit bounds the bytes that the pool takes from its upstream.
func WithLimit(bytes uint64) PoolOption { return func(o *poolOptions) { o.limit = bytes } }

// OnOutOfMemory is called before a request fails, after everything else was
// tried; when it returns true the request is tried once more. It may release
// buffers, and must not allocate from the pool.
func OnOutOfMemory(f func(*OutOfMemoryError) bool) PoolOption {
	return func(o *poolOptions) { o.onOOM = f }
}

// WithTrace keeps the last n actions for the snapshot.
func WithTrace(n int) PoolOption { return func(o *poolOptions) { o.traceSize = n } }

// deviceSized is an upstream that knows the memory of its device.
type deviceSized interface{ DeviceTotal() uint64 }

// NewPool makes a pool over an upstream, which it does not own: close the pool
// first, then the upstream.
func NewPool(upstream Resource, options ...PoolOption) *Pool {
	upstream = over(upstream).from
	o := poolOptions{
		minSegment: defaultSegment, growth: defaultGrowth, large: defaultLarge, cache: defaultCache, decay: defaultDecay,
		high: math.MaxUint64,
	}
	for _, option := range options {
		option(&o)
	}
	o.minSegment = roundUp(min(max(o.minSegment, unit), maxSegment), unit)
	p := &Pool{
		upstream: bounded(upstream, &o), options: o,
		growing: make(chan struct{}, 1), minUnits: 2,
	}
	p.front.init()
	p.front.budget.fixed, p.front.budget.inUse = o.cache, &p.published.bytes.now
	p.front.budget.set()
	if place := upstream.Place(); place == nil || place.IsHost() {
		p.minUnits = 1
	}
	if o.traceSize > 0 {
		p.trace = newTraceRing(o.traceSize)
	}
	p.mu.init(p.upstream)
	rankLocks(p)
	p.limits = limitsOf(p.upstream)
	_, p.poolBelow = As[*Pool](p.upstream)
	p.deviceSized, _ = As[deviceSized](p.upstream)
	p.purging.to, _ = As[Discarder](p.upstream)
	p.origin = newOrigin(upstream)
	p.origin.sync, _ = As[Synchronizer](upstream)
	p.sync = p.origin.sync
	p.flags = p.origin.flags
	p.poisons = debug.Poison && p.flags&owner.HostReadable != 0
	p.watched = p.trace != nil || p.poisons
	if p.sync == nil {
		p.sync = systemEvents
	}
	p.sleep.init(p.origin, p.purging.to, p.sync)
	p.origin.resource = p
	p.origin.list = owner.NewList(p.freeCell)
	p.heap.origin, p.heap.mu, p.heap.trace, p.heap.emptied = p.origin, &p.mu, p.trace, p.last
	p.heap.large, p.heap.high, p.heap.low = o.large, o.high, o.low
	p.heap.depot.budget = &p.front.budget
	p.purging.heap = &p.heap
	p.home = p.origin.list.Head()
	origins.add(p.origin, true)
	p.pending.init(&p.mu, p.sync, p.origin, o.name)
	p.pending.complete, p.pending.serveWaiters = p.complete, p.serveWaiters
	if p.origin.index < uint32(len(poolTable)) {
		poolTable[p.origin.index].Store(p)
	}
	if place := p.origin.goPlace; place != nil {
		p.placeQueue, _ = place.Queue() // nil without a runtime: then none is skipped
	}
	keeper.add(p)
	return p
}

// bounded puts the limit of the options, if any, between the pool and its upstream.
func bounded(upstream Resource, o *poolOptions) Resource {
	if o.limit == 0 {
		return upstream
	}
	return NewLimit(upstream, o.limit)
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.options.name }

// Place implements [Resource].
func (p *Pool) Place() *syclobj.Place { return p.origin.goPlace }

// Upstream returns the resource that segments come from.
func (p *Pool) Upstream() Resource { return p.upstream }

// annotate adds what most requests do not ask for, and what is done now and then.
func (p *Pool) annotate(c *owner.Cell, tag string, q *syclobj.Queue) {
	if c.Tag = tagNumber(tag); c.Tag != 0 {
		p.tagsOf(c).add(c.Tag, int64(c.Size), 1)
	}
	noteAllocation(c)
	if q != nil && q != p.placeQueue { // none noted means that one
		noteQueue(c, q)
	}
	if p.trace != nil {
		p.trace.add(traceAlloc, c)
	}
	p.poisonFresh(c)
	p.publishShard()
}

// freeCell takes a dead cell back: the drain function of the home list.
func (p *Pool) freeCell(c *owner.Cell) {
	if k := uint(blockClass(c)); c.Plain(p.flags) && k < numClasses && !p.watched {
		p.cache(c, int(k))
		return
	}
	if !p.freeCharged(c) {
		p.slowFree(c)
	}
}

// afterPut does the rare part of a free: it publishes counts, keeps the shard within
// its limit, and moves a full magazine to the depot. It leaves the shard.
func (p *Pool) afterPut(s *shard, k int) {
	var c change
	if s.isDue() {
		c = s.takeChange()
	}
	surplus := p.front.fit(s, k)
	var full magazine
	if s.bins[k].n >= magazineSize[k] {
		full = s.unstock(k)
	}
	s.leave()
	if c != (change{}) {
		p.publish(c)
	}
	if full.n == 0 && surplus.top == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heap.spill(full, k)
	if p.heap.dissolveStack(surplus) {
		p.heap.yieldDepot()
	}
	p.serveWaiters()
}

// cache puts a block that is ready for reuse into the front, or into the depot while
// the shards are stopped.
func (p *Pool) cache(c *owner.Cell, k int) {
	s := p.front.enter()
	if s == nil {
		p.mu.Lock()
		p.front.addShards()
		p.uncount(c, k)
		p.heap.cache(c, k)
		p.serveWaiters()
		p.mu.Unlock()
		return
	}
	s.put(k, c)
	s.countPut(k, c)
	if s.overtaken(k) {
		p.afterPut(s, k)
		return
	}
	s.leave()
}

// publishShard publishes what the caller's shard has counted, if it is due.
func (p *Pool) publishShard() {
	if c := p.front.takeDue(); c != (change{}) {
		p.publish(c)
	}
}

// Allocate implements [Resource] for callers that keep no buffers. The memory is
// ready for any queue and for the host: a Block has no way to tell of work that
// is pending on it, so Queue does not matter here.
func (p *Pool) Allocate(r Request) (Block, error) {
	r.Queue = nil
	b, err := New(p, r)
	if err != nil {
		return Block{}, err
	}
	return b.block(&r), nil
}

// block is a buffer of a pool as a plain value.
func (b Buffer) block(r *Request) Block {
	c := b.ref.Cell()
	if c.Tag != 0 {
		c.SetFlags(owner.Lent)
	}
	return Block{
		Address: c.Address, Size: uintptr(c.Size), Requested: r.Size, Align: r.Alignment(),
		Cookie: uint64(c.Index())<<32 | uint64(b.ref.Generation()),
	}
}

// Free implements [Resource]. It panics when the block is not one of this
// pool's, or was freed before.
func (p *Pool) Free(b Block) {
	index := uint32(b.Cookie >> 32)
	if _, used := owner.Capacity(); index == 0 || int(index) > used {
		panic(misuse("Pool.Free", "the block at %#x is not of this pool", b.Address))
	}
	c := owner.At(index)
	r := owner.MakeRef(c, uint32(b.Cookie))
	if !r.Valid() || c.Resource != p.origin.index || c.Address != b.Address {
		panic(misuse("Pool.Free", "the block at %#x is not of this pool, or was freed before", b.Address))
	}
	if b.Event != 0 {
		if c.Queue() == 0 && (holdQueueRef(b.Queue) || p.origin.place == nil) {
			c.SetQueue(b.Queue)
		}
		// The user holds the block until Release. If the events cannot be joined, wait here.
		if addEvent(p.sync, c, b.Event, false) != nil {
			_ = p.sync.WaitEvent(b.Event)
		}
		p.sync.ReleaseEvent(b.Event)
	}
	Buffer{ref: r}.Release()
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
	if len(e.Buffers) > 0 && len(e.Buffers[0].Stack) > 0 {
		return s + "; the first was allocated at\n" + e.Buffers[0].Stack.String()
	}
	return s
}

// Close waits for pending work, gives all idle memory back and ends the pool.
// Buffers in use stay valid; their memory goes back to the upstream as they are
// released, and Close returns a [*LeakError] that lists them. Allocate fails
// afterwards. Close may be called again.
func (p *Pool) Close() error {
	emptyFronts()
	p.origin.list.Sync()
	p.awaitAll()
	p.purging.mu.Lock() // so that every free block is there
	defer p.purging.mu.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed, p.front.closed, p.heap.closed, p.heap.depot.off = true, true, true, true
	p.endWaits()
	p.flush()
	p.heap.release(0)
	var live []LiveBuffer
	p.eachUsed(func(c *owner.Cell) { live = append(live, describe(c, int(c.Count()))) })
	// Beside the buffers in use there may be some that others release right now:
	// as long as a block is out, its cell comes home to this pool.
	lingers := p.heap.Counts().Segments > 0
	p.leaked = lingers
	if !lingers {
		p.origin.removePool()
	}
	p.mu.awaitReturned()
	p.mu.Unlock()
	keeper.remove(p, lingers)
	if len(live) > 0 {
		return &LeakError{Pool: p.options.name, Buffers: live}
	}
	return nil
}

// last ends the part of a closed pool in the tables, with its last segment. p.mu is
// held.
func (p *Pool) last() {
	if p.leaked {
		p.leaked = false
		p.origin.removePool()
	}
}

// poolMutex is the lock of a pool. Segments that are dropped while it is held go
// back to the upstream when it was let go, on the same goroutine, because the
// upstream may take its time and others want to allocate.
type poolMutex struct {
	rankedMutex
	upstream  Resource
	dropped   []Block   // to go back at the next Unlock
	returning int       // goroutines that give some back
	returns   uint64    // how often one has done so
	returned  sync.Cond // that one has
}

func (m *poolMutex) init(upstream Resource) {
	m.upstream = upstream
	m.returned.L = &m.rankedMutex
}

// drop has a segment go back. The lock is held.
func (m *poolMutex) drop(b Block) { m.dropped = append(m.dropped, b) }

// Unlock lets go, and gives back what was dropped.
func (m *poolMutex) Unlock() {
	if len(m.dropped) == 0 {
		m.rankedMutex.Unlock()
		return
	}
	dropped := m.dropped
	m.dropped = nil
	m.returning++
	m.rankedMutex.Unlock()
	defer func() {
		m.rankedMutex.Lock()
		m.returning--
		m.returns++
		m.returned.Broadcast()
		m.rankedMutex.Unlock()
	}()
	freeEach(m.upstream, dropped)
}

// freeEach gives blocks back. Where the upstream panics over one, the others go back
// all the same, before the panic goes on.
func freeEach(upstream Resource, blocks []Block) {
	done := 0
	defer func() {
		if done < len(blocks) {
			freeEach(upstream, blocks[done+1:])
		}
	}()
	for ; done < len(blocks); done++ {
		upstream.Free(blocks[done])
	}
}

// awaitReturned waits for as many goroutines to end giving back as are at it now,
// and reports whether there were any. It waits for calls of Free alone, never for
// room or a device. The lock is held, and let go meanwhile.
func (m *poolMutex) awaitReturned() (any bool) {
	if len(m.dropped) > 0 { // or others would give it back, after this ends
		m.Unlock()
		m.Lock()
	}
	end := m.returns + uint64(m.returning)
	for ; m.returning > 0 && m.returns < end; any = true {
		m.returned.Wait()
	}
	return any
}
