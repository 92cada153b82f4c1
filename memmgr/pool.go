package memmgr

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/heap"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
	"github.com/usmbridge/usmbridge/memmgr/internal/purge"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Pool allocates from large segments of one upstream, which it divides and reuses.
//
// Each processor has a cache of free blocks by size class. Behind the caches, a best-fit
// heap over the segments splits and merges blocks of all sizes. All bookkeeping is in Go
// memory: the pool never accesses the memory that it manages.
//
// Memory that is released while device work is pending may be reused at once by a request
// for the same in-order queue ([Request.Queue]), and by other requests when the work is
// done. Memory that was exported is reused after a barrier on each queue that it was used on.
//
// The size of a block is a multiple of 256 bytes, at least 256 in host memory and 512 in unified
// shared memory. So small requests take several times their size: a million of 64 bytes reserve 254 MiB
// on the host and 496 MiB as USM. Above 2 KiB a block exceeds the request by at most 12.5 %, above 32 KiB
// by at most 1.6 %.
//
// Idle memory returns to the upstream by age ([WithDecay]), above the marks of [WithRetention], by
// [Pool.Trim], before the pool grows if it can pay for the new segment, and before a request fails:
// in whole segments, and, if the upstream is a [Discarder], in whole pages of segments in use. The
// heap fills the lowest segment that fits, so that segments become empty.
//
// A Pool is a [Resource]; [New] on it allocates nothing on the Go heap. It is safe for
// concurrent use.
//
// docs/internals.md describes the parts, the states of a block and the order of the locks.
type Pool struct {
	// Fields that the fast path reads.
	home     *atomic.Uintptr // head of the list of cells that were freed elsewhere
	front    front.Front
	minUnits uintptr
	trace    *traceRing
	flags    uint32 // of every cell
	watched  bool   // traced or poisoned: no request takes the fast path
	poisons  bool   // see DebugEnv

	upstream   Resource
	sync       Synchronizer
	cells      *owner.List    // home of the cells
	place      *syclobj.Place // nil if the upstream has none
	number     uint32         // in the cells
	ordered    bool           // the upstream has a Synchronizer
	options    poolOptions
	placeQueue *syclobj.Queue // the default queue of the place, only to compare with

	account account.Account

	mu      poolMutex
	heap    heap.Heap
	pending pending.Set
	closed  bool
	leaked  bool // closed while blocks were in use

	purging purge.Purger

	growing chan struct{} // a semaphore: its holder asks the upstream for a segment

	reclaim  reclaim  // guarded by mu
	waitlist waitlist // guarded by mu

	tenants     atomic.Pointer[[]*Tenant] // by number, copied on write; number 0 is no tenant
	limits      []*Limit                  // between the pool and its memory, outermost first
	budgets     []*sharedBudget           // of all limits that its memory counts in, also of those behind other resources
	poolBelow   bool                      // the upstream uses another pool
	deviceSized deviceSized               // nil where the upstream does not know its device
	device      string                    // whose memory it is: see deviceOf
}

// PoolOption changes how a pool behaves.
type PoolOption func(*poolOptions)

type poolOptions struct {
	name       string
	minSegment uintptr
	cache      int64
	high, low  uint64 // bytes out of use
	decay      time.Duration
	limit      uint64
	onOOM      func(*OutOfMemoryError) bool
	traceSize  int
}

// WithName names the pool in reports.
func WithName(name string) PoolOption { return func(o *poolOptions) { o.name = name } }

// WithSegment sets the least size of a segment in bytes; the default is 2 MiB.
func WithSegment(bytes uintptr) PoolOption { return func(o *poolOptions) { o.minSegment = bytes } }

// WithCache bounds the bytes of free blocks that the pool caches by size class, for all
// processors together; 0 caches nothing. Each processor may exceed the bound by the one
// block that it is freeing.
//
// The default bound is fifteen sixteenths of the bytes of segments, and at least 32 MiB. Idle segments
// that serve only large requests do not count.
// A pool evicts its cached blocks before it takes a segment that they could save.
func WithCache(bytes int64) PoolOption { return func(o *poolOptions) { o.cache = max(bytes, 0) } }

// WithDecay sets how long memory stays idle before it goes back to the upstream; the
// default is 10 seconds, 0 keeps it until [Pool.Trim]. It goes back after d to 1.5 d, and at most two
// ticks of the background goroutine (250 ms) later, wherever it was: cached blocks, whole segments,
// and, if the upstream is a [Discarder], the pages of free blocks in segments that are in use.
func WithDecay(d time.Duration) PoolOption { return func(o *poolOptions) { o.decay = d } }

