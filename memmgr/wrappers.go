package memmgr

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// Record logs every call as CSV in the columns of RMM's memory event log (Thread, Time,
// Action, Pointer, Size, Stream), so that tools for that log can read it and package
// memtest can replay it. Thread is always 0.
type Record struct {
	upstream

	mu  sync.Mutex
	log *bufio.Writer
	err error
}

// NewRecord returns a resource that logs the calls of an upstream.
func NewRecord(from Resource, log io.Writer) *Record {
	r := &Record{upstream: over(from), log: bufio.NewWriter(log)}
	_, r.err = r.log.WriteString("Thread,Time,Action,Pointer,Size,Stream\n")
	return r
}

// Allocate implements [Resource].
func (r *Record) Allocate(request Request) (Block, error) {
	b, err := r.from.Allocate(request)
	action, queue := "allocate", uintptr(0)
	if request.Queue != nil {
		queue = uintptr(request.Queue.Ref())
	}
	if err != nil {
		action = "allocate failure"
	}
	r.note(action, b.Address, request.Size, queue)
	return b, err
}

// Free implements [Resource].
func (r *Record) Free(b Block) {
	// Log before the memory can be allocated again, so that the log has a possible order.
	r.note("deallocate", b.Address, b.Requested, b.Queue)
	r.from.Free(b)
}

func (r *Record) note(action string, address, size, queue uintptr) {
	now := time.Now().Format("15:04:05.000000")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.log, "0,%s,%s,%#x,%d,%#x\n", now, action, address, size, queue)
	}
}

// Flush writes the buffered part of the log and returns the first failure of the writer.
func (r *Record) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.log.Flush()
	}
	return r.err
}

// The patterns for memory before use, after use, and around a block.
const (
	poisonNew    = 0xAA
	poisonFreed  = 0xDD
	poisonMargin = 0xFD
)

// PoisonMargin is the size in bytes of the guard on each side of a block: a multiple of the
// default alignment.
const PoisonMargin = 256

type poison struct {
	upstream
	mu    sync.Mutex
	outer map[uintptr]Block // blocks of the upstream, by the address of the guarded block
	fill  func(address, size uintptr, value byte) error
	read  func(address uintptr, to []byte) error
}

// CorruptionError is the value of the panic when a guard of [NewPoison] or a freed block
// ([DebugEnv]) was written.
type CorruptionError struct {
	Address  uintptr // of the block
	Size     uintptr // of the request; of a freed block its whole size
	Offset   int     // of the first wrong byte, relative to the block
	Found    byte
	Freed    bool   // the block was written after its last release
	Released string // place of that release, if stacks are recorded
}

// Error returns the position of the write.
func (e *CorruptionError) Error() string {
	if e.Freed {
		s := fmt.Sprintf("memmgr: the freed block of %d bytes at %#x was written: byte %d is %#02x", e.Size, e.Address, e.Offset, e.Found)
		if e.Released != "" {
			s += "; its last reference was released at\n" + e.Released
		}
		return s
	}
	side := "beyond its end"
	if e.Offset < 0 {
		side = "before its start"
	}
	return fmt.Sprintf("memmgr: the block of %d bytes at %#x was written %s: byte %d is %#02x",
		e.Size, e.Address, side, e.Offset, e.Found)
}

// NewPoison returns a resource that fills memory with one pattern when it is allocated and
// with another when it is freed, and puts a guard on each side. Reads of uninitialized and
// of freed memory return the patterns; a write beyond either end makes Free panic with a
// [*CorruptionError]. Device memory is filled through the place's queue. Memory that can
// not be written is passed through.
func NewPoison(from Resource) Resource {
	p := &poison{upstream: over(from), outer: map[uintptr]Block{}}
	place := p.Place()
	if only, ok := As[addressOnly](from); (ok && only.AddressOnly()) || place == nil {
		return p
	}
	if place.HostReadable() {
		p.fill = func(address, size uintptr, value byte) error {
			fillHost(address, size, value)
			return nil
		}
		p.read = func(address uintptr, to []byte) error {
			copy(to, hostBytes(address, uintptr(len(to))))
			return nil
		}
		return p
	}
	p.fill = func(address, size uintptr, value byte) error { return fillOnDevice(place, address, size, value) }
	p.read = func(address uintptr, to []byte) error {
		q, err := place.Queue()
		if err != nil {
			return err
		}
		poisonDevice.Lock()
		defer poisonDevice.Unlock()
		return q.Read(to, foreignPointer(address))
	}
	return p
}

