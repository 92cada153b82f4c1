package memmgr

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
	"github.com/usmbridge/usmbridge/memmgr/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Pool keeps memory of one place ready for use.
//
// In front lie caches of free blocks by size class, one set for each processor;
// behind them a two-level segregated fit over large segments of the upstream,
// with splitting and merging; the largest requests get segments of their own.
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
	home      *atomic.Uintptr // head of the home list
	shards    []shard
	minUnits  uintptr
	trace     *traceRing
	flags     uint32 // of every cell
	uncounted bool

	upstream   Resource
	sync       Synchronizer
	origin     *origin
	options    poolOptions
	placeQueue *syclobj.Queue // for telling it by its address only

	published gauges       // see peakStep
	waiting   atomic.Int32 // blocks in pending or returned

	mu       sync.Mutex
	heap     tlsf.Heap
	segs     []poolSegment             // by the heap's segment number
	depot    [numClasses]magazineStack // what the processors do not have
	pending  pendingSet
	returned []*owner.Cell // exported blocks that came home, no barrier yet
	idle     []idleSegment // dedicated segments out of use, oldest first
	closed   bool
	leaked   bool // closed, and blocks are still out
	counters poolCounters
	ticks    uint32 // of the maintenance goroutine
	quiet    uint32 // ticks without a change in front
	lastOps  uint64

	growing chan struct{} // held by the one who asks the upstream
}

// poolTable finds the pool of a cell by its resource number in one step, for
// Release; pools beyond it are found through the origins.
var poolTable [1024]atomic.Pointer[Pool]

// poolSegment is what the pool keeps about a segment beside what the heap knows,
// in half a cache line: what the upstream wants to have back.
type poolSegment struct {
	cookie    uint64
	requested uintptr
	emptyTick uint32 // the pool's tick at which it became empty
	align     uint8  // its logarithm
	dedicated bool
}

// block is what the upstream gave.
func (s *poolSegment) block(base, size uintptr) Block {
	return Block{
		Address: base, Size: size, Requested: s.requested, Align: 1 << s.align, Cookie: s.cookie,
	}
}

// idleSegment is a dedicated segment out of use, with what a search needs.
type idleSegment struct {
	cell    *owner.Cell // dead; keeps the segment's block
	address uintptr
	size    uintptr
	tick    uint32 // the pool's tick at which it went out of use
}

// PoolOption changes how a pool behaves.
type PoolOption func(*poolOptions)

type poolOptions struct {
	name       string
	minSegment uintptr
	growth     uintptr
	large      uintptr
	cacheLimit int64
	depotLimit int64
	decay      time.Duration
	limit      uint64
	fraction   float64
	onOOM      func(*OutOfMemoryError) bool
	traceSize  int
	uncounted  bool
}

// WithName names the pool in reports.
func WithName(name string) PoolOption { return func(o *poolOptions) { o.name = name } }

// WithSegment sets the smallest segment that is asked of the upstream; the
// default is 2 MiB.
func WithSegment(bytes uintptr) PoolOption { return func(o *poolOptions) { o.minSegment = bytes } }

// WithLarge sets the size from which a request gets a segment of its own; the
// default is 16 MiB.
func WithLarge(bytes uintptr) PoolOption { return func(o *poolOptions) { o.large = bytes } }

// WithCache sets how many bytes of free blocks each processor keeps at hand; the
// default is 64 MiB.
func WithCache(bytes int64) PoolOption { return func(o *poolOptions) { o.cacheLimit = bytes } }

// WithDecay sets how long memory stays idle before it goes back to the upstream;
// the default is 10 seconds, 0 keeps it for ever.
func WithDecay(d time.Duration) PoolOption { return func(o *poolOptions) { o.decay = d } }

// WithLimit bounds the bytes that the pool takes from its upstream.
func WithLimit(bytes uint64) PoolOption { return func(o *poolOptions) { o.limit = bytes } }

// WithDeviceFraction bounds them by a fraction of the device's memory, where the
// upstream knows it.
func WithDeviceFraction(f float64) PoolOption { return func(o *poolOptions) { o.fraction = f } }

// OnOutOfMemory is called before a request fails, after everything else was
// tried; when it returns true the request is tried once more. It may release
// buffers, and must not allocate from the pool.
func OnOutOfMemory(f func(*OutOfMemoryError) bool) PoolOption {
	return func(o *poolOptions) { o.onOOM = f }
}

// WithTrace keeps the last n actions for the snapshot.
func WithTrace(n int) PoolOption { return func(o *poolOptions) { o.traceSize = n } }

// WithoutStatistics leaves the counting in front out: Stats tells of the
// upstream only. For measuring what the counting costs.
func WithoutStatistics() PoolOption { return func(o *poolOptions) { o.uncounted = true } }

// deviceSized is an upstream that knows the memory of its device.
type deviceSized interface{ DeviceTotal() uint64 }