// decayTicks returns a time in ticks, rounded up: 0 ticks mean that nothing decays.
func decayTicks(d time.Duration) int64 {
	ticks := int64(d / tickTime)
	if d%tickTime > 0 {
		ticks++
	}
	return ticks
}

// WithRetention bounds the bytes of segments without a block in use. When there are more
// than high, the segments that have been idle longest go back to the upstream until at most
// low bytes are left. By default memory goes back by age alone.
func WithRetention(high, low uint64) PoolOption {
	return func(o *poolOptions) { o.high, o.low = high, min(low, high) }
}

// WithLimit bounds the bytes that the pool takes from its upstream.
func WithLimit(bytes uint64) PoolOption { return func(o *poolOptions) { o.limit = bytes } }

// OnOutOfMemory sets a function that is called before a request fails. If it returns true,
// the request is tried once more. It may release buffers, and must not allocate from the
// pool.
func OnOutOfMemory(f func(*OutOfMemoryError) bool) PoolOption {
	return func(o *poolOptions) { o.onOOM = f }
}

// WithTrace records the last n actions of the pool for its snapshot.
func WithTrace(n int) PoolOption { return func(o *poolOptions) { o.traceSize = n } }

// deviceSized is an upstream that knows how much memory its device has, in bytes.
type deviceSized interface{ DeviceTotal() uint64 }

// NewPool returns a pool that takes segments from an upstream. It does not own the upstream:
// close the pool first, then the upstream.
func NewPool(upstream Resource, options ...PoolOption) *Pool {
	upstream = present(upstream)
	o := poolOptions{
		minSegment: defaultSegment, cache: front.DefaultCache, decay: defaultDecay,
		high: math.MaxUint64,
	}
	for _, option := range options {
		option(&o)
	}
	o.minSegment = sysmem.RoundUp(min(max(o.minSegment, unit), maxSegment), unit)
	place := upstream.Place()
	p := &Pool{upstream: upstream, place: place, options: o, growing: make(chan struct{}, 1), minUnits: 2}
	if o.limit != 0 {
		p.upstream = NewLimit(upstream, o.limit)
	}
	p.front.Init(o.cache)
	cells := heap.Cells{}
	if place == nil || place.IsHost() {
		p.minUnits = 1
	} else {
		cells.Place = uintptr(place.Ref())
		p.placeQueue, _ = place.Queue() // nil without a runtime: then none is skipped
	}
	if o.traceSize > 0 {
		p.trace = &traceRing{entries: make([]TraceEntry, o.traceSize)}
	}
	p.mu.upstream, p.mu.returned.L = p.upstream, &p.mu.Mutex
	rankLocks(p)
	p.limits, p.budgets = limitsOf(p.upstream), budgetsOf(p.upstream)
	_, p.poolBelow = As[*Pool](p.upstream)
	p.deviceSized, _ = As[deviceSized](p.upstream)
	p.device = deviceOf(place)
	p.sync, p.ordered = As[Synchronizer](upstream)
	p.flags = flagsOf(upstream, place)
	p.poisons = debug.Poison && p.flags&owner.HostReadable != 0
	p.watched = p.trace != nil || p.poisons
	if !p.ordered {
		p.sync = order.System
	}
	p.cells = owner.NewList(p.freeCell)
	p.home = p.cells.Head()
	addPool(p)
	cells.Home, cells.Resource, cells.Flags = p.cells, p.number, p.flags
	p.heap.Init(heap.Options{
		Cells:  cells,
		Shared: uint32(max(mostGrowth, o.minSegment) / unit),
		Decay:  heap.DecayAfter(decayTicks(o.decay)),
		High:   o.high, Low: o.low,
		Budget: &p.front.Budget, Drop: p.dropSegment, Emptied: p.last,
	})
	var discard func(address, size uintptr) error
	if d, ok := As[Discarder](p.upstream); ok {
		discard = d.Discard
	}
	p.purging.Init(&p.heap, &p.mu, discard, func(err error) { backgroundFailed("give pages of free memory back", err) })
	p.pending.Init(&p.mu, p.sync, pending.Owner{Complete: p.complete, Serve: p.serveWaiters, Report: p.reportStalled})
	keeper.add(p)
	return p
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.options.name }

