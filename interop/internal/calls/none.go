//go:build !(cgo && linux)

package calls

import (
	"context"
	"errors"
	"time"

	"github.com/usmbridge/usmbridge/interop/python"
)

// Item is no call here: there is no Python.
type Item struct{}

// New makes none.
func New() *Item { return nil }

// Begin does nothing.
func (*Item) Begin(context.Context) {}

// End does nothing.
func (*Item) End() {}

// State is Done.
func (*Item) State() State { return Done }

// Move moves nothing.
func (*Item) Move(State, State) bool { return false }

// MoveToRunning moves nothing.
func (*Item) MoveToRunning() bool { return false }

// Ran is false.
func (*Item) Ran() bool { return false }

// Took is 0.
func (*Item) Took() int64 { return 0 }

// Interrupt does nothing.
func (*Item) Interrupt(error) {}

// Plain is true.
func (*Item) Plain() bool { return true }

// Result is errors.ErrUnsupported.
func (*Item) Result() (any, error) { return nil, errors.ErrUnsupported }

// SetArguments writes nothing.
func (*Item) SetArguments([]any) bool { return false }

// SetArgumentsWith is errors.ErrUnsupported.
func (*Item) SetArgumentsWith(*python.Interpreter, []any) (*Arguments, error) {
	return nil, errors.ErrUnsupported
}

// Arguments are none.
type Arguments struct{}

// Release does nothing.
func (*Arguments) Release() {}

// Batch has no calls.
type Batch struct{}

// NewBatch makes none.
func NewBatch() *Batch { return nil }

// Reset does nothing.
func (*Batch) Reset() {}

// Add does nothing.
func (*Batch) Add(*Item, *python.Object) {}

// Run does nothing.
func (*Batch) Run() {}

// Ended is 0.
func (*Batch) Ended() int { return 0 }

// At is 0.
func (*Batch) At(int) int { return 0 }

// TakeBack takes nothing.
func (*Batch) TakeBack(int) bool { return false }

// Current is none.
func (*Batch) Current() (int, time.Duration) { return -1, 0 }
