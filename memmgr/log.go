package memmgr

import (
	"log/slog"
	"sync/atomic"
)

// logger is told of what reaches no caller; nil when nobody wants to know.
var logger atomic.Pointer[slog.Logger]

// SetLogger names the logger for what fails or goes wrong where no caller could be
// told, such as a release in the background, and for what USMBRIDGE_DEBUG finds.
// Failures are errors, what a program forgot is a warning. nil, the default, logs
// nothing; what USMBRIDGE_DEBUG finds is then written to the standard error. It
// may be called at any time; the logger is called on any goroutine, with no lock
// of this package held.
func SetLogger(l *slog.Logger) { logger.Store(l) }

// backgroundFailures counts what backgroundFailed was told.
var backgroundFailures atomic.Uint64

// backgroundFailed tells of a failure of work that nobody waits for: what was tried,
// and why it failed. No lock of a pool is held.
func backgroundFailed(op string, err error) {
	backgroundFailures.Add(1)
	if l := logger.Load(); l != nil {
		l.Error("usmbridge: work in the background failed", "op", op, "error", err)
	}
}
