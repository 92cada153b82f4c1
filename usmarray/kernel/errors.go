package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/syclobj"
)

// OpError is the type of every error of this package. It is a value: it owns nothing and may be read by
// several goroutines.
type OpError struct {
	Op     string // "Launch", "Start"
	Kernel string // the name of the kernel
	Index  int    // the index of the invalid argument from 0, or -1
	Arg    string // the argument: "float64", "a float32 array of shape (3, 4)"
	Err    error  // the problem and a hint; it wraps a kind of syclobj or usmarray
}

// Error returns "kernel: Op: kernel Kernel: argument Index, Arg: Err".
func (e *OpError) Error() string {
	s := "kernel: " + e.Op + ": "
	if e.Kernel != "" {
		s += "kernel " + e.Kernel + ": "
	}
	if e.Index >= 0 {
		s += fmt.Sprintf("argument %d, %s: ", e.Index, e.Arg)
	}
	return s + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
}

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// opErr returns a failure that does not concern an argument.
func opErr(op string, k *syclobj.Kernel, err error) error {
	e := &OpError{Op: op, Index: -1, Err: err}
	if k != nil {
		e.Kernel = k.Name()
	}
	return e
}

// argErr returns a failure of one argument.
func argErr(op string, k *syclobj.Kernel, i int, a *Arg, err error) error {
	return &OpError{Op: op, Kernel: k.Name(), Index: i, Arg: a.String(), Err: err}
}

// fromSubmit converts an error of syclobj's launch about the same argument.
func fromSubmit(op string, k *syclobj.Kernel, args []Arg, err error) error {
	if e := (*syclobj.KernelError)(nil); errors.As(err, &e) && e.Index >= 0 {
		return argErr(op, k, e.Index, &args[e.Index], e.Err)
	}
	return opErr(op, k, err)
}
