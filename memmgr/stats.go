package memmgr

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// Stat is one quantity over time, in PyTorch's terms.
type Stat struct {
	Current   int64 `json:"current"`
	Peak      int64 `json:"peak"`      // largest Current since the last reset
	Allocated int64 `json:"allocated"` // sum of all increases
	Freed     int64 `json:"freed"`     // sum of all decreases
}

// Stats are the counters of a resource, under PyTorch's names.
type Stats struct {
	Allocation         Stat // buffers in use
	Segment            Stat // segments held from the upstream
	Active             Stat // blocks in use or waiting for the device
	InactiveSplit      Stat // free blocks in segments that are partly in use
	AllocatedBytes     Stat // of buffers in use
	ReservedBytes      Stat // of segments
	ActiveBytes        Stat
	InactiveSplitBytes Stat
	RequestedBytes     Stat // what users asked for of AllocatedBytes

	NumAllocRetries int64 // times that memory was looked for again after a refusal
	NumOOMs         int64 // requests that failed
	NumStalled      int64 // blocks whose pending work had not ended after ten seconds
	NumDeviceAlloc  int64 // segments taken from the upstream
	NumDeviceFree   int64 // and given back
	NumWaiting      int64 // requests that wait for memory now

	// AllocationRate is how many allocations there were a second between the calls of
	// Stats, of which those within a second of another do not count.
	AllocationRate float64

	// AllocationLatency is of all requests, the refused ones included. Those that a
	// processor's cache serves are not timed and count as the quickest; of others
	// that find the pool's lock free and a block at hand one in 64 is timed.
	AllocationLatency Latency
	UpstreamLatency   Latency // of calls of the upstream for segments
	WaitLatency       Latency // of requests that waited for memory, however it ended

	CachedBytes   int64 // free blocks at hand for their size class
	MetadataBytes int64 // Go and C memory that keeping the books takes
}

