package memmgr

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
)

// Stat is one quantity over time. The field names are PyTorch's.
type Stat struct {
	Current   int64 `json:"current"`
	Peak      int64 `json:"peak"`      // largest Current
	Allocated int64 `json:"allocated"` // sum of all increases
	Freed     int64 `json:"freed"`     // sum of all decreases
}

// Stats are the counters of a resource, under PyTorch's names.
type Stats struct {
	Allocation         Stat // buffers in use
	Segment            Stat // segments held from the upstream
	Active             Stat // blocks that are in use, or free with device work pending
	InactiveSplit      Stat // free blocks in segments that are partly in use
	AllocatedBytes     Stat // of buffers in use
	ReservedBytes      Stat // of segments
	ActiveBytes        Stat // of the blocks that Active counts
	InactiveSplitBytes Stat // of the blocks that InactiveSplit counts
	RequestedBytes     Stat // requested sizes of buffers in use, before rounding

	NumAllocRetries int64 // searches for memory after the upstream refused
	NumOOMs         int64 // requests that failed, among them those that a tenant's limit refused
	NumStalled      int64 // blocks whose pending work had not ended after ten seconds
	NumDeviceAlloc  int64 // segments taken from the upstream
	NumDeviceFree   int64 // segments given back to it
	NumWaiting      int64 // requests that wait for memory now

	// AllocationLatency covers all requests, also refused ones. Requests that the cache of
	// a processor serves are not timed and count as the fastest. Of the requests that find
	// the pool's lock and a block free, one in 64 is timed.
	AllocationLatency Latency
	UpstreamLatency   Latency // calls of the upstream for segments
	WaitLatency       Latency // waits for memory, successful or not

	CachedBytes   int64 // free blocks that are cached by size class
	MetadataBytes int64 // Go and C memory of the pool's own data structures
}

// Map returns the counters under the names that PyTorch's memory_stats uses,
// such as "allocated_bytes.all.current".
func (s *Stats) Map() map[string]int64 {
	m := map[string]int64{}
	for name, n := range s.counters() {
		m[name] = *n
	}
	for name, l := range s.latencies() {
		m[name+".count"] = l.Count
		m[name+".p50_ns"], m[name+".p90_ns"] = int64(l.P50), int64(l.P90)
		m[name+".p99_ns"], m[name+".p999_ns"] = int64(l.P99), int64(l.P999)
		m[name+".max_ns"] = int64(l.Max)
	}
	for name, stat := range s.named() {
		m[name+".all.current"] = stat.Current
		m[name+".all.peak"] = stat.Peak
		m[name+".all.allocated"] = stat.Allocated
		m[name+".all.freed"] = stat.Freed
	}
	return m
}

func (s *Stats) named() map[string]*Stat {
	return map[string]*Stat{
		"allocation": &s.Allocation, "segment": &s.Segment, "active": &s.Active,
		"inactive_split": &s.InactiveSplit, "allocated_bytes": &s.AllocatedBytes,
		"reserved_bytes": &s.ReservedBytes, "active_bytes": &s.ActiveBytes,
		"inactive_split_bytes": &s.InactiveSplitBytes, "requested_bytes": &s.RequestedBytes,
	}
}

func (s *Stats) counters() map[string]*int64 {
	return map[string]*int64{
		"num_alloc_retries": &s.NumAllocRetries, "num_ooms": &s.NumOOMs, "num_stalled": &s.NumStalled,
		"num_device_alloc": &s.NumDeviceAlloc, "num_device_free": &s.NumDeviceFree,
		"num_waiting": &s.NumWaiting, "cached_bytes": &s.CachedBytes, "metadata_bytes": &s.MetadataBytes,
	}
}

func (s *Stats) latencies() map[string]*Latency {
	return map[string]*Latency{
		"allocation_latency": &s.AllocationLatency, "upstream_latency": &s.UpstreamLatency, "wait_latency": &s.WaitLatency,
	}
}

// Add adds the counters of another resource. The sum of two peaks is an upper bound of the
// common peak.
func (s *Stats) Add(o *Stats) {
	stats, counters, latencies := o.named(), o.counters(), o.latencies()
	for name, stat := range s.named() {
		other := stats[name]
		stat.Current += other.Current
		stat.Peak += other.Peak
		stat.Allocated += other.Allocated
		stat.Freed += other.Freed
	}
	for name, n := range s.counters() {
		*n += *counters[name]
	}
	for name, l := range s.latencies() {
		l.add(latencies[name])
	}
}

