// Package diag reports problems of a program or of its devices that no caller can be told
// of, and ends the background work of this module. Package memmgr has the public side:
// SetLogger and DebugEnv.
package diag

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// Env is the environment variable that turns checks on.
const Env = "USMBRIDGE_DEBUG"

// Checks are the checks that [Env] can name.
type Checks struct{ Stacks, Poison, Leaks bool }

// Enabled are the checks that the environment named when the process started.
var Enabled = read(os.Getenv(Env))

func read(words string) (c Checks) {
	checks := map[string]*bool{"stacks": &c.Stacks, "poison": &c.Poison, "leaks": &c.Leaks}
	for word := range strings.SplitSeq(words, ",") {
		word = strings.TrimSpace(word)
		if on, ok := checks[word]; ok {
			*on = true
		} else if word != "" {
			fmt.Fprintf(os.Stderr, "usmbridge: %s has the word %q; known are stacks, poison and leaks\n", Env, word)
		}
	}
	return c
}

var logger atomic.Pointer[slog.Logger]

// SetLogger sets the logger, nil for none.
func SetLogger(l *slog.Logger) { logger.Store(l) }

// Failures counts the calls of [Failed].
var Failures atomic.Uint64

// Findings counts the calls of [Found].
var Findings atomic.Uint64

// Failed logs a failure of background work: the operation, and why it failed. The caller
// holds no lock that the logger could need.
func Failed(op string, err error) {
	Failures.Add(1)
	if l := logger.Load(); l != nil {
		l.Error("usmbridge: work in the background failed", "op", op, "error", err)
	}
}

// Found logs a mistake of the program that a check found and that no panic can report. It
// writes to the standard error where there is no logger. place is where the memory was
// allocated, "" when that was not recorded.
func Found(what, place string) {
	Findings.Add(1)
	if l := logger.Load(); l != nil {
		l.Warn("usmbridge: "+what, "allocated", place)
		return
	}
	if place != "" {
		what += "; allocated at\n" + place
	}
	fmt.Fprintln(os.Stderr, "usmbridge: "+what)
}

var stop struct {
	mu    sync.Mutex
	hooks []func()
}

// OnStop registers a function for [StopBackground].
func OnStop(f func()) {
	stop.mu.Lock()
	defer stop.mu.Unlock()
	stop.hooks = append(stop.hooks, f)
}

// StopBackground ends the background work of this module for good and waits for what is
// in progress. It may be called again. It is for a process that is about to end through
// C's exit, as Python's own does: the destructors that run then take SYCL down under such
// work. Memory can still be allocated and released; what C drops afterwards is leaked, and
// memory with pending work waits for memmgr.Flush. A Go program that ends by itself need
// not call it.
func StopBackground() {
	stop.mu.Lock()
	defer stop.mu.Unlock()
	for _, f := range stop.hooks {
		f()
	}
}
