package usmarrow

import (
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Allocator is Arrow's memory.Allocator on a resource whose memory the host can read:
// Arrow's buffers count in its limits, statistics and profiles. It may be used from any
// goroutine.
type Allocator struct {
	from memmgr.Resource
	tag  string

	mu   sync.Mutex
	live map[*byte]memmgr.Buffer
}

var _ memory.Allocator = (*Allocator)(nil)

// NewAllocator makes an allocator. The tag names Arrow's buffers in reports.
func NewAllocator(from memmgr.Resource, tag string) *Allocator {
	return &Allocator{from: from, tag: tag, live: map[*byte]memmgr.Buffer{}}
}

// Allocate returns size bytes, aligned to memmgr.DefaultAlign. Arrow's interface has no
// error: when there is no memory it panics with the resource's, an error that matches
// memmgr.ErrOutOfMemory. Arrow's readers and writers turn that into an error of theirs.
func (a *Allocator) Allocate(size int) []byte {
	if size == 0 {
		return []byte{}
	}
	buffer, err := memmgr.New(a.from, memmgr.Request{Size: uintptr(size), Tag: a.tag})
	if err != nil {
		panic(err)
	}
	data, err := buffer.Bytes()
	if err != nil {
		buffer.Release()
		panic(err)
	}
	data = data[:size:size]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live[unsafe.SliceData(data)] = buffer
	return data
}

// Reallocate returns size bytes that begin with what b holds, and takes b back.
func (a *Allocator) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) && size > 0 {
		return b[:size]
	}
	n := a.Allocate(size)
	copy(n, b)
	a.Free(b)
	return n
}

// Free takes memory back. What is not the allocator's, it leaves alone.
func (a *Allocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	p := unsafe.SliceData(b)
	a.mu.Lock()
	buffer, ok := a.live[p]
	delete(a.live, p)
	a.mu.Unlock()
	if ok {
		buffer.Release()
	}
}

// Live returns how many of the allocator's buffers Arrow holds.
func (a *Allocator) Live() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.live)
}
