package memtest

import (
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Simulated is a resource of addresses without memory, on a device whose work ends when the test calls
// Complete. It is for tests of resources above it, and for benchmarks of the bookkeeping alone. It
// panics on frees of blocks that it did not allocate. It is safe for concurrent use.
type Simulated struct {
	mu       sync.Mutex
	capacity uint64
	failAt   int // the call of Allocate that fails, counted from 1; 0 for none
	calls    int
	next     uintptr
	blocks   map[uintptr]uintptr // address to size
	used     uint64
	peak     uint64

	events  map[uintptr]*simEvent
	last    uintptr
	work    map[uintptr][]uintptr // by queue: incomplete events, oldest first
	inOrder map[uintptr]bool
	waiting sync.Cond
}

type simEvent struct {
	refs int
	done bool
	deps []uintptr // owned; a joined event is done when they are
}

// SimulatedOption adjusts a resource of [NewSimulated].
type SimulatedOption func(*Simulated)

// Capacity limits the memory of the simulated device.
func Capacity(bytes uint64) SimulatedOption {
	return func(s *Simulated) { s.capacity = bytes }
}

// simulatedLargest is the largest block in bytes.
const simulatedLargest = min(1<<46, math.MaxUint/4)

// NewSimulated makes a simulated resource.
func NewSimulated(options ...SimulatedOption) *Simulated {
	s := &Simulated{
		next: 1 << (bits.UintSize - 20), blocks: map[uintptr]uintptr{}, events: map[uintptr]*simEvent{},
		work: map[uintptr][]uintptr{}, inOrder: map[uintptr]bool{},
	}
	s.waiting.L = &s.mu
	for _, o := range options {
		o(s)
	}
	return s
}

// FailAt makes the n-th call of Allocate from now on fail with an out-of-memory error. 0 disables it.
func (s *Simulated) FailAt(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.failAt = 0, n
}

// Place implements [memmgr.Resource]. It returns the host's place, because there is no device; see
// AddressOnly.
func (*Simulated) Place() *syclobj.Place { return syclobj.HostPlace() }

// AddressOnly returns true: the memory must not be accessed.
func (*Simulated) AddressOnly() bool { return true }

// DeviceTotal returns the capacity.
func (s *Simulated) DeviceTotal() uint64 { return s.capacity }

// Allocate implements [memmgr.Resource].
func (s *Simulated) Allocate(r memmgr.Request) (memmgr.Block, error) {
	if err := r.Check(); err != nil {
		return memmgr.Block{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	size := max(r.Size, 1)
	if s.calls == s.failAt || size > simulatedLargest || (s.capacity != 0 && s.used+uint64(size) > s.capacity) {
		return memmgr.Block{}, &memmgr.OutOfMemoryError{
			Request: r, Place: s.Place(), Rounded: uint64(size), Allocated: s.used, DeviceTotal: s.capacity,
			Err: fmt.Errorf("the simulated device refuses call %d", s.calls),
		}
	}
	at := sysmem.RoundUp(s.next, r.Alignment())
	s.next = at + sysmem.RoundUp(size, 4096)
	s.blocks[at] = size
	s.used += uint64(size)
	s.peak = max(s.peak, s.used)
	return memmgr.Block{Address: at, Size: size, Requested: r.Size, Align: r.Alignment()}, nil
}

// Free implements [memmgr.Resource]. It panics if the block is not in use. A block with pending work
// stays in use until the work is complete.
func (s *Simulated) Free(b memmgr.Block) { memmgr.FreeAfter(b, s, s.free) }

func (s *Simulated) free(b memmgr.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.blocks[b.Address]
	if !ok || size < b.Size {
		panic(&memmgr.UseError{Op: "Free", Err: fmt.Errorf("%d bytes at %#x: not allocated from the simulated device", b.Size, b.Address)})
	}
	delete(s.blocks, b.Address)
	s.used -= uint64(size)
}

// InUse returns the number of blocks in use and their bytes.
func (s *Simulated) InUse() (blocks, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.blocks)), int64(s.used)
}

// Peak returns the largest number of bytes in use so far.
func (s *Simulated) Peak() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// Events returns the number of events that were not released.
func (s *Simulated) Events() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

// InOrder makes a queue (any number but 0) in-order.
func (s *Simulated) InOrder(queue uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inOrder[queue] = true
}

// Submit starts work on a queue and returns an owned event of it.
func (s *Simulated) Submit(queue uintptr) (event uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	event = s.newEvent(nil)
	s.work[queue] = append(s.work[queue], event)
	s.events[event].refs++ // released by Complete
	return event
}

// Complete ends the work of an event.
func (s *Simulated) Complete(event uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for queue, events := range s.work {
		for i, e := range events {
			if e != event {
				continue
			}
			if i == 0 {
				s.work[queue] = events[1:]
			} else {
				s.work[queue] = append(events[:i:i], events[i+1:]...)
			}
			s.events[event].done = true
			s.releaseLocked(event)
			s.waiting.Broadcast()
			return
		}
	}
}

func (s *Simulated) newEvent(deps []uintptr) uintptr {
	s.last++
	for _, d := range deps {
		s.events[d].refs++
	}
	s.events[s.last] = &simEvent{refs: 1, deps: deps}
	return s.last
}

func (s *Simulated) doneLocked(event uintptr) bool {
	e := s.events[event]
	if e == nil {
		panic(fmt.Errorf("memtest: use of simulated event %d after its release", event))
	}
	if e.done || e.deps == nil {
		return e.done
	}
	for _, d := range e.deps {
		if !s.doneLocked(d) {
			return false
		}
	}
	return true
}

func (s *Simulated) releaseLocked(event uintptr) {
	e := s.events[event]
	if e == nil {
		panic(fmt.Errorf("memtest: release of simulated event %d, which was already released", event))
	}
	if e.refs--; e.refs > 0 {
		return
	}
	delete(s.events, event)
	for _, d := range e.deps {
		s.releaseLocked(d)
	}
}

// EventDone implements [memmgr.Synchronizer].
func (s *Simulated) EventDone(event uintptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doneLocked(event)
}

// WaitEvent implements [memmgr.Synchronizer].
func (s *Simulated) WaitEvent(event uintptr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.doneLocked(event) {
		s.waiting.Wait()
	}
	return nil
}

// CopyEvent implements [memmgr.Synchronizer].
func (s *Simulated) CopyEvent(event uintptr) uintptr {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[event].refs++
	return event
}

// ReleaseEvent implements [memmgr.Synchronizer].
func (s *Simulated) ReleaseEvent(event uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(event)
}

// Barrier implements [memmgr.Synchronizer].
func (s *Simulated) Barrier(queue uintptr) (uintptr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.work[queue]) == 0 {
		return 0, nil
	}
	return s.newEvent(append([]uintptr(nil), s.work[queue]...)), nil
}

// Join implements [memmgr.Synchronizer].
func (s *Simulated) Join(_, a, b uintptr) (uintptr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newEvent([]uintptr{a, b}), nil
}

// SameOrder implements [memmgr.Synchronizer].
func (s *Simulated) SameOrder(a, b uintptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a == b && s.inOrder[a]
}

// QueueRef implements [memmgr.Synchronizer]. It returns 0: simulated queues are numbers without a queue
// object.
func (*Simulated) QueueRef(*syclobj.Queue) uintptr { return 0 }
