package workers

import (
	"errors"
	"fmt"
	"time"
)

// Reasons, for errors.Is, beside those of package executor.
var (
	// ErrDied: the worker ended in the call, which may have done anything before. errors.As
	// finds a *Death.
	ErrDied = errors.New("its worker died")
	// ErrRestarts: every worker has been started as often as Config.Restarts allows within
	// Config.Window, and none is tried before that is over.
	ErrRestarts = errors.New("the workers die too often")
	// ErrTooLong: the values of a call or of a result take more than Config.MaxMessage.
	ErrTooLong = errors.New("too long a message")
	// ErrMessage: the other process sent what is no message of this package.
	ErrMessage = errors.New("not a message")
)

// Death is how the process of a worker ended.
type Death struct {
	Worker    int           // which of the Pool's, from 0
	PID       int           // 0 where none could be started
	Status    string        // "signal: killed", "exit status 3"
	Reason    error         // why the Pool ended it, or what it said that failed; nil where nobody knows
	LastWords string        // the end of what it wrote to standard output and standard error
	After     time.Duration // since it was started
	At        time.Time
}

// Error tells which process ended how, and what it wrote last.
func (d *Death) Error() string {
	s := fmt.Sprintf("worker %d", d.Worker)
	if d.PID != 0 {
		s += fmt.Sprintf(", process %d", d.PID)
	}
	if d.Status != "" {
		s += ": " + d.Status
	}
	if d.Reason != nil {
		s += ": " + d.Reason.Error()
	}
	if d.LastWords != "" {
		s += "; its last words:\n" + d.LastWords
	}
	return s
}

// Unwrap gives the reason.
func (d *Death) Unwrap() error { return d.Reason }
