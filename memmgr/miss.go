package memmgr

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/heap"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
)

var errTooLarge = errors.New("larger than any memory this pool could manage")

// errNoRoom is the refusal of a limit that has less room than a request needs.
var errNoRoom error = &OutOfMemoryError{Err: errLimit}

var errSoft = errors.New("the tenant has more than its soft limit, and other requests wait")

// errOvertakes ends extend when other requests began to wait meanwhile. Callers never see it.
var errOvertakes = errors.New("other requests wait")

// unit is the unit of sizes in the heap, in bytes.
const unit = block.Unit

// maxSegment is the largest segment in bytes: 31 bits number its units, and on 32-bit
// systems it is at most half of the address space.
const maxSegment uintptr = min(1<<31*unit, math.MaxUint/2+1)

// want is a request in the pool's own terms.
type want struct {
	r     Request // a copy: a pointer would keep requests on the Go heap
	class int
	units uint32 // rounded to the size class
	least uint32 // units without that rounding
	align uint32 // units

	tenant  *Tenant // the account that is charged, nil for the pool's own
	amount  int64   // the charge
	owes    bool    // the charge was given back while the request waits
	waits   bool    // it is in a line
	returns uint64  // poolMutex.returns when the upstream was asked
}

// leastClass returns the class of a block of least units.
func (w *want) leastClass() int {
	if w.least == w.units {
		return w.class
	}
	return block.NoClass
}

// wantFor checks a request and puts it in the pool's terms.
func (p *Pool) wantFor(w *want, r *Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	units := max((r.Size+unit-1)/unit, p.minUnits)
	if units > maxSegment/unit || r.Alignment() > maxSegment {
		return &OutOfMemoryError{Request: *r, Place: p.Place(), Rounded: uint64(units) * unit, Err: errTooLarge}
	}
	w.r, w.class = *r, block.NoClass
	w.units, w.least, w.align = uint32(units), uint32(units), uint32(max(r.Alignment()/unit, 1))
	if units <= block.MaxClassUnits && w.align == 1 {
		w.class = block.ClassFor(units)
		w.units = block.ClassUnits[w.class]
		if w.units != w.least && !p.couldServe(p.segmentNeed(w)) { // near a limit the rounding may not fit
			w.class, w.units = block.NoClass, w.least
		}
	}
	return nil
}

// slowBuffer serves a request that the fast path did not. t is the tenant to charge, nil for none.
func (p *Pool) slowBuffer(request Request, t *Tenant) (Buffer, error) {
	var w want
	if err := p.wantFor(&w, &request); err != nil {
		return Buffer{}, err
	}
	if t != nil {
		return t.miss(&w)
	}
	return p.miss(&w)
}

// miss gives a request a block that the fast path did not find, and its shard a magazine, so that the next
// requests need no lock.
func (p *Pool) miss(w *want) (Buffer, error) {
	since, stands := p.lockTimed()
	if p.closed {
		p.mu.Unlock()
		return Buffer{}, p.closedError()
	}
	c := p.findNow(w)
	if c == nil && p.pending.UnsettledBytes(p.cudaSlack()) >= uint64(w.least)*unit { // before the pool grows
		p.mu.Unlock()
		_ = p.pending.SettleSoon(cmp.Or(w.r.Context, context.Background()), p.cudaSlack())
		p.mu.Lock()
		c = p.findNow(w)
	}
	if c == nil {
		since, stands = now(), 1
		var err error
		if c, err = p.search(w); err != nil {
			p.account.Slow.Add(now()-since, stands)
			return Buffer{}, err
		}
	}
	p.heap.NoteSplit()
	p.account.Count(c, block.Class(c), w.r.Size)
	stock := p.restock(w)
	p.mu.Unlock()
	if stock.N != 0 {
		if back := p.front.Stock(stock, w.class); back.N != 0 {
			p.mu.Lock()
			p.heap.Spill(back, w.class)
			p.serveWaiters() // that began to wait meanwhile
			p.mu.Unlock()
		}
	}
	b := p.handOver(c, w)
	if stands != 0 {
		p.account.Slow.Add(now()-since, stands)
	}
	return b, nil
}

