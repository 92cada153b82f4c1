package memmgr

import (
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/internal/owner"
)

// DebugEnv is the environment variable that turns checks on in a program as it
// stands, as a list of words with commas between them:
//
//   - stacks: every allocation and last release notes its place ([RecordStacks]),
//     so that reports of leaks and panics on use after release name both, and a
//     release of what was released before is logged.
//   - poison: memory of pools that the host can read is filled when it is given out
//     and again when it comes back, and a write to it in between is a panic with a
//     [*CorruptionError] when the memory is next given out. [NewPoison] finds
//     writes beyond a block's ends as well.
//   - leaks: arrays that own memory and are collected without Release are counted
//     and logged (package usmarray). Their memory stays allocated.
//
// It is read once, when the process starts. Without it nothing of this costs
// anything: membench's work "off" measures that against a build without the checks.
const DebugEnv = diag.Env

// debug holds the checks that are on.
var debug = diag.Enabled

// debugStackDepth is how many frames the word "stacks" records.
const debugStackDepth = 16

func init() {
	if debug.Stacks {
		RecordStacks(debugStackDepth)
	}
}

// SetLogger sets the logger for failures that reach no caller, such as a release in the
// background, and for what the checks of [DebugEnv] find. Failures are errors, mistakes of
// the program are warnings. nil, the default, logs nothing; what the checks find is then
// written to the standard error. It may be called at any time. The logger is called on any
// goroutine, with no lock of this package held.
func SetLogger(l *slog.Logger) { diag.SetLogger(l) }

// backgroundFailed logs a failure of background work. No lock of a pool is held.
func backgroundFailed(op string, err error) { diag.Failed(op, err) }

// releasedAgain notes that a stale handle was released.
func (b Buffer) releasedAgain() {
	if b.ref.Cell() == nil {
		return // the zero Buffer may always be released
	}
	former := formerOf(b.ref)
	what := "a buffer was released again after its last reference was gone"
	if former.released != 0 {
		what += "; the last reference was released at\n" + stackText(former.released)
	}
	diag.Found(what, stackText(former.stack))
}

// A pool that poisons marks the cells whose blocks are filled, and looks at each
// when it is given out again. A block whose cell went has no mark, whatever
// happened to its pages meanwhile.

// poisonFree fills a block that nobody uses any more.
func (p *Pool) poisonFree(c *owner.Cell) {
	if !p.poisons {
		return
	}
	fillHost(c.Address, uintptr(c.Size), poisonFreed)
	c.SetFlags(owner.Poisoned)
}

// poisonFresh looks whether the block was written to since it was filled, and
// fills it for its new user. What is queued on a device for it is left alone.
func (p *Pool) poisonFresh(c *owner.Cell) {
	if !p.poisons || c.Pending() != 0 {
		return
	}
	if c.Flags()&owner.Poisoned != 0 {
		c.ResetFlags(c.Flags() &^ owner.Poisoned) // a tenant's stays charged
		for i, v := range hostBytes(c.Address, uintptr(c.Size)) {
			if v != poisonFreed {
				panic(&CorruptionError{
					Address: c.Address, Size: uintptr(c.Size), Offset: i, Found: v, Freed: true,
					Released: stackText(formerAt(c).released),
				})
			}
		}
	}
	fillHost(c.Address, uintptr(c.Size), poisonNew)
}

// stackDepth is how many frames to record, 0 for none.
var stackDepth atomic.Int32

// RecordStacks turns the recording of places of allocation on (depth frames,
// at most 64) or off (0). It costs about 300 ns an allocation, so it is off
// until asked for. Memory allocated before stays without a place.
func RecordStacks(depth int) { stackDepth.Store(int32(max(0, min(depth, 64)))) }

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
	ref      owner.Ref
	stack    uint32 // of the allocation
	released uint32 // of the last release, 0 when that was C's
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
	r := formerRecord{ref: c.Ref(), stack: c.Stack}
	if depth := stackDepth.Load(); depth != 0 {
		r.released = captureStack(int(depth), 3)
	}
	stacks.mu.Lock()
	stacks.former[c.Index()%uint32(len(stacks.former))] = r
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

// Stack is a recorded place of allocation: program counters as runtime.Callers returns
// them, innermost first. It must not be changed.
type Stack []uintptr

// Frames yields the frames of a stack, innermost first, without those of this package.
func (s Stack) Frames() iter.Seq[runtime.Frame] {
	return func(yield func(runtime.Frame) bool) {
		if len(s) == 0 {
			return
		}
		frames := runtime.CallersFrames(s)
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if f.Function != "" && !internalFrame(f) && !yield(f) {
				return
			}
		}
	}
}

// String returns function, file and line of each of [Stack.Frames], in two lines each. It
// is "" for an empty stack.
func (s Stack) String() string {
	var b strings.Builder
	for f := range s.Frames() {
		fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

// stackOf returns a recorded stack by its number.
func stackOf(number uint32) Stack {
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	if int(number) >= len(stacks.all) {
		return nil
	}
	return stacks.all[number]
}

// stackText returns a recorded stack as text.
func stackText(number uint32) string { return stackOf(number).String() }

// internalFrame reports whether a frame is code of this package, its tests excepted.
func internalFrame(f runtime.Frame) bool {
	return strings.HasPrefix(f.Function, "github.com/usmbridge/usmbridge/memmgr.") &&
		!strings.HasSuffix(filepath.Base(f.File), "_test.go")
}

// formerOf returns what is known of the memory of a stale handle, nothing when
// other memory has taken its place in the table.
func formerOf(r owner.Ref) formerRecord {
	if f := formerAt(r.Cell()); f.ref == r {
		return f
	}
	return formerRecord{}
}

// formerAt returns the record in a cell's place of the table.
func formerAt(c *owner.Cell) formerRecord {
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	return stacks.former[c.Index()%uint32(len(stacks.former))]
}
