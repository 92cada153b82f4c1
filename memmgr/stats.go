package memmgr

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
	InactiveSplit      Stat // free blocks in segments that are partly in use; Allocated and Freed are 0, not counted
	AllocatedBytes     Stat // of buffers in use
	ReservedBytes      Stat // of segments
	ActiveBytes        Stat // of the blocks that Active counts
	InactiveSplitBytes Stat // of the blocks that InactiveSplit counts; Allocated and Freed are 0, not counted
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
	return m
}

// counters returns all counters but the latencies by name.
func (s *Stats) counters() map[string]*int64 {
	m := map[string]*int64{
		"num_alloc_retries": &s.NumAllocRetries, "num_ooms": &s.NumOOMs, "num_stalled": &s.NumStalled,
		"num_device_alloc": &s.NumDeviceAlloc, "num_device_free": &s.NumDeviceFree,
		"num_waiting": &s.NumWaiting, "cached_bytes": &s.CachedBytes, "metadata_bytes": &s.MetadataBytes,
	}
	for name, stat := range map[string]*Stat{
		"allocation": &s.Allocation, "segment": &s.Segment, "active": &s.Active,
		"inactive_split": &s.InactiveSplit, "allocated_bytes": &s.AllocatedBytes,
		"reserved_bytes": &s.ReservedBytes, "active_bytes": &s.ActiveBytes,
		"inactive_split_bytes": &s.InactiveSplitBytes, "requested_bytes": &s.RequestedBytes,
	} {
		m[name+".all.current"], m[name+".all.peak"] = &stat.Current, &stat.Peak
		m[name+".all.allocated"], m[name+".all.freed"] = &stat.Allocated, &stat.Freed
	}
	return m
}

func (s *Stats) latencies() map[string]*Latency {
	return map[string]*Latency{
		"allocation_latency": &s.AllocationLatency, "upstream_latency": &s.UpstreamLatency, "wait_latency": &s.WaitLatency,
	}
}

// Add adds the counters of another resource. The sum of two peaks is an upper bound of the
// common peak.
func (s *Stats) Add(o *Stats) {
	counters, latencies := o.counters(), o.latencies()
	for name, n := range s.counters() {
		*n += *counters[name]
	}
	for name, l := range s.latencies() {
		l.add(latencies[name])
	}
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
	p.cells.Sync()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front.Stop()
	defer p.front.Resume()
	f()
}

// stats is Stats while p.mu is held and the shards are stopped.
func (p *Pool) stats() Stats {
	a := &p.account
	t := a.Collect(&p.front)
	s := Stats{
		Allocation:     newStat(t.Allocs, t.Frees, a.Blocks.Peak()),
		AllocatedBytes: newStat(t.Taken, t.Given, a.Bytes.Peak()),
		RequestedBytes: newStat(t.Asked, t.Unasked, a.Asked.Peak()),
		CachedBytes:    t.Cached,
	}
	pending, pendingBytes := p.pending.Waiting()
	peakBlocks, peakBytes := a.RaiseActive(pending, pendingBytes)
	s.Active = newStat(t.Allocs, t.Frees-pending, peakBlocks)
	s.ActiveBytes = newStat(t.Taken, t.Given-pendingBytes, peakBytes)
	s.AllocationLatency = latencyOf(&a.Slow, a.Quick(s.Allocation.Allocated))
	s.UpstreamLatency, s.WaitLatency = latencyOf(&a.Upstream, 0), latencyOf(&a.Waits, 0)
	s.NumWaiting = int64(p.waitlist.n)
	p.eachTenant(func(t *Tenant) { s.NumWaiting += t.queued() })
	c := p.heap.Counts()
	s.Segment = Stat{Current: c.Segments, Peak: c.SegmentsPeak, Allocated: c.Added, Freed: c.Dropped}
	s.ReservedBytes = newStat(c.BytesAdded, c.BytesDropped, int64(c.ReservedPeak))
	s.InactiveSplit = Stat{Current: c.SplitBlocks, Peak: c.SplitPeak}
	s.InactiveSplitBytes = Stat{Current: c.SplitBytes, Peak: c.SplitBytesPeak}
	s.NumAllocRetries, s.NumOOMs = a.Retries, a.Failures
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
	p.account.ResetPeaks()
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
