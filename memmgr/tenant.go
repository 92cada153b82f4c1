package memmgr

import (
	"errors"
	"math"
	"slices"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TenantOptions say how much of a pool a tenant may have.
type TenantOptions struct {
	// Soft is the number of bytes above which a tenant comes after the others while
	// anybody waits for memory; 0 for none.
	Soft uint64
	// Hard is the number of bytes that it never exceeds; 0 for none.
	Hard uint64
	// Weight is its share, to that of others who wait too; 0 counts as 1.
	Weight int
}

// Tenant is an account of its own with one pool: a [Resource] whose memory comes
// from the pool, counted and bounded apart from others'. What counts is the size of
// blocks, and a block counts until the work that was pending at its release is done.
// An allocation costs little more than one from the pool itself. Safe for concurrent
// use.
type Tenant struct {
	pool   *Pool
	name   string
	number uint32 // in the pool's list, and in the cells
	soft   uint64
	hard   uint64
	weight uint64
	step   int64 // bytes that a processor is credited with at a time
	line   waitLine
	tagged tagUse

	mu      rankedMutex // after the pool's
	charged uint64      // bytes in use, and credit of the processors
	tight   bool        // no processor has credit, or gets any
	epoch   uint32      // how often the credit was collected
	closed  bool
	central tenantCounts // what no processor's room counts
	ooms    int64
	peak    int64
	waiting int         // requests in line: they wait for memory and are not charged
	aside   uint64      // bytes that are reserved for one of them
	granted uint64      // bytes charged, ever
	queue   []*waiter   // wait for room below the hard limit, in order of arrival
	first   reservation // of room for the first of the queue
}

// tenantRoom is a tenant's account with one processor; the shard's owner changes it.
type tenantRoom struct {
	credit int64 // bytes that the processor may give out without asking
	most   int64 // of credit, beyond which it gives some back
	epoch  uint32
	tenantCounts
	_ [64]byte
}

// tenantCounts are sums over all times.
type tenantCounts struct {
	allocs, frees  uint64
	taken, given   uint64 // bytes
	asked, unasked uint64
}

func (a *tenantCounts) take(bytes int64, asked uint64) {
	a.allocs++
	a.taken += uint64(bytes)
	a.asked += asked
}

func (a *tenantCounts) give(bytes int64, asked uint64) {
	a.frees++
	a.given += uint64(bytes)
	a.unasked += asked
}

// NewTenant opens an account with the pool. Reports and errors show its name, which no
// other open tenant of the pool may have. The caller closes the tenant after use; its
// name is free from then on, even while some of its memory is still in use. Errors:
// ErrRequest for a name that is taken, for limits that contradict each other and for a
// negative weight; ErrClosed.
func (p *Pool) NewTenant(name string, o TenantOptions) (*Tenant, error) {
	switch {
	case o.Weight < 0:
		return nil, opError("Pool.NewTenant", ErrRequest, "tenant %q: a weight of %d; it is 1 or more, 0 for 1", name, o.Weight)
	case o.Hard != 0 && o.Soft > o.Hard:
		return nil, opError("Pool.NewTenant", ErrRequest, "tenant %q: a soft limit of %d bytes above the hard one of %d", name, o.Soft, o.Hard)
	}
	t := &Tenant{pool: p, name: name, soft: o.Soft, hard: o.Hard, weight: uint64(max(o.Weight, 1))}
	if t.soft == 0 {
		t.soft = math.MaxUint64
	}
	if t.hard == 0 {
		t.hard = math.MaxUint64
	}
	setRank(&t.mu, rankTenant)
	t.line.tenant, t.line.weight = t, t.weight
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &OpError{Op: "Pool.NewTenant", Place: p.Place(), Kind: ErrClosed}
	}
	taken := false
	p.eachTenant(func(other *Tenant) { taken = taken || other.name == name && !other.isClosed() })
	if taken {
		return nil, opError("Pool.NewTenant", ErrRequest, "the pool has an open tenant %q; close it first, or choose another name", name)
	}
	t.step = int64(min(maxCredit, t.hard/creditShare/uint64(len(p.front.shards))))
	p.addTenant(t)
	return t, nil
}

// addTenant gives a tenant a number, of one that is gone if there is any. p.mu is
// held.
func (p *Pool) addTenant(t *Tenant) {
	var all []*Tenant
	if old := p.tenants.Load(); old != nil {
		all = slices.Clone(*old)
	} else {
		all = []*Tenant{nil}
	}
	for i := 1; i < len(all) && t.number == 0; i++ {
		if all[i] == nil || all[i].isGone() {
			t.number = uint32(i)
		}
	}
	if t.number == 0 {
		t.number = uint32(len(all))
		all = append(all, nil)
	}
	if gone := all[t.number]; gone != nil {
		p.tagged.adopt(&gone.tagged)
	}
	all[t.number] = t
	p.tenants.Store(&all)
	p.front.stopShards()
	defer p.front.resumeShards()
	p.makeRooms()
	for s := range p.front.allShards() {
		s.rooms[t.number] = tenantRoom{}
	}
}