// cudaSlack returns the bytes of memory that libraries of CUDA were shown and that may wait while the pool grows.
func (p *Pool) cudaSlack() uint64 {
	const part = 16 // of the device's memory
	if d := p.deviceSized; d != nil && d.DeviceTotal() != 0 {
		return d.DeviceTotal() / part
	}
	return pending.CUDASlack
}

// search serves a request that found no block at hand: from the caches and from a new segment ([Pool.extend]), and
// again after each step that may free memory: [Pool.reclaimOwn], [Pool.reclaimOthers], and the callback of
// [OnOutOfMemory], which begins the search again. A request with a context then waits. If there is no callback, it
// waits instead of taking the steps: the poller takes them for all waiters. p.mu is held, and released if the search
// fails.
func (p *Pool) search(w *want) (*owner.Cell, error) {
	var refusal error // of the upstream
	step, gave, callback := 0, false, p.options.onOOM
	for ; ; p.mu.Lock() {
		behind, yields := p.standsBehind(w)
		if behind || p.growthIsVain(w) {
			p.mu.Unlock()
			return p.await(w, refusal)
		}
		if yields {
			p.mu.Unlock()
			return nil, p.fail(w, errSoft)
		}
		c, err := p.extend(w, refusal, gave)
		if errors.Is(err, errOvertakes) {
			continue
		}
		if err == nil || !ranOut(err) {
			return c, err
		}
		refusal = err
		switch {
		case ended(w.r.Context):
			return nil, p.fail(w, w.r.Context.Err())
		case callback == nil && p.mayWait(w):
			return p.await(w, refusal)
		case step == 0:
			step = 1
			p.reclaimOwn()
		case step == 1:
			step = 2
			if gave = p.reclaimOthers(p.segmentNeed(w)); gave {
				continue
			}
			fallthrough
		default:
			gave = false
			// Other goroutines release such memory, and get it, meanwhile.
			for again := true; again; again = p.settle(w.r.Context) {
				if c = p.lookAgain(w); c != nil {
					return c, nil
				}
			}
			if callback == nil {
				return nil, p.fail(w, refusal)
			}
			if callback(p.refuse(w, refusal)) {
				step, refusal = 0, nil
			}
			callback = nil
		}
	}
}

// lookAgain takes a block that was freed while the upstream was asked. p.mu is held on return if it found one.
func (p *Pool) lookAgain(w *want) (c *owner.Cell) {
	p.mu.Lock()
	if c = p.findNow(w); c == nil {
		c = p.findAny(w)
	}
	if c == nil {
		p.mu.Unlock()
	}
	return c
}

// handOver makes a block the buffer of a request.
func (p *Pool) handOver(c *owner.Cell, w *want) Buffer {
	c.Requested = uint64(w.r.Size)
	if w.tenant != nil {
		w.tenant.mark(c)
	}
	block.SetState(c, block.InUse)
	b := Buffer{ref: c.Renew()}
	if w.r.Tag != "" || w.r.Queue != nil || p.watched || stacks.Depth.Load() != 0 {
		p.annotate(c, w.r.Tag, w.r.Queue)
	}
	return b
}

func (p *Pool) closedError() error {
	return &OpError{Op: "Pool.Allocate", Place: p.Place(), Kind: ErrClosed}
}

// standsBehind reports whether a request must queue behind waiters, and whether it is
// refused because it cannot queue while waiters have precedence. p.mu is held.
func (p *Pool) standsBehind(w *want) (behind, yields bool) {
	// During a reservation only the waiters ask the upstream.
	behind = p.waitsBehind(w) || p.waitlist.reserved.of != nil && p.mayWait(w)
	return behind, !behind && p.waitlist.n > 0 && p.yieldsFirst(w)
}

