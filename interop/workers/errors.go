package workers

import (
	"errors"
	"fmt"
	"time"
)

// Errors for errors.Is, in addition to those of package executor.
var (
	// ErrDied: the worker ended during the call. The call may have had any effect before. errors.As
	// finds a *Death.
	ErrDied = errors.New("its worker died")
	// ErrRestarts: every worker was restarted as often within Config.Window as Config.Restarts
	// allows. None is started before the window has passed.
	ErrRestarts = errors.New("the workers die too often")
	// ErrTooLong: the values of a call or of a result take more than Config.MaxMessage, or the arrays of a result
	// that must be copied take more than Config.Memory.Result.
	ErrTooLong = errors.New("too long a message")
	// ErrMessage: the other process sent an invalid message.
	ErrMessage = errors.New("not a message")
)

// Death is how the process of a worker ended.
type Death struct {
	Worker     int           // index in the Pool, from 0
	PID        int           // 0 if no process could be started
	Status     string        // "signal: killed", "exit status 3"
	Reason     error         // why the Pool killed it, or the failure that it reported; nil if unknown
	LastOutput string        // the end of its standard output and standard error
	After      time.Duration // time from its start to its end
	At         time.Time
}

// Error names the process, how it ended, and its last output.
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
	if d.LastOutput != "" {
		s += "; its last output:\n" + d.LastOutput
	}
	return s
}

// Unwrap returns the reason.
func (d *Death) Unwrap() error { return d.Reason }