// makeRooms gives every shard a room for every tenant. p.mu is held and the shards
// are stopped.
func (p *Pool) makeRooms() {
	p.roomsMu.Lock()
	defer p.roomsMu.Unlock()
	tenants := *p.tenants.Load()
	for s := range p.front.allShards() {
		had := len(s.rooms)
		if had >= len(tenants) {
			continue
		}
		rooms := make([]tenantRoom, len(tenants), 2*len(tenants))
		copy(rooms, s.rooms)
		for i := had; i < len(rooms); i++ {
			if t := tenants[i]; t != nil {
				t.mu.Lock()
				rooms[i].epoch = t.epoch
				t.mu.Unlock()
			}
		}
		s.rooms = rooms
	}
}

// roomOn returns the tenant's room on a shard that the caller holds, nil when there is
// none yet.
func (t *Tenant) roomOn(s *shard) *tenantRoom {
	if int(t.number) < len(s.rooms) {
		return &s.rooms[t.number]
	}
	return nil
}

// isGone tells whether a tenant was closed and has all of its memory back.
func (t *Tenant) isGone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed && t.charged == 0 && t.waiting == 0
}

func (t *Tenant) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// tenant returns the one with a number.
func (p *Pool) tenant(number uintptr) *Tenant { return (*p.tenants.Load())[number] }

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

// Place implements [Resource].
func (t *Tenant) Place() *syclobj.Place { return t.pool.Place() }

// Upstream returns the pool.
func (t *Tenant) Upstream() Resource { return t.pool }

// Allocate implements [Resource] as [Pool.Allocate] does.
func (t *Tenant) Allocate(r Request) (Block, error) {
	r.Queue = nil
	b, err := t.newBuffer(r)
	if err != nil {
		return Block{}, err
	}
	return b.block(&r), nil
}

// Free implements [Resource] as [Pool.Free] does.
func (t *Tenant) Free(b Block) { t.pool.Free(b) }

// newBuffer is New for a tenant: the same short way, with the room of the tenant on
// the processor beside the pool's cache.
func (t *Tenant) newBuffer(request Request) (Buffer, error) {
	p := t.pool
	if p.home.Load() != 0 {
		p.origin.list.Drain()
	}
	if request.Size > maxClassUnits*unit || request.Align > unit || request.Align&(request.Align-1) != 0 || request.Queue != nil {
		return t.slowBuffer(request)
	}
	k := classOf(max((request.Size+unit-1)/unit, p.minUnits))
	id := pin.Pin()
	s := p.front.claim(id)
	if s == nil {
		s = p.front.claimOther(id)
	}
	if s == nil {
		pin.Unpin()
		return t.slowBuffer(request)
	}
	size := classBytes[k]
	if int(t.number) >= len(s.rooms) || s.rooms[t.number].credit < size {
		s.leave()
		return t.slowBuffer(request)
	}
	c := s.take(k)
	if c == nil {
		s.leave()
		return t.slowBuffer(request)
	}
	room := &s.rooms[t.number]
	room.credit -= size
	room.take(size, uint64(request.Size))
	s.countTake(k, uint64(request.Size))
	due := s.delta > peakStep<<deltaShift
	s.leave()
	c.Requested = uint64(request.Size)
	t.mark(c)
	setState(c, stateInUse)
	ref := c.Renew()
	if due || request.Tag != "" || p.watched || stackDepth.Load() != 0 {
		p.annotate(c, request.Tag, nil)
	}
	return Buffer{ref: ref}, nil
}

// mark writes the tenant into a cell that only the caller knows.
func (t *Tenant) mark(c *owner.Cell) {
	setChargedTenant(c, uintptr(t.number))
	c.ResetFlags(t.pool.flags | owner.Charged | c.Flags()&owner.Poisoned) // poisonFresh looks for that
}

