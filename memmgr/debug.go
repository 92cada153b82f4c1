package memmgr

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"

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
const DebugEnv = "USMBRIDGE_DEBUG"

// debug holds the words that were given.
var debug = readDebug(os.Getenv(DebugEnv))

type debugging struct{ stacks, poison, leaks bool }

// debugStackDepth is how many frames the word "stacks" records.
const debugStackDepth = 16

func readDebug(words string) (d debugging) {
	known := map[string]*bool{"stacks": &d.stacks, "poison": &d.poison, "leaks": &d.leaks}
	for word := range strings.SplitSeq(words, ",") {
		word = strings.TrimSpace(word)
		if on, ok := known[word]; ok {
			*on = true
		} else if word != "" {
			fmt.Fprintf(os.Stderr, "usmbridge: %s has the word %q; known are stacks, poison and leaks\n", DebugEnv, word)
		}
	}
	if d.stacks {
		RecordStacks(debugStackDepth)
	}
	return d
}

// DebugLeaks reports whether [DebugEnv] asks for arrays that were forgotten.
func DebugLeaks() bool { return debug.leaks }

// debugFindings counts what found was told.
var debugFindings atomic.Uint64

// Found tells of a mistake of the program that one of the checks of [DebugEnv] found
// and that no panic can tell: to the logger of [SetLogger], else to the standard
// error. place is where the memory was allocated, "" when that is not known.
func Found(what, place string) {
	debugFindings.Add(1)
	if l := logger.Load(); l != nil {
		l.Warn("usmbridge: "+what, "allocated", place)
		return
	}
	if place != "" {
		what += "; allocated at\n" + place
	}
	fmt.Fprintln(os.Stderr, "usmbridge: "+what)
}

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
	Found(what, stackText(former.stack))
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