// Place implements [Resource].
func (p *Pool) Place() *syclobj.Place { return p.place }

// Upstream returns the resource that allocates the segments.
func (p *Pool) Upstream() Resource { return p.upstream }

// annotate does the parts of an allocation that are rarely needed: tag, debugging, queue and
// the publication of the shard's counts.
func (p *Pool) annotate(c *owner.Cell, tag string, q *syclobj.Queue) {
	if c.Tag = account.TagNumber(tag); c.Tag != 0 {
		p.tagsOf(c).Add(c.Tag, int64(c.Size), 1)
	}
	stacks.NoteAllocation(c)
	if q != nil && q != p.placeQueue { // a cell without a queue means the default one
		order.NoteQueue(c, q)
	}
	if p.trace != nil {
		p.trace.add(traceAlloc, c)
	}
	p.poisonFresh(c)
	p.publishShard()
}

// freeCell frees the block of a cell without references. The home list calls it, and Release
// where its fast path does not apply.
func (p *Pool) freeCell(c *owner.Cell) {
	if p.watched || !c.Plain(p.flags) && !c.Plain(p.flags|owner.Charged) {
		p.slowFree(c)
		return
	}
	p.cache(c, block.Class(c))
}

// afterPut does the parts of a free that are rarely needed: it publishes counts, evicts
// blocks above the shard's bound, and moves a full magazine to the depot. It leaves the
// shard.
func (p *Pool) afterPut(s *front.Shard, k int) {
	c, full, surplus := p.front.AfterPut(s, k)
	if c != (front.Change{}) {
		p.account.Publish(c)
	}
	if full.N == 0 && surplus.Empty() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heap.Spill(full, k)
	if p.heap.DissolveStack(surplus) {
		p.heap.YieldDepot()
	}
	p.serveWaiters()
}

// cache puts a reusable block into the front. A block without a class, or of a processor
// without a shard, goes to the depot or the heap. The bytes of a tenant's block become credit of
// the tenant on the shard.
func (p *Pool) cache(c *owner.Cell, k int) {
	var s *front.Shard
	if k < block.NoClass {
		s = p.front.Enter()
	}
	number := block.Tenant(c)
	switch {
	case s == nil && number != 0:
		p.slowFree(c)
		return
	case s == nil:
		p.mu.Lock()
		p.account.Uncount(c, k)
		p.heap.Cache(c, k)
		p.serveWaiters()
		p.mu.Unlock()
		return
	}
	surplus := int64(0)
	if number != 0 {
		c.ResetFlags(p.flags)
		block.SetTenant(c, 0)
		surplus = s.Shares[number].GiveCredit(block.ClassBytes[k], c.Requested)
	}
	s.Put(k, c)
	s.CountPut(k, c)
	if s.NeedsWork(k) {
		p.afterPut(s, k)
	} else {
		s.Leave()
	}
	if surplus != 0 && p.tenant(number).discharge(surplus) {
		p.serveTenant()
	}
}

// publishShard publishes the counts of the caller's shard if there is enough.
func (p *Pool) publishShard() {
	if c := p.front.TakeChange(); c != (front.Change{}) {
		p.account.Publish(c)
	}
}

// Allocate implements [Resource]. The memory is ready for any queue and for the host,
// because a Block has no record of pending work. Therefore Request.Queue is ignored.
func (p *Pool) Allocate(r Request) (Block, error) {
	return newBlock(p, r)
}

// newBlock returns a buffer of a pool or tenant as a Block, which is released by Pool.Free.
func newBlock(from Resource, r Request) (Block, error) {
	r.Queue = nil
	b, err := New(from, r)
	if err != nil {
		return Block{}, err
	}
	c := b.ref.Cell()
	if c.Tag != 0 {
		c.SetFlags(owner.Lent)
	}
	return Block{
		Address: c.Address, Size: uintptr(c.Size), Requested: r.Size, Align: r.Alignment(),
		Cookie: uint64(c.Index())<<32 | uint64(b.ref.Generation()),
	}, nil
}

