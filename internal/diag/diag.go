// Package diag reports problems that no function call can return, and stops the background work of
// this module. Package memmgr has the public functions: SetLogger and DebugEnv.
package diag

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// Env is the environment variable that enables checks.
const Env = "USMBRIDGE_DEBUG"

// Checks are the checks that [Env] can enable.
type Checks struct{ Stacks, Poison, Leaks bool }

// Enabled are the checks that were enabled when the process started.
var Enabled = read(os.Getenv(Env))

func read(words string) (c Checks) {
	checks := map[string]*bool{"stacks": &c.Stacks, "poison": &c.Poison, "leaks": &c.Leaks}
	for word := range strings.SplitSeq(words, ",") {
		word = strings.TrimSpace(word)
		if on, ok := checks[word]; ok {
			*on = true
		} else if word != "" {
			fmt.Fprintf(os.Stderr, "usmbridge: %s: unknown check %q; use stacks, poison or leaks\n", Env, word)
		}
	}
	return c
}

var logger atomic.Pointer[slog.Logger]

// SetLogger sets the logger. nil removes it.
func SetLogger(l *slog.Logger) { logger.Store(l) }

// Failures counts the calls of [Failed].
var Failures atomic.Uint64

// Findings counts the calls of [Found].
var Findings atomic.Uint64

// Failed logs a failure of background work: the operation and its error. The caller must not hold a
// lock that the logger could need.
func Failed(op string, err error) {
	Failures.Add(1)
	if l := logger.Load(); l != nil {
		l.Error("usmbridge: work in the background failed", "op", op, "error", err)
	}
}

// Found logs an error of the program that a check found and that cannot be reported by a panic. It
// writes to standard error if there is no logger. place is the stack of the allocation, "" if it was
// not recorded.
func Found(problem, place string) {
	Findings.Add(1)
	if l := logger.Load(); l != nil {
		l.Warn("usmbridge: "+problem, "allocated", place)
		return
	}
	if place != "" {
		problem += "; allocated at\n" + place
	}
	fmt.Fprintln(os.Stderr, "usmbridge: "+problem)
}

var stop struct {
	mu    sync.Mutex
	hooks []func()
}

// OnStop registers a function that [StopBackground] calls.
func OnStop(f func()) {
	stop.mu.Lock()
	defer stop.mu.Unlock()
	stop.hooks = append(stop.hooks, f)
}

// StopBackground stops the background work of this module for good and waits for work in progress.
// Further calls are allowed. Call it before a process ends through C's exit, as Python does: the
// destructors that run then unload SYCL while such work could use it. Memory can still be allocated
// and released. Memory that C drops afterwards is leaked, and memory with pending work is freed only by
// memmgr.Flush. A Go program that returns from main need not call it.
func StopBackground() {
	stop.mu.Lock()
	defer stop.mu.Unlock()
	for _, f := range stop.hooks {
		f()
	}
}
