package memmgr

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"slices"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TenantOptions bound the memory that a tenant may use of its pool.
type TenantOptions struct {
	// Soft is a limit in bytes, 0 for none. While requests wait for memory, those of a
	// tenant above its soft limit are served last.
	Soft uint64
	// Hard is the most that the tenant may use, in bytes; 0 for no limit.
	Hard uint64
	// Weight is the tenant's share of the memory that is freed while requests of several
	// tenants wait, relative to their weights; 0 counts as 1.
	Weight int
}

// Tenant is a [Resource] that allocates from a pool and has limits and counters of its
// own. A tenant at its hard limit delays no other. Errors name the largest holders by tenant
// and tag. A tenant counts the sizes of blocks. A block counts until it was released and the work
// that was pending at its release is done. An allocation costs little more than one from
// the pool itself. Safe for concurrent use.
type Tenant struct {
	pool   *Pool
	name   string
	number uint32 // the index in Pool.tenants; cells name their tenant by it
	soft   uint64
	hard   uint64
	weight uint64
	step   int64 // bytes of credit that a shard gets at a time
	line   waitLine
	tagged account.TagUse

	mu       block.Mutex // after the pool's
	charged  uint64      // bytes in use, and the credit of all shards
	tight    bool        // no shard has credit, and none gets any
	epoch    uint32      // how often the credit was collected
	closed   atomic.Bool // changes with mu held; the fast path reads it on a shard, which Close stops afterwards
	central  front.Usage // of requests that no room counted, and of the shards once another tenant has the number
	ooms     int64
	peak     int64
	waiting  int         // requests that wait for memory; they are not charged meanwhile
	granted  uint64      // bytes charged since the tenant was opened
	queue    []*waiter   // requests that wait for room below the hard limit, in order of arrival
	reserved reservation // of room, for the first of the queue or for a waiter for memory
}

// NewTenant opens a tenant of the pool. Reports and errors show its name, which must
// differ from those of the pool's other open tenants. The caller closes the tenant after
// use; then its name may be used again, even while some of its memory is in use. Errors:
// ErrRequest if the name is in use, if the soft limit is above the hard one, and if the
// weight is negative; ErrClosed.
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
	block.SetRank(&t.mu, block.RankTenant)
	t.line.tenant, t.line.weight = t, t.weight
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &OpError{Op: "Pool.NewTenant", Place: p.Place(), Kind: ErrClosed}
	}
	taken := false
	p.eachTenant(func(other *Tenant) { taken = taken || other.name == name && !other.closed.Load() })
	if taken {
		return nil, opError("Pool.NewTenant", ErrRequest, "the pool has an open tenant %q; close it first, or choose another name", name)
	}
	t.step = int64(min(maxCredit, t.hard/creditShare/uint64(p.front.Len())))
	p.addTenant(t)
	return t, nil
}

// addTenant assigns a number to a tenant: that of a tenant that is gone, if there is one,
// else the next. p.mu is held.
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
	old := all[t.number]
	all[t.number] = t
	p.tenants.Store(&all)
	p.front.Stop()
	defer p.front.Resume()
	for s := range p.front.Shards() {
		if old != nil {
			old.mu.Lock()
			old.central.Add(s.Shares[t.number].Usage)
			old.mu.Unlock()
		}
		for int(t.number) >= len(s.Shares) {
			s.Shares = append(s.Shares, front.Share{})
		}
		s.Shares[t.number] = front.Share{}
	}
}

// isGone reports whether the tenant is closed and all of its memory is back.
func (t *Tenant) isGone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed.Load() && t.charged == 0 && t.waiting == 0
}

// shares iterates over the tenant's shares of the shards. There are none once another tenant has its number. Pool.mu
// is held.
func (t *Tenant) shares() iter.Seq2[*front.Shard, *front.Share] {
	return func(yield func(*front.Shard, *front.Share) bool) {
		if t.pool.tenant(uintptr(t.number)) != t {
			return
		}
		for s := range t.pool.front.Shards() {
			if !yield(s, &s.Shares[t.number]) {
				return
			}
		}
	}
}