// growthIsVain reports whether a request with a context has nothing to gain from asking the
// upstream: another one is asking it, and the limits have no room for this one. In the queue of
// [Pool.beginGrowth] it would not see memory that is freed. p.mu is held.
func (p *Pool) growthIsVain(w *want) bool {
	if len(p.growing) == 0 || !p.mayWait(w) {
		return false
	}
	tight, room := p.limitRoom()
	return tight != nil && room < p.segmentNeed(w)
}

// mayWait reports whether a request has a context and could ever be served.
func (p *Pool) mayWait(w *want) bool {
	return w.r.Context != nil && p.couldServe(p.segmentNeed(w))
}

// couldServe reports whether the limits and the device have so many bytes at all.
func (p *Pool) couldServe(need uint64) bool {
	for _, l := range p.limits {
		if need > l.Bytes() {
			return false
		}
	}
	d := p.deviceSized
	return d == nil || d.DeviceTotal() == 0 || need <= d.DeviceTotal()
}

// beginGrowth lets one goroutine at a time ask the upstream. The next one first looks at
// the memory that the one before it got.
func (p *Pool) beginGrowth(ctx context.Context) error {
	block.CheckRank(block.RankGrowing)
	select {
	case p.growing <- struct{}{}:
		return nil
	default:
	}
	defer order.ReleaseLock()()
	if ctx == nil {
		p.growing <- struct{}{}
		return nil
	}
	select {
	case p.growing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ended reports whether a request's context is done; nil never is.
func ended(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }

// endGrowth ends beginGrowth, and wakes the poller, which may want to ask.
func (p *Pool) endGrowth() {
	<-p.growing
	p.waitlist.signalPoller()
}

// extend serves a request from the cached blocks or from a new segment. After a refusal of the upstream it also takes
// blocks that other requests should have, and asks again only if the upstream may have more memory: if other pools
// gave some, or segments went back that the upstream did not have when it was asked.
//
// Many requests may queue in [Pool.beginGrowth]. Each looks at the waiters again: otherwise these requests would
// pass freed blocks on among themselves, and a large waiter would get none. p.mu is held, and released if it fails.
func (p *Pool) extend(w *want, refusal error, gave bool) (c *owner.Cell, err error) {
	again := refusal != nil
	select {
	case p.growing <- struct{}{}: // without waiting, so the order of the locks does not matter
	default:
		p.mu.Unlock()
		if err := p.beginGrowth(w.r.Context); err != nil {
			return nil, err
		}
		p.mu.Lock()
		if behind, yields := p.standsBehind(w); behind || yields {
			p.mu.Unlock()
			p.endGrowth()
			return nil, errOvertakes
		}
		again = true // another goroutine may have got a segment meanwhile
	}
	defer p.endGrowth()
	size, need := p.segmentFor(w)
	room := uint64(0)
	if refusal != nil {
		size, room = need, uint64(need)-1 // the upstream has at most that
		if tight, left := p.limitRoom(); tight != nil {
			room = min(room, left)
		}
	}
	if again {
		c = p.findNow(w)
	}
	if c == nil {
		c = p.findInCaches(w, room)
	}
	if c == nil && refusal != nil {
		c = p.findAny(w)
	}
	switch {
	case c != nil:
	case refusal != nil:
		// First what evictions gave back, here or on other goroutines: it is room of the limits.
		gave = p.mu.awaitReturned() || gave || p.mu.returns != w.returns
		if tight, left := p.limitRoom(); tight == nil || left+p.heap.EmptyBytes() >= uint64(need) {
			gave = p.heap.Release(0) != 0 || gave
			p.mu.awaitReturned()
		}
	case p.waitlist.reserved.of == nil: // else empty segments may be reserved
		p.heap.Pay(uint64(size), uint64(need))
	}
	if c != nil {
		return c, nil
	}
	w.returns = p.mu.returns
	p.mu.Unlock() // no defer: the upstream may panic
	if refusal != nil && !gave {
		return nil, refusal
	}
	return p.grow(w, size, need)
}

// segmentUnit is the unit of the size of segments, in bytes.
const segmentUnit = 4096

// segmentNeed returns the size of the smallest segment that serves a request.
func (p *Pool) segmentNeed(w *want) uint64 {
	return uint64(sysmem.RoundUp(uintptr(w.units)*unit, segmentUnit))
}

// segmentFor returns the size of the next segment, and the least that serves
// the request. The segment has at most mostGrowth or WithSegment bytes more than the
// request. p.mu is held.
func (p *Pool) segmentFor(w *want) (size, need uintptr) {
	need = uintptr(p.segmentNeed(w))
	// A new segment has the alignment of the request, so none of it is lost. The bound
	// keeps segments so small that they become empty again.
	reserved := int64(p.heap.Reserved())
	growth := min(uintptr(reserved)/growthPart, mostGrowth)
	if reserved-p.account.Bytes.Now() > reserved/4 {
		growth /= 2 // much is free, but in pieces: the next request may fit again
	}
	growth = sysmem.RoundUp(max(p.options.minSegment, growth), 64<<10)
	if need <= growth {
		// A multiple of the request, so that equal requests leave no rest.
		if size = growth / need * need; size < p.options.minSegment {
			size += need
		}
		return min(size, maxSegment/need*need), need
	}
	// If the pool was in use by as much before, and enough is free in pieces, sizes vary: the segment
	// gets room for further requests. Otherwise it has the size of the request, so that a few large
	// buffers reserve no more.
	use := &p.account.Bytes
	if _, split := p.heap.Split(); split >= int64(need) && use.Now()+int64(need) <= use.Peak() {
		return min(need+growth, maxSegment), need
	}
	return need, need
}

// grow asks the upstream for a segment. After a refusal it asks for half as much, down to
// the bytes of the request. It reads the room of the limits first, so that a limit
// refuses at most once. p.mu is not held, and held on return if it got a block.
func (p *Pool) grow(w *want, size, need uintptr) (*owner.Cell, error) {
	if tight, room := p.limitRoom(); tight != nil && room < uint64(size) {
		if room < uint64(need) {
			return nil, errNoRoom
		}
		size = max(uintptr(room)&^(segmentUnit-1), need)
	}
	for {
		c, err := p.ask(w, size)
		if err == nil || size <= need || !ranOut(err) || ended(w.r.Context) {
			return c, err
		}
		size = max(size/2/need*need, need)
	}
}

// limitRoom returns the tightest limit between the pool and its memory, and the
// bytes that it has left; nil when there is none.
func (p *Pool) limitRoom() (tight *Limit, room uint64) {
	for _, l := range p.limits {
		if r := l.budget.room(); l.bounds() && (tight == nil || r < room) {
			tight, room = l, r
		}
	}
	return tight, room
}

// limitsOf lists the limits that bound the memory which a resource can still give: itself and
// its upstreams, up to the first resource that is not a limit. The room behind other resources,
// such as a pool, is unknown.
func limitsOf(r Resource) (all []*Limit) {
	for l, ok := r.(*Limit); ok; l, ok = l.from.(*Limit) {
		all = append(all, l)
	}
	return all
}

// budgetsOf lists the budgets of all limits that memory of a resource counts in.
func budgetsOf(r Resource) (all []*sharedBudget) {
	for l, ok := As[*Limit](r); ok; l, ok = As[*Limit](l.from) {
		all = append(all, l.budget)
	}
	return all
}

func (p *Pool) ask(w *want, size uintptr) (*owner.Cell, error) {
	start := now()
	// Whole pages can be returned, and hold blocks of every alignment up to a page without loss.
	r := Request{Size: size, Align: max(sysmem.PageSize, uintptr(w.align)*unit), Tag: "pool segment"}
	if !p.poolBelow { // a pool would wait, and block the growth of this one
		r.Context = w.r.Context
	}
	b, err := allocateFrom(p.upstream, r)
	p.account.Upstream.Add(now()-start, 1)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.closed { // meanwhile
		p.mu.Unlock()
		p.upstream.Free(b)
		return nil, p.closedError()
	}
	p.reclaim.requests, p.reclaim.refused = vainLimit{}, refusals{}
	b.Size = min(b.Size, maxSegment) &^ (unit - 1)
	if p.trace != nil {
		p.trace.addSegment(traceSegmentAlloc, b.Address, b.Size)
	}
	s := heap.Segment{Address: b.Address, Size: b.Size, Requested: b.Requested, Align: b.Align, Cookie: b.Cookie}
	c := p.heap.Grow(s, p.purging.Untouched(b.Address, b.Size), w.units, w.align, w.class)
	if c == nil {
		defer p.mu.Unlock()
		return nil, p.outOfMemory(w, owner.ErrNoMemory) // no cell is left
	}
	return c, nil
}

// ranOut reports whether an error means that memory, or the time to wait for it, ran out.
func ranOut(err error) bool {
	return errors.Is(err, ErrOutOfMemory) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// inUse estimates the bytes and blocks that users hold, without stopping the shards. It
// is exact while no goroutine allocates or frees.
func (p *Pool) inUse() (bytes, blocks int64) {
	bytes, blocks = p.front.Unpublished()
	return bytes + p.account.Bytes.Now(), blocks + p.account.Blocks.Now()
}

// refuse is outOfMemory for callers without the lock.
func (p *Pool) refuse(w *want, cause error) *OutOfMemoryError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outOfMemory(w, cause)
}

// fail counts a request that fails for good, and makes its error.
func (p *Pool) fail(w *want, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.Failures++
	if p.trace != nil {
		p.trace.put(TraceEntry{Action: traceOOM, Size: uint64(w.units) * unit})
	}
	return p.outOfMemory(w, cause)
}

// outOfMemory gives the whole account of a failure. p.mu is held.
func (p *Pool) outOfMemory(w *want, cause error) *OutOfMemoryError {
	p.account.PublishRest()
	bytes, blocks := p.inUse()
	_, pending := p.pending.Waiting()
	e := &OutOfMemoryError{
		Request: w.r, Place: p.Place(), Rounded: uint64(w.units) * unit,
		LargestFree: uint64(p.heap.Largest()),
		Allocated:   uint64(max(bytes, 0)),
		Reserved:    p.heap.Reserved(),
		Pending:     pending,
		Holders:     p.holders(bytes, blocks),
		Err:         reasonOf(cause),
	}
	if w.tenant != nil {
		e.Tenant = w.tenant.name
	}
	if tight, _ := p.limitRoom(); tight != nil {
		e.Limit = tight.Bytes()
	} else if l, ok := As[*Limit](p.upstream); ok && l.bounds() {
		e.Limit = l.Bytes()
	}
	if p.deviceSized != nil {
		e.DeviceTotal = p.deviceSized.DeviceTotal()
	}
	return e
}

// holders lists the biggest holders by tenant and tag, of so much in all.
func (p *Pool) holders(bytes, blocks int64) (all []Holder) {
	p.eachTenant(func(t *Tenant) {
		b, n := t.inUse()
		all = append(all, holdersOf(&t.tagged, t.name, b, n)...)
		bytes, blocks = bytes-b, blocks-n
	})
	return biggest(append(all, holdersOf(&p.account.Tagged, "", bytes, blocks)...))
}

// reasonOf returns the cause of an error of a limit or of this pool, so that the message
// contains each figure once.
func reasonOf(cause error) error {
	var oom *OutOfMemoryError
	if errors.As(cause, &oom) && (errors.Is(oom.Err, errLimit) || oom.Reserved != 0) {
		return oom.Err
	}
	return cause
}