// gauge is a quantity with its peak.
type gauge struct {
	now, peak atomic.Int64
}

func (g *gauge) add(d int64) {
	if now := g.now.Add(d); d > 0 {
		g.raise(now)
	}
}

// raise lifts the peak to a value, if it is higher.
func (g *gauge) raise(seen int64) {
	for {
		peak := g.peak.Load()
		if seen <= peak || g.peak.CompareAndSwap(peak, seen) {
			return
		}
	}
}

// account is the part of a pool that counts the memory in use and times requests.
// A request that a shard serves is counted in the shard, and published here when the
// shard's counts have changed by 4 MiB; other requests are counted here.
type account struct {
	// Gauges may be changed and read without a lock.
	bytes, blocks, asked gauge // in use: bytes of blocks, blocks, requested bytes
	// Peaks of the blocks in use together with those that have device work pending. Only
	// [Pool.Stats] raises them, and only above the peaks of bytes and blocks.
	active, activeBlocks gauge

	// Latencies may be changed and read without a lock.
	slow, upstreamCalls, waits latencies // requests that no shard served, calls for segments, waits for memory

	tagged tagUse // by tag, without the tenants' blocks

	// Pool.mu guards the following. They count only requests that no shard served.
	allocs, frees          [block.NumClasses + 1]uint64 // by class
	large, unlarge         uint64                       // bytes of blocks without a class, allocated and freed
	requested, unrequested uint64                       // requested bytes, allocated and freed
	locked                 uint64                       // requests that found Pool.mu free
	unpublished            front.Change                 // not yet in blocks and asked
	peakBlocks, peakAsked  int64                        // peaks that are not yet in blocks and asked
	retries, ooms          int64
}

// publish adds a change to the gauges.
func (a *account) publish(c front.Change) {
	a.bytes.add(c.Bytes)
	a.blocks.add(c.Blocks)
	a.asked.add(c.Asked)
}

// publishOne is publish for one block. It updates at once only the gauge of bytes;
// publishRest does the rest. Pool.mu is held.
func (a *account) publishOne(bytes, blocks, asked int64) {
	o := &a.unpublished
	a.bytes.add(bytes)
	o.Blocks += blocks
	o.Asked += asked
	if blocks > 0 {
		a.peakBlocks = max(a.peakBlocks, a.blocks.now.Load()+o.Blocks)
		a.peakAsked = max(a.peakAsked, a.asked.now.Load()+o.Asked)
	}
}

// publishRest adds the changes that publishOne left. Pool.mu is held.
func (a *account) publishRest() {
	a.blocks.raise(a.peakBlocks)
	a.asked.raise(a.peakAsked)
	a.peakBlocks, a.peakAsked = 0, 0
	a.blocks.add(a.unpublished.Blocks)
	a.asked.add(a.unpublished.Asked)
	a.unpublished = front.Change{}
}

// count counts a block of class k that goes to a user. Pool.mu is held.
func (a *account) count(c *owner.Cell, k int, requested uintptr) {
	a.allocs[k]++
	a.requested += uint64(requested)
	if k >= block.NoClass {
		a.large += c.Size
	}
	a.publishOne(int64(c.Size), 1, int64(requested))
}

// uncount counts a block of class k that a user freed. Pool.mu is held.
func (a *account) uncount(c *owner.Cell, k int) {
	a.frees[k]++
	a.unrequested += c.Requested
	if k >= block.NoClass {
		a.unlarge += c.Size
	}
	a.publishOne(-int64(c.Size), -1, -int64(c.Requested))
}

// Stats returns the counters. Current values are exact at the time of the call, and so is
// the peak of reserved bytes. The peaks of allocated and active bytes may be up to 4 MiB
// for each processor too low, and the latter are updated only by calls of Stats.
func (p *Pool) Stats() Stats {
	var s Stats
	p.stopped(func() { s = p.stats() })
	return s
}

