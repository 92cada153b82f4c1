package memmgr

import (
	"sync"
)

// Statistics counts what passes through it, whatever the upstream is. A [Pool]
// counts by itself; this is for resources that do not, and for the part of a
// program that goes through it. All values are exact.
type Statistics struct {
	upstream

	mu    sync.Mutex
	stats Stats
}

// NewStatistics counts what is asked of an upstream.
func NewStatistics(from Resource) *Statistics { return &Statistics{upstream: over(from)} }

// grow adds to a quantity.
func (s *Stat) grow(n int64) {
	s.Current += n
	s.Allocated += n
	s.Peak = max(s.Peak, s.Current)
}

func (s *Stat) shrink(n int64) {
	s.Current -= n
	s.Freed += n
}

// Allocate implements [Resource].
func (s *Statistics) Allocate(r Request) (Block, error) {
	b, err := s.from.Allocate(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.NumOOMs++
		return b, err
	}
	st := &s.stats
	for _, each := range []*Stat{&st.Allocation, &st.Active, &st.Segment} {
		each.grow(1)
	}
	for _, each := range []*Stat{&st.AllocatedBytes, &st.ActiveBytes, &st.ReservedBytes} {
		each.grow(int64(b.Size))
	}
	st.RequestedBytes.grow(int64(b.Requested))
	st.NumDeviceAlloc++
	return b, nil
}

// Free implements [Resource].
func (s *Statistics) Free(b Block) {
	s.from.Free(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.stats
	for _, each := range []*Stat{&st.Allocation, &st.Active, &st.Segment} {
		each.shrink(1)
	}
	for _, each := range []*Stat{&st.AllocatedBytes, &st.ActiveBytes, &st.ReservedBytes} {
		each.shrink(int64(b.Size))
	}
	st.RequestedBytes.shrink(int64(b.Requested))
	st.NumDeviceFree++
}

// Stats implements [StatsReporter].
func (s *Statistics) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// ResetPeaks implements [StatsReporter].
func (s *Statistics) ResetPeaks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stat := range s.stats.named() {
		stat.Peak = stat.Current
	}
}