// freeCharged takes a tenant's block back the short way, and tells whether it could.
func (p *Pool) freeCharged(c *owner.Cell) bool {
	k := uint(blockClass(c))
	if k >= numClasses || p.watched || !c.Plain(p.flags|owner.Charged) {
		return false
	}
	id := pin.Pin()
	s := p.front.claim(id)
	if s == nil {
		s = p.front.claimOther(id)
	}
	if s == nil {
		pin.Unpin()
		return false
	}
	number := chargedTenant(c)
	if int(number) >= len(s.rooms) {
		s.leave()
		return false
	}
	c.ResetFlags(p.flags)
	setChargedTenant(c, 0)
	s.put(int(k), c)
	s.countPut(int(k), c)
	room, back := &s.rooms[number], int64(0)
	room.give(classBytes[k], c.Requested)
	if room.credit += classBytes[k]; room.credit > room.most {
		back = room.credit - room.most/2
		room.credit -= back
	}
	if s.overtaken(int(k)) {
		p.afterPut(s, int(k))
	} else {
		s.leave()
	}
	if back != 0 {
		if t := p.tenant(number); t.discharge(back) {
			p.serveTenant()
		}
	}
	return true
}

// amount is what a block counts for, by what was asked and its class.
func (p *Pool) amount(requested uint64, class int) int64 {
	if class < noClass {
		return classBytes[class]
	}
	return int64(max((requested+unit-1)/unit, uint64(p.minUnits)) * unit)
}

// slowBuffer charges the tenant, waiting for room where it must, and then has the
// pool serve the request.
func (t *Tenant) slowBuffer(request Request) (Buffer, error) {
	p := t.pool
	w, err := p.wantFor(&request)
	if err != nil {
		return Buffer{}, err
	}
	amount := p.amount(uint64(request.Size), w.class)
	w.tenant, w.amount = t, amount
	if err := t.charge(&w); err != nil {
		return Buffer{}, err
	}
	if w.class != noClass {
		t.refill(amount)
	}
	b, err := p.miss(&w)
	if err != nil {
		if !w.owes {
			t.discharge(amount)
		}
		return Buffer{}, err
	}
	c := b.ref.Cell()
	got := p.amount(c.Requested, blockClass(c))
	t.mu.Lock()
	t.central.take(got, c.Requested)
	t.mu.Unlock()
	if got != amount {
		t.discharge(amount - got)
	}
	return b, nil
}

// refill credits the caller's processor with a portion, for the next requests.
func (t *Tenant) refill(size int64) {
	step := max(t.step, size)
	t.mu.Lock()
	if t.tight || t.closed || t.room() < max(uint64(step), t.hard/looseShare) {
		t.mu.Unlock()
		return
	}
	t.charged += uint64(step)
	epoch := t.epoch
	t.mu.Unlock()
	housed := true
	if s := t.pool.front.enter(); s != nil {
		room := t.roomOn(s)
		if housed = room != nil; housed && room.epoch == epoch && room.credit < step {
			room.credit += step
			room.most = 4 * step
			step = 0
		}
		s.leave()
	}
	if step != 0 {
		t.discharge(step)
	}
	if !housed { // a processor that came after the tenant
		p := t.pool
		p.mu.Lock()
		p.front.stopShards()
		p.makeRooms()
		p.front.resumeShards()
		p.mu.Unlock()
	}
}

// room is what is left below the hard limit. t.mu is held.
func (t *Tenant) room() uint64 { return t.hard - min(t.charged+t.aside, t.hard) }

// tighten collects the credit of all processors, so that the limit is exact. It
// reports whether there may have been any.
func (t *Tenant) tighten() bool {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	t.mu.Lock()
	if t.tight {
		t.mu.Unlock()
		return false
	}
	t.tight = true
	t.epoch++
	t.mu.Unlock()
	p.front.stopShards()
	defer p.front.resumeShards()
	p.makeRooms()
	credit := int64(0)
	for s := range p.front.allShards() {
		room := &s.rooms[t.number]
		credit += room.credit
		room.credit, room.most, room.epoch = 0, -1, t.epoch
	}
	t.mu.Lock()
	t.charged -= uint64(credit)
	t.mu.Unlock()
	return true
}

// discharge takes bytes off the account and charges requests of the queue. It reports
// whether requests of the tenant wait for memory.
func (t *Tenant) discharge(bytes int64) (waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.charged -= uint64(bytes)
	if len(t.queue) > 0 {
		t.admit()
	} else if t.tight && !t.closed && t.waiting == 0 && t.room() >= t.hard/looseShare {
		t.tight = false
	}
	return t.waiting > 0
}

// uncharge takes a block off its tenant's account whose work is done.
func (p *Pool) uncharge(c *owner.Cell) {
	if chargedTenant(c) == 0 {
		return
	}
	t := p.tenant(chargedTenant(c))
	setChargedTenant(c, 0)
	t.discharge(p.amount(c.Requested, blockClass(c)))
}

// noteGiven counts the release of a block by its user.
func (p *Pool) noteGiven(c *owner.Cell) {
	if chargedTenant(c) == 0 {
		return
	}
	t := p.tenant(chargedTenant(c))
	t.mu.Lock()
	t.central.give(p.amount(c.Requested, blockClass(c)), c.Requested)
	t.mu.Unlock()
}

