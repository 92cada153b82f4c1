package memmgr

import (
	"log/slog"

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
