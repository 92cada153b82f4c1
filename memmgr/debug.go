package memmgr

import (
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
)

// DebugEnv is the environment variable that turns checks on, as a comma-separated list of
// words:
//
//   - stacks: every allocation and last release records its place ([RecordStacks]), so that
//     leak reports and panics on use after release name both. A second release is logged.
//   - poison: host-readable memory of pools is filled when it is allocated and when it is
//     freed. If it was written in between, the next allocation of it panics with a
//     [*UseError].
//   - leaks: arrays that own memory and are collected without Release are counted and
//     logged (package usmarray). Their memory stays allocated.
//
// It is read once, when the process starts. The checks cost nothing when they are off:
// membench's work "off" compares with a build without them.
const DebugEnv = diag.Env

// debug holds the checks that are on.
var debug = diag.Enabled

func init() {
	if debug.Stacks {
		RecordStacks(debugStackDepth)
	}
}

// SetLogger sets the logger for failures that reach no caller, such as a release in the
// background, and for findings of the checks of [DebugEnv]. Failures are errors, mistakes of
// the program are warnings. nil, the default, logs nothing; findings of the checks are then
// written to the standard error. It may be called at any time. The logger is called on any
// goroutine, with no lock of this package held.
func SetLogger(l *slog.Logger) { diag.SetLogger(l) }

// backgroundFailed logs a failure of background work. No lock of a pool is held.
func backgroundFailed(op string, err error) { diag.Failed(op, err) }

// releasedAgain logs the release of a handle after the last reference.
func (b Buffer) releasedAgain() {
	if b.ref.Cell() == nil {
		return // the zero Buffer may always be released
	}
	former := stacks.Former(b.ref)
	found := "a buffer was released again after its last reference was gone"
	if former.Released != 0 {
		found += "; the last reference was released at\n" + stackText(former.Released)
	}
	diag.Found(found, stackText(former.Stack))
}

// The patterns of memory before and after use. A pool that poisons marks the cells of filled
// blocks and compares a marked block before it is allocated again. A block that loses its cell
// loses the mark.
const (
	poisonNew   = 0xAA
	poisonFreed = 0xDD
)

// hostBytes returns a host-readable block as a slice.
func hostBytes(c *owner.Cell) []byte { return unsafe.Slice((*byte)(c.Data()), c.Size) }

func fillHost(c *owner.Cell, value byte) {
	b := hostBytes(c)
	for i := range b {
		b[i] = value
	}
}

// poisonFree fills a block that was freed.
func (p *Pool) poisonFree(c *owner.Cell) {
	if !p.poisons {
		return
	}
	fillHost(c, poisonFreed)
	c.SetFlags(owner.Poisoned)
}

// poisonFresh panics if the block was written since it was freed, and fills it for its new
// user. It does nothing to a block with pending work.
func (p *Pool) poisonFresh(c *owner.Cell) {
	if !p.poisons || c.Pending() != 0 {
		return
	}
	if c.Flags()&owner.Poisoned != 0 {
		c.ClearFlags(owner.Poisoned)
		for i, v := range hostBytes(c) {
			if v != poisonFreed {
				err := misuse("Pool.Allocate", "the freed block of %d bytes at %#x was written: byte %d is %#02x", c.Size, c.Address, i, v)
				err.Released = stackText(stacks.FormerAt(c).Released)
				panic(err)
			}
		}
	}
	fillHost(c, poisonNew)
}

// RecordStacks sets how many frames of the place of allocation are recorded, at most 64; 0,
// the default, records none. Recording costs about 300 ns per allocation. It has no effect
// on memory that is already allocated.
func RecordStacks(depth int) { stacks.Depth.Store(int32(max(0, min(depth, 64)))) }

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

// stackText returns a recorded stack as text.
func stackText(number uint32) string { return Stack(stacks.Of(number)).String() }

// internalFrame reports whether a frame is code of this package and its parts, their tests excepted.
func internalFrame(f runtime.Frame) bool {
	name, ours := strings.CutPrefix(f.Function, "github.com/usmbridge/usmbridge/memmgr")
	return ours && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/internal/")) &&
		!strings.HasSuffix(filepath.Base(f.File), "_test.go")
}
