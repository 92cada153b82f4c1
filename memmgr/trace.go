package memmgr

import (
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// Actions of a pool, in the words of PyTorch's memory viewer.
const (
	traceAlloc         = "alloc"
	traceFreeRequested = "free_requested"
	traceFreeCompleted = "free_completed"
	traceSegmentAlloc  = "segment_alloc"
	traceSegmentFree   = "segment_free"
	traceSnapshot      = "snapshot"
	traceOOM           = "oom"
)

// TraceEntry is one action of a pool.
type TraceEntry struct {
	Action  string // "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot" or "oom"
	Address uintptr
	Size    uint64
	Tag     string
	Time    time.Time
	Stack   Stack // where it was recorded

	stack uint32
}

// traceRing keeps the last actions.
type traceRing struct {
	mu      sync.Mutex
	entries []TraceEntry
	next    uint64 // actions ever
}

func newTraceRing(n int) *traceRing { return &traceRing{entries: make([]TraceEntry, n)} }

func (t *traceRing) put(e TraceEntry) {
	e.Time = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries[t.next%uint64(len(t.entries))] = e
	t.next++
}

func (t *traceRing) add(action string, c *owner.Cell) {
	t.put(TraceEntry{Action: action, Address: c.Address, Size: c.Size, Tag: tagName(c.Tag), stack: c.Stack})
}

func (t *traceRing) addSegment(action string, b Block) {
	e := TraceEntry{Action: action, Address: b.Address, Size: uint64(b.Size)}
	if depth := stackDepth.Load(); depth != 0 {
		e.stack = captureStack(int(depth), 4)
	}
	t.put(e)
}

func (t *traceRing) addOOM(bytes uint64) { t.put(TraceEntry{Action: traceOOM, Size: bytes}) }

// list returns the actions that are still kept, oldest first, and how many were
// lost.
func (t *traceRing) list() (entries []TraceEntry, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := uint64(len(t.entries))
	first := uint64(0)
	if t.next > n {
		first = t.next - n
	}
	for i := first; i < t.next; i++ {
		e := t.entries[i%n]
		e.Stack = stackOf(e.stack)
		entries = append(entries, e)
	}
	return entries, first
}