// NewPool makes a pool over an upstream, which it does not own: close the pool
// first, then the upstream.
func NewPool(upstream Resource, options ...PoolOption) *Pool {
	upstream = over(upstream).from
	o := poolOptions{
		minSegment: 2 << 20, growth: 16, large: 16 << 20, cacheLimit: 64 << 20,
		depotLimit: 64 << 20, decay: 10 * time.Second,
	}
	for _, option := range options {
		option(&o)
	}
	o.minSegment = roundUp(max(o.minSegment, unit), unit)
	p := &Pool{
		upstream: bounded(upstream, &o), options: o,
		shards: newShards(o.cacheLimit), growing: make(chan struct{}, 1), minUnits: 2,
	}
	if place := upstream.Place(); place == nil || place.IsHost() {
		p.minUnits = 1
	}
	if o.traceSize > 0 {
		p.trace = newTraceRing(o.traceSize)
	}
	p.pending.init()
	p.origin = newOrigin(upstream)
	p.sync = p.origin.sync
	p.flags, p.uncounted = p.origin.flags, o.uncounted
	if p.sync == nil {
		p.sync = systemEvents
	}
	p.origin.resource = p
	p.origin.list = owner.NewList(p.freeCell)
	p.home = p.origin.list.Head()
	origins.mu.Lock()
	p.origin.enter()
	if p.origin.index < uint32(len(poolTable)) {
		poolTable[p.origin.index].Store(p)
	}
	origins.known.Store(Resource(p), p.origin)
	origins.mu.Unlock()
	if place := p.origin.goPlace; place != nil {
		p.placeQueue, _ = place.Queue() // nil without a runtime: then none is skipped
	}
	keeper.add(p)
	return p
}

// bounded puts the limits of the options between the pool and its upstream.
func bounded(upstream Resource, o *poolOptions) Resource {
	limit := o.limit
	if d, ok := As[deviceSized](upstream); ok && o.fraction > 0 && d.DeviceTotal() > 0 {
		if f := uint64(o.fraction * float64(d.DeviceTotal())); limit == 0 || f < limit {
			limit = f
		}
	}
	if limit == 0 {
		return upstream
	}
	return NewLimit(upstream, limit)
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.options.name }

// Place implements [Resource].
func (p *Pool) Place() *syclobj.Place { return p.origin.goPlace }

// Upstream returns the resource that segments come from.
func (p *Pool) Upstream() Resource { return p.upstream }

// annotate adds what most requests do not ask for, and what is done now and then.
func (p *Pool) annotate(c *owner.Cell, tag string, q *syclobj.Queue) {
	c.Tag = tagNumber(tag)
	noteAllocation(c)
	if q != nil && q != p.placeQueue { // none noted means that one
		noteQueue(c, q)
	}
	if p.trace != nil {
		p.trace.add(traceAlloc, c)
	}
	p.publishShard()
}

// freeCell takes a dead cell back: the drain function of the home list.
func (p *Pool) freeCell(c *owner.Cell) {
	if k := uint(c.Private); c.Plain(p.flags) && k < numClasses && p.trace == nil {
		p.cache(c, int(k))
		return
	}
	p.slowFree(c)
}

// afterPut is what a free has to do now and then: publish, and turn a full
// magazine over.
func (p *Pool) afterPut(k int) {
	p.publishShard()
	s := p.enter()
	if s == nil {
		return // whoever holds the shards dissolves them
	}
	var full, more magazine
	if s.bins[k].n >= magazineSize[k] {
		full = s.unstock(k, p.options.cacheLimit)
	}
	if s.cached() > p.options.cacheLimit {
		more = s.unstock(k, p.options.cacheLimit)
	}
	s.leave()
	if full.n+more.n == 0 {
		return
	}
	p.mu.Lock()
	p.spill(full, k)
	p.spill(more, k)
	p.mu.Unlock()
}

// cache puts a block that is ready for reuse into the front, or into the depot
// while somebody holds the front.
func (p *Pool) cache(c *owner.Cell, k int) {
	s := p.enter()
	if s == nil {
		p.mu.Lock()
		p.uncount(c, k)
		p.toDepot(c, k)
		p.mu.Unlock()
		return
	}
	s.put(k, c)
	if !p.uncounted {
		s.countPut(k, c)
	}
	over := s.overtaken(k)
	s.leave()
	if over {
		p.afterPut(k)
	}
}

// publishShard publishes what the caller's shard has counted, if it is due.
func (p *Pool) publishShard() {
	s := p.enter()
	if s == nil {
		return // whoever holds the shards publishes, or the next one
	}
	var c change
	if s.isDue() {
		c = s.takeChange(p.options.cacheLimit)
	}
	s.leave()
	if c != (change{}) {
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
	c := b.ref.Cell()
	return Block{
		Address: c.Address, Size: uintptr(c.Size), Requested: r.Size, Align: r.Alignment(),
		Cookie: uint64(c.Index())<<32 | uint64(b.ref.Generation()),
	}, nil
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
		p.awaitToo(c, b.Event)
		p.sync.ReleaseEvent(b.Event)
	}
	Buffer{ref: r}.Release()
}