// tenant returns the tenant with a number.
func (p *Pool) tenant(number uintptr) *Tenant { return (*p.tenants.Load())[number] }

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

// Place implements [Resource].
func (t *Tenant) Place() *syclobj.Place { return t.pool.Place() }

// Upstream returns the pool.
func (t *Tenant) Upstream() Resource { return t.pool }

// Allocate implements [Resource] as [Pool.Allocate] does.
func (t *Tenant) Allocate(r Request) (Block, error) { return newBlock(t, r) }

// Free implements [Resource] as [Pool.Free] does.
func (t *Tenant) Free(b Block) { t.pool.Free(b) }

// newBuffer is New for a tenant. Its fast path is that of the pool and charges the block
// to the tenant's credit on the shard.
func (t *Tenant) newBuffer(request Request) (Buffer, error) {
	p := t.pool
	if !owner.Empty(p.home) {
		p.cells.Drain()
	}
	if request.Size > block.MaxClassUnits*unit || request.Align > unit || request.Align&(request.Align-1) != 0 || request.Queue != nil {
		return p.slowBuffer(request, t)
	}
	k := block.ClassFor(max((request.Size+unit-1)/unit, p.minUnits))
	id := pin.Pin()
	s := p.front.Claim(id)
	if s == nil {
		if s = p.front.ClaimOther(id); s == nil {
			return p.slowBuffer(request, t)
		}
	}
	size := block.ClassBytes[k]
	share := &s.Shares[t.number]
	if share.Credit < size || t.closed.Load() { // the share of a closed tenant may be another one's
		s.Leave()
		return p.slowBuffer(request, t)
	}
	c := s.Take(k)
	if c == nil {
		if c = s.TakeSpare(k); c == nil {
			s.Leave()
			return p.slowBuffer(request, t)
		}
	}
	share.Credit -= size
	share.Take(size, uint64(request.Size))
	s.CountTake(k, uint64(request.Size))
	publish := s.Grew()
	s.Leave()
	c.Requested = uint64(request.Size)
	t.mark(c)
	block.SetState(c, block.InUse)
	ref := c.Renew()
	if publish || request.Tag != "" || p.watched || stacks.Depth.Load() != 0 {
		p.annotate(c, request.Tag, nil)
	}
	return Buffer{ref: ref}, nil
}

// mark charges a cell to the tenant. No other goroutine knows the cell yet.
func (t *Tenant) mark(c *owner.Cell) {
	block.SetTenant(c, uintptr(t.number))
	c.ResetFlags(t.pool.flags | owner.Charged | c.Flags()&owner.Poisoned) // poisonFresh reads Poisoned
}

// amount returns the bytes that a block of a class counts for.
func (p *Pool) amount(requested uint64, class int) int64 {
	if class < block.NoClass {
		return block.ClassBytes[class]
	}
	return int64(max((requested+unit-1)/unit, uint64(p.minUnits)) * unit)
}

// miss charges the tenant and then has the pool serve the request. It waits for room below the
// hard limit if the request has a context.
func (t *Tenant) miss(w *want) (b Buffer, err error) {
	p := t.pool
	amount := p.amount(uint64(w.r.Size), w.class)
	w.tenant, w.amount = t, amount
	if err := t.charge(w); err != nil {
		return Buffer{}, err
	}
	var c *owner.Cell
	if w.class != block.NoClass {
		t.refill(amount)
		if w.r.Queue == nil || p.pending.Unstalled.Load() == 0 {
			c = p.front.Take(w.class, w.r.Size)
		}
	}
	if c != nil {
		b = p.handOver(c, w)
	} else {
		defer func() { // also if the upstream or a callback panics
			if !b.ref.Valid() && !w.owes {
				t.discharge(amount)
			}
		}()
		if b, err = p.miss(w); err != nil {
			return Buffer{}, err
		}
	}
	c = b.ref.Cell()
	got := p.amount(c.Requested, block.Class(c))
	t.mu.Lock()
	t.central.Take(got, c.Requested)
	t.mu.Unlock()
	if got != amount {
		t.discharge(amount - got)
	}
	return b, nil
}