// tagsOf returns the counts by tag that a cell belongs to.
func (p *Pool) tagsOf(c *owner.Cell) *tagUse {
	if chargedTenant(c) == 0 {
		return &p.tagged
	}
	return &p.tenant(chargedTenant(c)).tagged
}

// inUse is what the tenant is charged with, without credit, as well as can be told
// without stopping anybody.
func (t *Tenant) inUse() (bytes, blocks int64) {
	t.pool.roomsMu.Lock() // before the tenant's, as everywhere
	defer t.pool.roomsMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	bytes, blocks = int64(t.charged), int64(t.central.allocs-t.central.frees)
	for s := range t.pool.front.allShards() {
		credit, n := s.glanceAt(t.number)
		bytes, blocks = bytes-credit, blocks+n
	}
	t.peak = max(t.peak, bytes)
	return max(bytes, 0), max(blocks, 0)
}

// glanceAt reads a tenant's room on a shard that others may be working on.
//
//go:norace
func (s *shard) glanceAt(number uint32) (credit, blocks int64) {
	if !pin.Fast {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	if int(number) >= len(s.rooms) {
		return 0, 0
	}
	room := &s.rooms[number]
	return room.credit, int64(room.allocs - room.frees)
}

// overSoft tells whether the tenant has more than its soft limit.
func (t *Tenant) overSoft() bool {
	if t == nil || t.soft == math.MaxUint64 {
		return false
	}
	bytes, _ := t.inUse()
	return uint64(bytes) > t.soft
}

// Close ends the account: requests fail from now on, those who wait included. Memory
// in use stays valid and counts until it is back. Close may be called again.
func (t *Tenant) Close() error {
	t.endQueue(t.closedError())
	t.pool.mu.Lock()
	t.pool.endLine(&t.line, t.closedError())
	t.pool.mu.Unlock()
	t.tighten() // no credit is given any more
	return nil
}

// eachTenant calls f for the tenants of a pool, closed ones whose memory is not back
// included.
func (p *Pool) eachTenant(f func(*Tenant)) {
	if all := p.tenants.Load(); all != nil {
		for _, t := range *all {
			if t != nil {
				f(t)
			}
		}
	}
}

func (t *Tenant) closedError() error {
	return &OpError{Op: "Tenant.Allocate", Place: t.Place(), Kind: ErrClosed}
}

// Stats returns the counters of what the tenant has of the pool. Peaks are those
// that refusals, waits and calls of Stats saw.
func (t *Tenant) Stats() (s Stats) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front.stopShards()
	defer p.front.resumeShards()
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, bytes := t.central, int64(t.charged)
	for s := range p.front.allShards() {
		if rooms := s.rooms; int(t.number) < len(rooms) {
			r := &rooms[t.number]
			bytes -= r.credit
			sum.allocs, sum.frees = sum.allocs+r.allocs, sum.frees+r.frees
			sum.taken, sum.given = sum.taken+r.taken, sum.given+r.given
			sum.asked, sum.unasked = sum.asked+r.asked, sum.unasked+r.unasked
		}
	}
	t.peak = max(t.peak, bytes)
	s.Allocation = Stat{Allocated: int64(sum.allocs), Freed: int64(sum.frees)}
	s.Allocation.settle(0)
	s.AllocatedBytes = Stat{Allocated: int64(sum.taken), Freed: int64(sum.given)}
	s.AllocatedBytes.settle(0)
	s.RequestedBytes = Stat{Allocated: int64(sum.asked), Freed: int64(sum.unasked)}
	s.RequestedBytes.settle(0)
	s.ActiveBytes = Stat{Allocated: int64(sum.taken), Freed: int64(sum.taken) - bytes}
	s.ActiveBytes.settle(t.peak)
	s.NumOOMs, s.NumWaiting = t.ooms, int64(len(t.queue)+t.line.n)
	return s
}

// ResetPeaks makes every peak start over from the current value.
func (t *Tenant) ResetPeaks() {
	t.mu.Lock()
	t.peak = 0
	t.mu.Unlock()
	t.inUse()
}

var errTenant = errors.New("the tenant's hard limit is reached")

// refuse gives the account of a request that the hard limit refuses.
func (t *Tenant) refuse(w *want, cause error) *OutOfMemoryError {
	bytes, blocks := t.inUse()
	e := &OutOfMemoryError{
		Request: w.r, Place: t.Place(), Tenant: t.name, Rounded: uint64(w.units) * unit,
		Allocated: uint64(bytes), Limit: t.hard, Err: cause,
	}
	e.Holders = biggest(t.tagged.holders(t.name, bytes, blocks))
	t.mu.Lock()
	t.ooms++
	t.mu.Unlock()
	return e
}
