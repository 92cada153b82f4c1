//go:build !(cgo && linux)

package calls

import (
	"context"
	"errors"
	"time"

	"github.com/usmbridge/usmbridge/interop/python"
)

// Item is a call. Without cgo there is no Python, and no call is made.
type Item struct{}

// New returns nil.
func New() *Item { return nil }

// Begin does nothing.
func (*Item) Begin(context.Context) {}

// End does nothing.
func (*Item) End() {}

// State returns Done.
func (*Item) State() State { return Done }

// Move returns false.
func (*Item) Move(State, State) bool { return false }

// MoveToRunning returns false.
func (*Item) MoveToRunning() bool { return false }

// Ran returns false.
func (*Item) Ran() bool { return false }

// Took returns 0.
func (*Item) Took() int64 { return 0 }

// Interrupt does nothing.
func (*Item) Interrupt(error) {}

// Plain returns true.
func (*Item) Plain() bool { return true }

// Result returns errors.ErrUnsupported.
func (*Item) Result() (any, error) { return nil, errors.ErrUnsupported }

// SetArguments returns false.
func (*Item) SetArguments([]any) bool { return false }

// SetArgumentsWith returns errors.ErrUnsupported.
func (*Item) SetArgumentsWith(*python.Interpreter, []any) error { return errors.ErrUnsupported }

// ReleaseArguments does nothing.
func (*Item) ReleaseArguments() {}

// Batch is a row of calls.
type Batch struct{}

// NewBatch returns nil.
func NewBatch() *Batch { return nil }

// Reset does nothing.
func (*Batch) Reset() {}

// Add does nothing.
func (*Batch) Add(*Item, *python.Object) {}

// Run does nothing.
func (*Batch) Run() {}

// Ended returns 0.
func (*Batch) Ended() int { return 0 }

// At returns 0.
func (*Batch) At(int) int { return 0 }

// TakeBack returns false.
func (*Batch) TakeBack(int) bool { return false }

// Current returns -1.
func (*Batch) Current() (int, time.Duration) { return -1, 0 }
