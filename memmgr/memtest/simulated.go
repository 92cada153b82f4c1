package memtest

import (
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Simulated is a resource with addresses and no memory behind them, and with a
// device whose work ends when the test says so: for tests of what stands above it,
// and for measurements of bookkeeping alone. It panics on frees of what it did not
// give.
type Simulated struct {
	mu       sync.Mutex
	capacity uint64
	failAt   int // the call of Allocate to refuse, counted from 1; 0: none
	calls    int
	next     uintptr
	blocks   map[uintptr]uintptr // address to size
	used     uint64
	peak     uint64

	events  map[uintptr]*simEvent
	last    uintptr
	work    map[uintptr][]uintptr // by queue: events not done, oldest first
	inOrder map[uintptr]bool
	waiting sync.Cond
}

type simEvent struct {
	refs int
	done bool
	deps []uintptr // owned; a joined event is done when they are
}

// SimulatedOption changes what NewSimulated makes.
type SimulatedOption func(*Simulated)

// Capacity bounds the memory of the simulated device.
func Capacity(bytes uint64) SimulatedOption {
	return func(s *Simulated) { s.capacity = bytes }
}

// simulatedLargest is the largest block in bytes.
const simulatedLargest = min(1<<46, math.MaxUint/4)

// NewSimulated makes a simulated upstream.
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

// FailAt makes the n-th Allocate from now on fail as if memory had run out; 0
// ends that.
func (s *Simulated) FailAt(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.failAt = 0, n
}

// Place implements [memmgr.Resource]. The memory counts as the host's for want of
// another place; AddressOnly keeps the host from reading it.
func (*Simulated) Place() *syclobj.Place { return syclobj.HostPlace() }

// AddressOnly tells that nobody may read or write the memory.
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
	at := roundUp(s.next, r.Alignment())
	s.next = at + roundUp(size, 4096)
	s.blocks[at] = size
	s.used += uint64(size)
	s.peak = max(s.peak, s.used)
	return memmgr.Block{Address: at, Size: size, Requested: r.Size, Align: r.Alignment()}, nil
}

// Free implements [memmgr.Resource]. It panics when the block is not out. A block with
// work pending counts as out until the work is done.
func (s *Simulated) Free(b memmgr.Block) { memmgr.FreeAfter(b, s, s.free) }

func (s *Simulated) free(b memmgr.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.blocks[b.Address]
	if !ok || size < b.Size {
		panic(&memmgr.UseError{Op: "Free", Err: fmt.Errorf("the simulated device did not give %d bytes at %#x", b.Size, b.Address)})
	}
	delete(s.blocks, b.Address)
	s.used -= uint64(size)
}

// InUse returns the blocks and bytes given out and not yet back.
func (s *Simulated) InUse() (blocks, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.blocks)), int64(s.used)
}

// Peak returns the most bytes that were out at a time.
func (s *Simulated) Peak() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// Events returns how many events are owned by somebody.
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
	s.events[event].refs++ // the device's own
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
				s.work[queue] = events[1:] // whatever is behind
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
		panic(fmt.Errorf("memtest: release of simulated event %d, which nobody owns", event))
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

// QueueRef implements [memmgr.Synchronizer]: the simulated queues are numbers, which no
// queue object stands for.
func (*Simulated) QueueRef(*syclobj.Queue) uintptr { return 0 }

func roundUp(n, unit uintptr) uintptr { return (n + unit - 1) &^ (unit - 1) }