// stopped frees the blocks that C has dropped, and calls f while p.mu is held and the shards are
// stopped.
func (p *Pool) stopped(f func()) {
	emptyFronts()
	p.origin.list.Sync()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front.Stop()
	defer p.front.Resume()
	f()
}

// stats is Stats while p.mu is held and the shards are stopped.
func (p *Pool) stats() Stats {
	a := &p.account
	a.publishRest()
	var s Stats
	allocs, frees := a.allocs, a.frees
	asked, unasked := a.requested, a.unrequested
	for sh := range p.front.Shards() {
		s.CachedBytes += sh.Cached()
		a.publish(sh.TakeChange())
		got, released := sh.Requested()
		asked, unasked = asked+got, unasked+released
		for k := range block.NumClasses {
			got, released := sh.Uses(k)
			allocs[k], frees[k] = allocs[k]+got, frees[k]+released
		}
	}
	bytesIn, bytesOut := a.large, a.unlarge
	var blocksIn, blocksOut uint64
	for k := range allocs {
		blocksIn += allocs[k]
		blocksOut += frees[k]
		if k < block.NumClasses {
			bytesIn += allocs[k] * uint64(block.ClassUnits[k]) * unit
			bytesOut += frees[k] * uint64(block.ClassUnits[k]) * unit
		}
	}
	s.Allocation = newStat(blocksIn, blocksOut, a.blocks.peak.Load())
	s.AllocatedBytes = newStat(bytesIn, bytesOut, a.bytes.peak.Load())
	s.RequestedBytes = newStat(asked, unasked, a.asked.peak.Load())
	waiting, waitingBytes := p.pending.Waiting()
	a.activeBlocks.raise(a.blocks.now.Load() + int64(waiting))
	a.active.raise(a.bytes.now.Load() + int64(waitingBytes))
	s.Active = newStat(blocksIn, blocksOut-waiting, max(a.activeBlocks.peak.Load(), a.blocks.peak.Load()))
	s.ActiveBytes = newStat(bytesIn, bytesOut-waitingBytes, max(a.active.peak.Load(), a.bytes.peak.Load()))
	s.AllocationLatency = a.slow.summary(a.quick(s.Allocation.Allocated))
	s.UpstreamLatency, s.WaitLatency = a.upstreamCalls.summary(0), a.waits.summary(0)
	s.NumWaiting = int64(p.waitlist.n)
	p.eachTenant(func(t *Tenant) { s.NumWaiting += t.queued() })
	c := p.heap.Counts()
	s.Segment = Stat{Current: c.Segments, Peak: c.SegmentsPeak, Allocated: c.Added, Freed: c.Dropped}
	s.ReservedBytes = newStat(c.BytesAdded, c.BytesDropped, int64(c.ReservedPeak))
	s.InactiveSplit = Stat{Current: c.SplitBlocks, Peak: c.SplitPeak}
	s.InactiveSplitBytes = Stat{Current: c.SplitBytes, Peak: c.SplitBytesPeak}
	s.NumAllocRetries, s.NumOOMs = a.retries, a.ooms
	stalled, _ := p.pending.Stalled()
	s.NumStalled = int64(stalled)
	s.NumDeviceAlloc, s.NumDeviceFree = c.Added, c.Dropped
	s.CachedBytes += p.heap.Depot.Bytes()
	s.MetadataBytes = int64(p.heap.MetadataBytes() + uint64(p.front.Bytes()))
	return s
}

// ResetPeaks sets the peaks of the pool and of its tenants to the current values, as PyTorch's
// reset_peak_memory_stats does. It is safe to call while other goroutines allocate.
func (p *Pool) ResetPeaks() { p.stopped(p.resetPeaks) }

func (p *Pool) resetPeaks() {
	p.stats() // publishes what the shards counted
	a := &p.account
	for _, g := range []*gauge{&a.bytes, &a.blocks, &a.asked} {
		g.peak.Store(g.now.Load())
	}
	a.active.peak.Store(0) // Stats raises these two
	a.activeBlocks.peak.Store(0)
	p.heap.ResetPeaks()
	p.eachTenant(func(t *Tenant) {
		t.mu.Lock()
		t.peak = 0 // Stats raises it
		t.mu.Unlock()
	})
}

