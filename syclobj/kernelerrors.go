package syclobj

import (
	"fmt"
	"strings"
)

// BuildError is a program that could not be built. It matches ErrFailed when the compiler
// refused the program, and then has its words where OpenCL gives them.
type BuildError struct {
	Op     string
	Device string // for which it was to be built, by its filter string
	Log    string // what the compiler says, at most 64 KiB of it
	Err    error
}

// Error gives the reason and the compiler's words.
func (e *BuildError) Error() string {
	s := "syclobj: " + e.Op + ": for " + e.Device + ": " + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
	if log := strings.TrimSpace(e.Log); log != "" {
		s += ":\n" + log
	}
	return s
}

// Unwrap gives the reason.
func (e *BuildError) Unwrap() error { return e.Err }

// KernelError is a launch that was refused: for one of its arguments, or as a whole.
type KernelError struct {
	Op     string
	Kernel string // its name
	Index  int    // of the argument, from 0; -1 when it is not about one
	Arg    string // what was given: "float64", "a pointer"
	Err    error  // a Code, or a more specific error
}

// Error names the kernel, the argument and the reason.
func (e *KernelError) Error() string {
	s := "syclobj: " + e.Op + ": kernel " + e.Kernel + ": "
	if e.Index >= 0 {
		s += fmt.Sprintf("argument %d, %s: ", e.Index, e.Arg)
	}
	return s + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
}

// Unwrap gives the reason.
func (e *KernelError) Unwrap() error { return e.Err }