// poisonDevice lets one thread at a time wait for a device here: the OpenCL CPU driver
// sometimes loses work when several threads wait inside it.
var poisonDevice sync.Mutex

// hostBytes returns host-readable memory as a slice.
func hostBytes(address, size uintptr) []byte {
	return unsafe.Slice((*byte)(foreignPointer(address)), size)
}

func fillHost(address, size uintptr, value byte) {
	b := hostBytes(address, size)
	for i := range b {
		b[i] = value
	}
}

func fillOnDevice(place *syclobj.Place, address, size uintptr, value byte) error {
	q, err := place.Queue()
	if err != nil {
		return err
	}
	poisonDevice.Lock()
	defer poisonDevice.Unlock()
	ev, err := q.Memset(foreignPointer(address), value, size)
	if err != nil {
		return err
	}
	defer func() { _ = ev.Close() }()
	return ev.Wait(context.Background())
}

// poisonLead returns the size of the leading guard, which keeps larger alignments.
func poisonLead(align uintptr) uintptr { return max(PoisonMargin, align) }

// Allocate implements [Resource].
func (p *poison) Allocate(r Request) (Block, error) {
	if err := r.Check(); err != nil {
		return Block{}, err
	}
	if p.fill == nil {
		return p.from.Allocate(r)
	}
	lead := poisonLead(r.Alignment())
	if r.Size > maxSize-2*lead-r.Alignment() {
		return Block{}, r.refuse("with %d bytes of guards it cannot be addressed", 2*lead)
	}
	inner := r
	inner.Size = lead + r.Size + PoisonMargin
	b, err := p.from.Allocate(inner)
	if err != nil {
		return b, err
	}
	err = p.fill(b.Address+lead-PoisonMargin, PoisonMargin, poisonMargin)
	if err == nil && r.Size > 0 {
		err = p.fill(b.Address+lead, r.Size, poisonNew)
	}
	if err == nil {
		err = p.fill(b.Address+lead+r.Size, PoisonMargin, poisonMargin)
	}
	if err != nil {
		p.from.Free(b)
		return Block{}, err
	}
	guarded := b
	guarded.Address += lead
	guarded.Size, guarded.Requested = r.Size, r.Size
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outer[guarded.Address] = b
	return guarded, nil
}

// Free implements [Resource].
func (p *poison) Free(b Block) {
	if p.fill == nil {
		p.from.Free(b)
		return
	}
	// The guards can be read only when the work is complete.
	s, _ := As[Synchronizer](p.from)
	FreeAfter(b, s, p.check)
}

// check compares the guards of a block and frees it.
func (p *poison) check(b Block) {
	// Validate the block before reading it: freed memory may already be unmapped.
	outer := p.outerOf(b.Address, false)
	p.inspect(&b)
	if b.Requested > 0 {
		_ = p.fill(b.Address, b.Requested, poisonFreed)
	}
	p.outerOf(b.Address, true)
	p.from.Free(outer)
}

// outerOf returns the upstream's block of a guarded block, and removes the record if forget
// is set. It panics if there is none.
func (p *poison) outerOf(address uintptr, forget bool) Block {
	p.mu.Lock()
	outer, ok := p.outer[address]
	if forget {
		delete(p.outer, address)
	}
	p.mu.Unlock()
	if !ok {
		panic(misuse("Free", "%#x: not allocated from this resource, or already freed", address))
	}
	return outer
}

func (p *poison) inspect(b *Block) {
	guard := make([]byte, PoisonMargin)
	for _, side := range []int{-PoisonMargin, int(b.Requested)} {
		if err := p.read(uintptr(int(b.Address)+side), guard); err != nil {
			continue // the device failed: nothing to compare
		}
		for i, v := range guard {
			if v != poisonMargin {
				panic(&CorruptionError{Address: b.Address, Size: b.Requested, Offset: side + i, Found: v})
			}
		}
	}
}