// Free implements [Resource]. It panics if the block is not of this pool or was already
// freed.
func (p *Pool) Free(b Block) {
	index := uint32(b.Cookie >> 32)
	if _, used := owner.Capacity(); index == 0 || int(index) > used {
		panic(misuse("Pool.Free", "the block at %#x is not of this pool", b.Address))
	}
	c := owner.At(index)
	r := owner.MakeRef(c, uint32(b.Cookie))
	if !r.Valid() || c.Resource != p.number || c.Address != b.Address {
		panic(misuse("Pool.Free", "the block at %#x is not of this pool, or was freed before", b.Address))
	}
	if b.Event != 0 {
		if c.Queue() == 0 && (order.RetainQueue(b.Queue) || p.place == nil || p.place.IsHost()) {
			c.SetQueue(b.Queue)
		}
		// The user holds the block until Release. If the events cannot be joined, wait here.
		if order.AddEvent(p.sync, c, b.Event, false) != nil {
			_ = p.sync.WaitEvent(b.Event)
			p.sync.ReleaseEvent(b.Event)
		}
	}
	Buffer{ref: r}.Release()
}

// LeakError is the error of Close when buffers of the pool are still in use.
type LeakError struct {
	Pool    string
	Buffers []LiveBuffer
}

// Error gives the number and size of the buffers, and the stack of the first if known.
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

// Close waits for pending work, gives all idle memory back and closes the pool. Later
// requests fail with ErrClosed. If buffers are in use, Close returns a [*LeakError] that
// lists them. They stay valid, and their memory goes back to the upstream when they are
// released. Close may be called again.
func (p *Pool) Close() error {
	emptyFronts()
	p.cells.Sync()
	p.pending.AwaitAll()
	p.purging.Mu.Lock() // so that every free block is there
	defer p.purging.Mu.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.heap.Shut()
	p.front.Close()
	p.endWaits()
	p.flush()
	p.heap.Release(0)
	var live []LiveBuffer
	p.eachUsed(func(f owner.Facts) {
		if b, ok := describe(f); ok {
			live = append(live, b)
		}
	})
	// Besides the buffers in use, other goroutines may be releasing some. While a segment
	// is left, cells of its blocks return to this pool.
	lingers := p.heap.Reserved() > 0
	p.leaked = lingers
	if !lingers {
		removePool(p)
	}
	p.mu.awaitReturned()
	p.mu.Unlock()
	keeper.remove(p, lingers)
	if len(live) > 0 {
		return &LeakError{Pool: p.options.name, Buffers: live}
	}
	return nil
}

// last removes a closed pool from the tables when its last segment has gone back. p.mu is
// held.
func (p *Pool) last() {
	if p.leaked {
		p.leaked = false
		removePool(p)
	}
}

// dropSegment hands a segment to the upstream, which gets it when p.mu is released. p.mu is held.
func (p *Pool) dropSegment(s heap.Segment) {
	if p.trace != nil {
		p.trace.addSegment(traceSegmentFree, s.Address, s.Size)
	}
	b := Block{Address: s.Address, Size: s.Size, Requested: s.Requested, Align: s.Align, Cookie: s.Cookie}
	p.mu.dropped = append(p.mu.dropped, b)
}

// poolMutex is the lock of a pool. Segments that are dropped while it is held are freed
// by Unlock after the lock is released, because the upstream may be slow.
type poolMutex struct {
	block.Mutex
	upstream  Resource
	dropped   []Block   // the next Unlock frees them
	returning int       // goroutines that are freeing segments
	returns   uint64    // how many have finished
	returned  sync.Cond // signals a change of returns
}

// Unlock releases the lock and then frees the dropped segments.
func (m *poolMutex) Unlock() {
	if len(m.dropped) == 0 {
		m.Mutex.Unlock()
		return
	}
	dropped := m.dropped
	m.dropped = nil
	m.returning++
	m.Mutex.Unlock()
	defer func() {
		m.Mutex.Lock()
		m.returning--
		m.returns++
		upstreamFrees.Add(1)
		m.returned.Broadcast()
		m.Mutex.Unlock()
	}()
	freeEach(m.upstream, dropped)
}

// freeEach frees all blocks, also if the upstream panics for one of them. The panic goes on
// afterwards.
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

// awaitReturned waits until as many goroutines have finished freeing segments as are doing
// so now, and reports whether there were any. It waits only for calls of Free, not for
// memory or a device. The lock is held on entry and return, but not during the wait.
func (m *poolMutex) awaitReturned() (any bool) {
	if len(m.dropped) > 0 { // free these here, not in a later Unlock of another goroutine
		m.Unlock()
		m.Lock()
	}
	end := m.returns + uint64(m.returning)
	for ; m.returning > 0 && m.returns < end; any = true {
		m.returned.Wait()
	}
	return any
}