// refill gives the current shard credit for the next requests.
func (t *Tenant) refill(size int64) {
	step := max(t.step, size)
	t.mu.Lock()
	if t.tight || t.closed.Load() || t.roomFor(nil) < max(uint64(step), t.hard/looseShare) {
		t.mu.Unlock()
		return
	}
	t.charged += uint64(step)
	epoch := t.epoch
	t.mu.Unlock()
	if s := t.pool.front.Enter(); s != nil {
		if share := &s.Shares[t.number]; share.Epoch == epoch && share.Credit < step {
			share.Credit += step
			share.Most = 4 * step
			step = 0
		}
		s.Leave()
	}
	if step != 0 {
		t.discharge(step)
	}
}

// roomFor returns the bytes that are left below the hard limit and that are not reserved for
// another waiter than x, which may be nil. t.mu is held.
func (t *Tenant) roomFor(x *waiter) uint64 {
	used := t.charged
	if t.reserved.except(x) {
		used += uint64(t.reserved.of.w.amount)
	}
	return t.hard - min(used, t.hard)
}

// tighten takes the credit back from all shards, so that charged is exact. It reports
// whether the shards may have had credit.
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
	p.front.Stop()
	defer p.front.Resume()
	credit := int64(0)
	for _, share := range t.shares() {
		credit += share.Credit
		share.Credit, share.Most, share.Epoch = 0, -1, t.epoch
	}
	t.mu.Lock()
	t.charged -= uint64(credit)
	t.mu.Unlock()
	return true
}

// discharge subtracts bytes from the account. It reports whether requests of the tenant wait
// for memory.
func (t *Tenant) discharge(bytes int64) (waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.charged -= uint64(bytes)
	t.roomChanged()
	return t.waiting > 0
}

// roomChanged charges requests of the queue that have room now. Without a queue it may allow
// credit again. t.mu is held.
func (t *Tenant) roomChanged() {
	if len(t.queue) > 0 {
		t.admit()
	} else if t.tight && !t.closed.Load() && t.waiting == 0 && t.roomFor(nil) >= t.hard/looseShare {
		t.tight = false
	}
}

// tenantOf returns the tenant that is charged with a block, nil for none.
func (p *Pool) tenantOf(c *owner.Cell) *Tenant {
	if number := block.Tenant(c); number != 0 {
		return p.tenant(number)
	}
	return nil
}

// uncharge subtracts a block from its tenant's account when its device work is done.
func (p *Pool) uncharge(c *owner.Cell) {
	if t := p.tenantOf(c); t != nil {
		block.SetTenant(c, 0)
		t.discharge(p.amount(c.Requested, block.Class(c)))
	}
}

// noteGiven counts the release of a block in its tenant.
func (p *Pool) noteGiven(c *owner.Cell) {
	if t := p.tenantOf(c); t != nil {
		t.mu.Lock()
		t.central.Give(p.amount(c.Requested, block.Class(c)), c.Requested)
		t.mu.Unlock()
	}
}

// tagsOf returns the counts by tag that a cell belongs to.
func (p *Pool) tagsOf(c *owner.Cell) *account.TagUse {
	if t := p.tenantOf(c); t != nil {
		return &t.tagged
	}
	return &p.account.Tagged
}