// newStat returns the Stat with these sums and with a peak that was seen before.
func newStat(allocated, freed uint64, peak int64) Stat {
	current := int64(allocated - freed)
	return Stat{Current: current, Peak: max(peak, current), Allocated: int64(allocated), Freed: int64(freed)}
}

// TotalStats returns the sum of the counters of all open pools.
func TotalStats() Stats {
	var total Stats
	for _, p := range Pools() {
		s := p.Stats()
		total.Add(&s)
	}
	return total
}

// mostTags bounds the tags that are told apart; see [Request.Tag]. Numbers of tags begin at 1.
const (
	mostTags = 1024
	otherTag = mostTags + 1 // of all further tags
)

// tags numbers the tags, so that the cell of a block can contain one. Tags are never removed.
var tags struct {
	mu     sync.Mutex
	number sync.Map // string to uint32
	n      atomic.Uint32
	names  [otherTag + 1]atomic.Pointer[string]
}

func init() {
	none, other := "", "other"
	tags.names[0].Store(&none)
	tags.names[otherTag].Store(&other)
}

// tagNumber returns the number of a tag, 0 for "". It adds a tag that has no number.
func tagNumber(tag string) uint32 {
	if tag == "" {
		return 0
	}
	if n := findTag(tag); n != 0 {
		return n
	}
	if tags.n.Load() == mostTags {
		return otherTag
	}
	tags.mu.Lock()
	defer tags.mu.Unlock()
	n := findTag(tag)
	switch {
	case n != 0:
		return n
	case tags.n.Load() == mostTags:
		return otherTag
	}
	n = tags.n.Add(1)
	name := tag // a copy, so that the argument stays on the stack
	tags.names[n].Store(&name)
	tags.number.Store(tag, n)
	return n
}

// findTag returns the number of a tag, 0 if it has none.
func findTag(tag string) uint32 {
	n, _ := tags.number.Load(tag)
	number, _ := n.(uint32)
	return number
}

// tagName returns the tag with a number.
func tagName(n uint32) string {
	if n > otherTag || tags.names[n].Load() == nil { // read beside a change of the cell
		return ""
	}
	return *tags.names[n].Load()
}

// tagUse counts blocks in use by tag. Only blocks with a tag are counted: they never take the
// fast path. Therefore a report of the biggest holders does not have to visit the blocks.
type tagUse struct {
	chunks [otherTag/tagChunk + 1]atomic.Pointer[[tagChunk]tagCount] // by tag number, made at first use
}

const tagChunk = 32

type tagCount struct {
	bytes, blocks atomic.Int64
}

// add adds to the counts of a tag, or subtracts from them.
func (u *tagUse) add(tag uint32, bytes, blocks int64) {
	chunk := &u.chunks[tag/tagChunk]
	if chunk.Load() == nil {
		chunk.CompareAndSwap(nil, new([tagChunk]tagCount))
	}
	c := &chunk.Load()[tag%tagChunk]
	c.bytes.Add(bytes)
	c.blocks.Add(blocks)
}

// all yields the counts of all tags, also of some that have no blocks.
func (u *tagUse) all(yield func(tag uint32, c *tagCount) bool) {
	for i := range u.chunks {
		chunk := u.chunks[i].Load()
		if chunk == nil {
			continue
		}
		for j := range chunk {
			if !yield(uint32(i*tagChunk+j), &chunk[j]) {
				return
			}
		}
	}
}

// holders lists the holders by tag. bytes and blocks are the totals: the remainder that no tag
// counts is listed as memory without a tag.
func (u *tagUse) holders(tenant string, bytes, blocks int64) (all []Holder) {
	for tag, c := range u.all {
		if b, n := c.bytes.Load(), c.blocks.Load(); n > 0 {
			all = append(all, Holder{Tenant: tenant, Tag: tagName(tag), Bytes: uint64(b), Count: uint64(n)})
			bytes, blocks = bytes-b, blocks-n
		}
	}
	if bytes > 0 && blocks > 0 {
		all = append(all, Holder{Tenant: tenant, Bytes: uint64(bytes), Count: uint64(blocks)})
	}
	return all
}

// biggest returns up to mostHolders holders in descending order of size.
func biggest(all []Holder) []Holder {
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all[:min(mostHolders, len(all))]
}
