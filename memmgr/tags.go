package memmgr

import (
	"sync"
	"sync/atomic"
)

// Tags are numbered, so that a cell of C memory can carry one. A tag is never
// forgotten: programs have few.
var tags struct {
	mu     sync.Mutex
	number sync.Map // string to uint32
	names  atomic.Pointer[[]string]
}

// tagNumber returns the number of a tag, 0 for "".
func tagNumber(tag string) uint32 {
	if tag == "" {
		return 0
	}
	if n, ok := tags.number.Load(tag); ok {
		return n.(uint32)
	}
	tags.mu.Lock()
	defer tags.mu.Unlock()
	if n, ok := tags.number.Load(tag); ok {
		return n.(uint32)
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

// knownTag returns the number of a tag, 0 when no request has named it yet.
func knownTag(tag string) uint32 {
	n, _ := tags.number.Load(tag)
	number, _ := n.(uint32)
	return number
}

// tagName is the inverse of tagNumber.
func tagName(n uint32) string {
	names := tags.names.Load()
	if names == nil || int(n) >= len(*names) {
		return ""
	}
	return (*names)[n]
}
