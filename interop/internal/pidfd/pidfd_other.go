//go:build !linux

package pidfd

import (
	"errors"
	"fmt"
	"time"
)

// Process is a process descriptor. There are none on this system.
type Process struct{}

var errUnsupported = fmt.Errorf("waiting for any process needs Linux: %w", errors.ErrUnsupported)

// Open fails.
func Open(int) (*Process, error) { return nil, errUnsupported }

// Of fails.
func Of(int) (*Process, error) { return nil, errUnsupported }

// Wait fails.
func (*Process) Wait() error { return errUnsupported }

// WaitUntil fails.
func (*Process) WaitUntil(time.Time) error { return errUnsupported }

// Close does nothing.
func (*Process) Close() {}