// Map returns the counters under the names that PyTorch's memory_stats uses,
// such as "allocated_bytes.all.current".
func (s *Stats) Map() map[string]int64 {
	m := map[string]int64{
		"num_alloc_retries": s.NumAllocRetries,
		"num_ooms":          s.NumOOMs,
		"num_stalled":       s.NumStalled,
		"num_device_alloc":  s.NumDeviceAlloc,
		"num_device_free":   s.NumDeviceFree,
		"num_waiting":       s.NumWaiting,
		"allocation_rate":   int64(s.AllocationRate),
		"cached_bytes":      s.CachedBytes,
		"metadata_bytes":    s.MetadataBytes,
	}
	for name, l := range map[string]*Latency{
		"allocation_latency": &s.AllocationLatency, "upstream_latency": &s.UpstreamLatency, "wait_latency": &s.WaitLatency,
	} {
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

// Add adds the counters of another resource; peaks add up, which is an upper
// bound of the common peak.
func (s *Stats) Add(o *Stats) {
	theirs := o.named()
	for name, stat := range s.named() {
		other := theirs[name]
		stat.Current += other.Current
		stat.Peak += other.Peak
		stat.Allocated += other.Allocated
		stat.Freed += other.Freed
	}
	s.NumAllocRetries += o.NumAllocRetries
	s.NumOOMs += o.NumOOMs
	s.NumStalled += o.NumStalled
	s.NumDeviceAlloc += o.NumDeviceAlloc
	s.NumDeviceFree += o.NumDeviceFree
	s.NumWaiting += o.NumWaiting
	s.AllocationRate += o.AllocationRate
	s.AllocationLatency.add(&o.AllocationLatency)
	s.UpstreamLatency.add(&o.UpstreamLatency)
	s.WaitLatency.add(&o.WaitLatency)
	s.CachedBytes += o.CachedBytes
	s.MetadataBytes += o.MetadataBytes
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

// raise lifts the peak to a value seen elsewhere.
func (g *gauge) raise(seen int64) {
	for {
		peak := g.peak.Load()
		if seen <= peak || g.peak.CompareAndSwap(peak, seen) {
			return
		}
	}
}

func (g *gauge) reset() { g.peak.Store(g.now.Load()) }

// gauges are what shards publish to.
type gauges struct {
	bytes, blocks, asked gauge
	// The peaks of what is in use or waits for the device, as far as they are above
	// those of what is in use: told by Stats, which knows what waits.
	active, activeBlocks gauge
}

func (p *Pool) publish(c change) {
	g := &p.published
	g.bytes.add(c.bytes)
	g.blocks.add(c.blocks)
	g.asked.add(c.asked)
}

// publishLarge is publish for one large block, of which the bytes are what matters at
// once: the rest is told to the gauges later, and only the peaks are kept meanwhile.
// p.mu is held.
func (p *Pool) publishLarge(bytes, blocks, asked int64) {
	g, o := &p.published, &p.counters.owed
	g.bytes.add(bytes)
	o.blocks += blocks
	o.asked += asked
	if blocks > 0 {
		g.blocks.raise(g.blocks.now.Load() + o.blocks)
		g.asked.raise(g.asked.now.Load() + o.asked)
	}
}

// settleLarge tells the gauges what publishLarge did not. p.mu is held.
func (p *Pool) settleLarge() {
	if o := &p.counters.owed; *o != (change{}) {
		p.published.blocks.add(o.blocks)
		p.published.asked.add(o.asked)
		*o = change{}
	}
}

// poolCounters are guarded by the pool's mutex.
type poolCounters struct {
	allocs, frees  [numClasses + 2]uint64 // by the slow path, by class
	large, unlarge uint64                 // bytes of blocks without a class, ever
	asked, unasked uint64                 // bytes requested, by the slow path
	locked         uint64                 // requests that found the lock free
	owed           change                 // blocks and asked that the gauges do not have yet

	retries, ooms int64
}

// count notes that the slow path gives a block to a user. p.mu is held.
func (p *Pool) count(c *owner.Cell, w *want) {
	k := blockClass(c)
	p.counters.allocs[k]++
	p.counters.asked += uint64(w.r.Size)
	if k >= noClass {
		p.counters.large += c.Size
	}
	p.heap.noteSplit()
	p.settleLarge()
	p.publish(change{bytes: int64(c.Size), blocks: 1, asked: int64(w.r.Size)})
}

// uncount notes that it takes one back. p.mu is held.
func (p *Pool) uncount(c *owner.Cell, k int) {
	p.counters.frees[k]++
	p.counters.unasked += c.Requested
	if k >= noClass {
		p.counters.unlarge += c.Size
	}
	p.publish(change{bytes: -int64(c.Size), blocks: -1, asked: -int64(c.Requested)})
}

// Stats returns the counters. Current values are exact at the time of the
// call. The peak of reserved bytes is exact; the peaks of allocated and active
// bytes are exact to 4 MiB for each processor, and to the calls of Stats.
func (p *Pool) Stats() Stats {
	emptyFronts()
	p.origin.list.Sync() // what C has dropped is free
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front.stopShards()
	defer p.front.resumeShards()
	return p.stats()
}

// stats is Stats for whoever holds p.mu and has stopped the shards.
func (p *Pool) stats() Stats {
	p.settleLarge()
	var s Stats
	c := &p.counters
	allocs, frees := c.allocs, c.frees
	asked, unasked := c.asked, c.unasked
	for sh := range p.front.allShards() {
		s.CachedBytes += sh.cached()
		p.publish(sh.takeChange())
		asked += sh.asked
		unasked += sh.unasked
		for k := range sh.bins {
			allocs[k] += sh.bins[k].allocs()
			frees[k] += sh.bins[k].frees
		}
	}
	bytesIn, bytesOut := c.large, c.unlarge
	for k := range allocs {
		s.Allocation.Allocated += int64(allocs[k])
		s.Allocation.Freed += int64(frees[k])
		if k < numClasses {
			bytesIn += allocs[k] * uint64(classUnits[k]) * unit
			bytesOut += frees[k] * uint64(classUnits[k]) * unit
		}
	}
	g := &p.published
	s.Allocation.settle(g.blocks.peak.Load())
	s.AllocatedBytes = Stat{Allocated: int64(bytesIn), Freed: int64(bytesOut)}
	s.AllocatedBytes.settle(g.bytes.peak.Load())
	s.RequestedBytes = Stat{Allocated: int64(asked), Freed: int64(unasked)}
	s.RequestedBytes.settle(g.asked.peak.Load())
	s.Active, s.ActiveBytes = s.Allocation, s.AllocatedBytes
	waiting, waitingBytes := int64(p.pending.n+len(p.pending.returned)+len(p.pending.refused)), int64(p.pending.bytes+p.pending.returnedBytes)
	s.Active.Freed -= waiting
	s.ActiveBytes.Freed -= waitingBytes
	g.activeBlocks.raise(g.blocks.now.Load() + waiting)
	g.active.raise(g.bytes.now.Load() + waitingBytes)
	s.AllocationRate = p.rate.see(s.Allocation.Allocated, now())
	s.AllocationLatency = p.slow.summary(p.quick(s.Allocation.Allocated))
	s.UpstreamLatency, s.WaitLatency = p.upstreamCalls.summary(0), p.waits.summary(0)
	s.NumWaiting = int64(p.waitlist.n)
	p.eachTenant(func(t *Tenant) { s.NumWaiting += t.queued() })
	s.Active.settle(max(g.activeBlocks.peak.Load(), g.blocks.peak.Load()))
	s.ActiveBytes.settle(max(g.active.peak.Load(), g.bytes.peak.Load()))
	p.heapStats(&s)
	return s
}

// settle fills in what follows from the sums.
func (s *Stat) settle(peak int64) {
	s.Current = s.Allocated - s.Freed
	s.Peak = max(peak, s.Current)
}

// heapStats adds what the mutex guards.
func (p *Pool) heapStats(s *Stats) {
	p.heap.noteSplit()
	c := &p.heap.count
	blocks, bytes := p.heap.split()
	s.Segment = Stat{Current: c.segments, Peak: c.segmentsPeak, Allocated: c.deviceAllocs, Freed: c.deviceFrees}
	s.ReservedBytes = Stat{
		Current: int64(c.reserved), Peak: int64(c.reservedPeak),
		Allocated: int64(c.reservedEver), Freed: int64(c.reservedGone),
	}
	s.InactiveSplit = Stat{Current: blocks, Peak: c.splitPeak}
	s.InactiveSplitBytes = Stat{Current: bytes, Peak: c.splitBytesPeak}
	s.NumAllocRetries, s.NumOOMs = p.counters.retries, p.counters.ooms
	s.NumStalled = int64(p.pending.ever)
	s.NumDeviceAlloc, s.NumDeviceFree = c.deviceAllocs, c.deviceFrees
	s.CachedBytes += p.heap.depot.bytes
	s.MetadataBytes = int64(p.heap.Bytes() + p.front.metadataBytes() + uint64(p.heap.Counts().UsedBlocks)*owner.CellBytes)
}

// ResetPeaks makes every peak start over from the current value: the peaks from here to a later Stats are
// those of the region between.
func (p *Pool) ResetPeaks() {
	p.Stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &p.published
	for _, each := range []*gauge{&g.bytes, &g.blocks, &g.asked, &g.active, &g.activeBlocks} {
		each.reset()
	}
	c := &p.heap.count
	c.reservedPeak, c.segmentsPeak = c.reserved, c.segments
	c.splitPeak, c.splitBytesPeak = p.heap.split()
}

// TotalStats adds the counters of all open pools: what the process holds in
// pooled memory.
func TotalStats() Stats {
	var total Stats
	for _, p := range Pools() {
		s := p.Stats()
		total.Add(&s)
	}
	return total
}

// tags numbers the tags, so that the cell of a block can contain one. Tags are never removed:
// programs use few.
var tags struct {
	mu     sync.Mutex
	number sync.Map // string to uint32
	names  atomic.Pointer[[]string]
}

// tagNumber returns the number of a tag, 0 for "". It adds a tag that has no number.
func tagNumber(tag string) uint32 {
	if n := findTag(tag); n != 0 || tag == "" {
		return n
	}
	tags.mu.Lock()
	defer tags.mu.Unlock()
	if n := findTag(tag); n != 0 {
		return n
	}
	names := []string{""}
	if old := tags.names.Load(); old != nil {
		names = *old
	}
	n := uint32(len(names))
	names = append(names[:len(names):len(names)], tag)
	tags.names.Store(&names)
	tags.number.Store(tag, n)
	return n
}

// findTag returns the number of a tag, 0 if no request has used it.
func findTag(tag string) uint32 {
	n, _ := tags.number.Load(tag)
	number, _ := n.(uint32)
	return number
}

// tagName returns the tag with a number.
func tagName(n uint32) string {
	names := tags.names.Load()
	if names == nil || int(n) >= len(*names) {
		return ""
	}
	return (*names)[n]
}

// tagUse counts blocks in use by tag. Only blocks with a tag are counted: they never take the
// fast path. Therefore a report of the biggest holders does not have to visit the blocks.
type tagUse struct {
	mu    sync.Mutex
	table atomic.Pointer[[]*tagCount] // by tag number; entry 0 is unused
}

type tagCount struct{ bytes, blocks atomic.Int64 }

// add adds to the counts of a tag, or subtracts from them.
func (u *tagUse) add(tag uint32, bytes, blocks int64) {
	c := u.of(tag)
	c.bytes.Add(bytes)
	c.blocks.Add(blocks)
}

// has reports whether blocks with a tag were ever counted.
func (u *tagUse) has(tag uint32) bool {
	t := u.table.Load()
	return t != nil && int(tag) < len(*t) && (*t)[tag] != nil
}

// adopt adds the tags of other, whose blocks are all free, so that has reports them.
func (u *tagUse) adopt(other *tagUse) {
	if t := other.table.Load(); t != nil {
		for tag, c := range *t {
			if c != nil {
				u.of(uint32(tag))
			}
		}
	}
}

// of returns the counts of a tag, which it adds on first use.
func (u *tagUse) of(tag uint32) *tagCount {
	if u.has(tag) {
		return (*u.table.Load())[tag]
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var table []*tagCount
	if t := u.table.Load(); t != nil {
		table = slices.Clone(*t)
	}
	if int(tag) >= len(table) {
		table = append(table, make([]*tagCount, int(tag)+1-len(table))...)
	}
	if table[tag] == nil {
		table[tag] = &tagCount{}
		u.table.Store(&table)
	}
	return table[tag]
}

// holders lists the holders by tag. bytes and blocks are the totals: the remainder that no tag
// counts is listed as memory without a tag.
func (u *tagUse) holders(tenant string, bytes, blocks int64) (all []Holder) {
	if t := u.table.Load(); t != nil {
		for tag, c := range *t {
			if c == nil {
				continue
			}
			if b, n := c.bytes.Load(), c.blocks.Load(); n > 0 {
				all = append(all, Holder{Tenant: tenant, Tag: tagName(uint32(tag)), Bytes: uint64(b), Count: uint64(n)})
				bytes, blocks = bytes-b, blocks-n
			}
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
