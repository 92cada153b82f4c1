package usmarrow

import (
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Allocator implements Arrow's memory.Allocator on a memmgr resource whose memory the host can
// access. Arrow's buffers then count in the limits, statistics and profiles of the resource. It is
// safe for concurrent use.
type Allocator struct {
	from memmgr.Resource
	tag  string

	mu   sync.Mutex
	live map[*byte]memmgr.Buffer
}

var _ memory.Allocator = (*Allocator)(nil)

// NewAllocator returns an allocator on from. tag names Arrow's buffers in reports.
func NewAllocator(from memmgr.Resource, tag string) *Allocator {
	return &Allocator{from: from, tag: tag, live: map[*byte]memmgr.Buffer{}}
}

// Allocate returns size bytes, aligned to memmgr.DefaultAlign. Arrow's interface returns no error:
// if the allocation fails, Allocate panics with the error of the resource, which matches
// memmgr.ErrOutOfMemory. Arrow's readers and writers recover the panic and return an error.
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

// Reallocate returns size bytes that begin with the contents of b. It may return b itself;
// otherwise it frees b.
func (a *Allocator) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) && size > 0 {
		return b[:size]
	}
	n := a.Allocate(size)
	copy(n, b)
	a.Free(b)
	return n
}

// Free returns memory to the resource. It ignores memory of other allocators.
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

// Live returns the number of allocated buffers that were not freed.
func (a *Allocator) Live() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.live)
}
