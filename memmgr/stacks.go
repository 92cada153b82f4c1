package memmgr

import (
	"fmt"
	"hash/maphash"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr/owner"
)

// stackDepth is how many frames to record, 0 for none.
var stackDepth atomic.Int32

// RecordStacks turns the recording of places of allocation on (depth frames,
// at most 64) or off (0). It costs about 300 ns an allocation, so it is off
// until asked for. Memory allocated before stays without a place.
func RecordStacks(depth int) { stackDepth.Store(int32(max(0, min(depth, 64)))) }

// StacksRecorded returns the depth in force.
func StacksRecorded() int { return int(stackDepth.Load()) }

// stacks holds every distinct stack once, by number, so that a cell carries four
// bytes. Programs have few distinct places of allocation.
var stacks = struct {
	mu     sync.Mutex
	seed   maphash.Seed
	byHash map[uint64][]uint32
	all    [][]uintptr
	// The stacks of memory that is gone, for the panic on use after release.
	former [4096]formerRecord
}{seed: maphash.MakeSeed(), byHash: map[uint64][]uint32{}, all: make([][]uintptr, 1)}

type formerRecord struct {
	ref   owner.Ref
	stack uint32
}

// noteAllocation records where the memory of a new cell was asked for.
func noteAllocation(c *owner.Cell) {
	if depth := stackDepth.Load(); depth != 0 {
		c.Stack = captureStack(int(depth), 3)
	}
}

// noteRelease remembers the place of memory that is about to go.
func noteRelease(c *owner.Cell) {
	if c.Stack == 0 {
		return
	}
	r := c.Ref()
	stacks.mu.Lock()
	stacks.former[c.Index()%uint32(len(stacks.former))] = formerRecord{r, c.Stack}
	stacks.mu.Unlock()
	c.Stack = 0
}

// captureStack returns the number of the caller's stack.
func captureStack(depth, skip int) uint32 {
	var pcs [64]uintptr
	n := runtime.Callers(skip+1, pcs[:depth])
	var h maphash.Hash
	h.SetSeed(stacks.seed)
	for _, pc := range pcs[:n] {
		maphash.WriteComparable(&h, pc)
	}
	sum := h.Sum64()
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
next:
	for _, number := range stacks.byHash[sum] {
		s := stacks.all[number]
		if len(s) != n {
			continue
		}
		for i := range s {
			if s[i] != pcs[i] {
				continue next
			}
		}
		return number
	}
	number := uint32(len(stacks.all))
	stacks.all = append(stacks.all, append([]uintptr(nil), pcs[:n]...))
	stacks.byHash[sum] = append(stacks.byHash[sum], number)
	return number
}

// stackPCs returns the frames of a recorded stack, for profiles.
func stackPCs(number uint32) []uintptr {
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	if int(number) >= len(stacks.all) {
		return nil
	}
	return stacks.all[number]
}

// stackText writes a recorded stack, a frame a line, from the first frame
// outside this package.
func stackText(number uint32) string {
	pcs := stackPCs(number)
	if len(pcs) == 0 {
		return ""
	}
	var b strings.Builder
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.Function != "" && !internalFrame(f) {
			fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

// internalFrame tells frames of this package's own code from those of its
// users and tests.
func internalFrame(f runtime.Frame) bool {
	return strings.HasPrefix(f.Function, "github.com/usmbridge/usmbridge/memmgr.") &&
		!strings.HasSuffix(filepath.Base(f.File), "_test.go")
}

// formerStack returns where the memory of a stale handle was allocated, if that
// is still known.
func formerStack(r owner.Ref) string {
	stacks.mu.Lock()
	f := stacks.former[r.Cell().Index()%uint32(len(stacks.former))]
	stacks.mu.Unlock()
	if f.ref != r {
		return ""
	}
	return stackText(f.stack)
}