// inUse estimates the bytes and blocks that are charged to the tenant, without credit. It
// does not stop the shards. Pool.mu is held.
func (t *Tenant) inUse() (bytes, blocks int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bytes, blocks = int64(t.charged), int64(t.central.Allocs-t.central.Frees)
	for s := range t.shares() {
		credit, n := s.ShareOf(t.number)
		bytes, blocks = bytes-credit, blocks+n
	}
	t.peak = max(t.peak, bytes)
	return max(bytes, 0), max(blocks, 0)
}

// overSoft reports whether the tenant uses more than its soft limit. t may be nil. Pool.mu is
// held.
func (t *Tenant) overSoft() bool {
	if t == nil || t.soft == math.MaxUint64 {
		return false
	}
	bytes, _ := t.inUse()
	return uint64(bytes) > t.soft
}

// Close ends the tenant: waiting and later requests fail with ErrClosed. Memory in use
// stays valid, and counts in the tenant until it is released. Close may be called again.
func (t *Tenant) Close() error {
	t.endQueue(t.closedError())
	t.pool.mu.Lock()
	t.pool.endLine(&t.line, t.closedError())
	t.pool.mu.Unlock()
	t.tighten() // and a closed tenant gets no credit again
	return nil
}

// eachTenant calls f for the pool's tenants, also for closed ones until their numbers are
// used again.
func (p *Pool) eachTenant(f func(*Tenant)) {
	if all := p.tenants.Load(); all != nil {
		for _, t := range *all {
			if t != nil {
				f(t)
			}
		}
	}
}

// Tenants returns the open tenants of the pool, in the order of their names. Safe for
// concurrent use.
func (p *Pool) Tenants() []*Tenant {
	var open []*Tenant
	p.eachTenant(func(t *Tenant) {
		if !t.closed.Load() {
			open = append(open, t)
		}
	})
	slices.SortFunc(open, func(a, b *Tenant) int { return cmp.Compare(a.name, b.name) })
	return open
}

func (t *Tenant) closedError() error {
	return &OpError{Op: "Tenant.Allocate", Place: t.Place(), Kind: ErrClosed}
}

// Stats returns the counters of the tenant. A peak is the largest value that a refusal, a
// wait or a call of Stats saw.
func (t *Tenant) Stats() (s Stats) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front.Stop()
	defer p.front.Resume()
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, bytes := t.central, int64(t.charged)
	for _, share := range t.shares() {
		bytes -= share.Credit
		sum.Add(share.Usage)
	}
	t.peak = max(t.peak, bytes)
	s.Allocation = newStat(sum.Allocs, sum.Frees, 0)
	s.AllocatedBytes = newStat(sum.Taken, sum.Given, 0)
	s.RequestedBytes = newStat(sum.Asked, sum.Unasked, 0)
	s.ActiveBytes = newStat(sum.Taken, sum.Taken-uint64(bytes), t.peak)
	s.NumOOMs, s.NumWaiting = t.ooms, int64(len(t.queue)+len(t.line.waiters))
	return s
}

var errTenant = errors.New("the tenant's hard limit is reached")

// outOfMemory gives the account of a request that the hard limit refuses.
func (t *Tenant) outOfMemory(w *want) *OutOfMemoryError {
	t.pool.mu.Lock()
	bytes, blocks := t.inUse()
	t.pool.mu.Unlock()
	e := &OutOfMemoryError{
		Request: w.r, Place: t.Place(), Tenant: t.name, Rounded: uint64(w.units) * unit,
		Allocated: uint64(bytes), Limit: t.hard, Err: errTenant,
	}
	e.Holders = biggest(holdersOf(&t.tagged, t.name, bytes, blocks))
	return e
}

// refuse counts a request that fails for good, at the tenant and at its pool, and makes its error.
func (t *Tenant) refuse(w *want, cause error) *OutOfMemoryError {
	t.mu.Lock()
	t.ooms++
	t.mu.Unlock()
	t.pool.mu.Lock()
	t.pool.account.Failures++
	t.pool.mu.Unlock()
	e := t.outOfMemory(w)
	e.Err = cause
	return e
}
