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

// depot holds every distinct stack once, by number, so that a cell carries four
// bytes. Programs have few distinct places of allocation.
var depot = struct {
	mu     sync.Mutex
	seed   maphash.Seed
	byHash map[uint64][]uint32
	stacks [][]uintptr
	// The stacks of memory that is gone, for the panic on use after release.
	former [4096]formerRecord
}{seed: maphash.MakeSeed(), byHash: map[uint64][]uint32{}, stacks: make([][]uintptr, 1)}

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
	depot.mu.Lock()
	depot.former[c.Index()%uint32(len(depot.former))] = formerRecord{r, c.Stack}
	depot.mu.Unlock()
	c.Stack = 0
}

// captureStack returns the number of the caller's stack.
func captureStack(depth, skip int) uint32 {
	var pcs [64]uintptr
	n := runtime.Callers(skip+1, pcs[:depth])
	var h maphash.Hash
	h.SetSeed(depot.seed)
	for _, pc := range pcs[:n] {
		maphash.WriteComparable(&h, pc)
	}
	sum := h.Sum64()
	depot.mu.Lock()
	defer depot.mu.Unlock()
next:
	for _, number := range depot.byHash[sum] {
		s := depot.stacks[number]
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
	number := uint32(len(depot.stacks))
	depot.stacks = append(depot.stacks, append([]uintptr(nil), pcs[:n]...))
	depot.byHash[sum] = append(depot.byHash[sum], number)
	return number
}

// stackPCs returns the frames of a recorded stack, for profiles.
func stackPCs(number uint32) []uintptr {
	depot.mu.Lock()
	defer depot.mu.Unlock()
	if int(number) >= len(depot.stacks) {
		return nil
	}
	return depot.stacks[number]
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
	depot.mu.Lock()
	f := depot.former[r.Cell().Index()%uint32(len(depot.former))]
	depot.mu.Unlock()
	if f.ref != r {
		return ""
	}
	return stackText(f.stack)
}
