package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/syclobj"
)

// OpError is the type of every error of this package.
type OpError struct {
	Op     string // "Launch", "Start"
	Kernel string // its name
	Index  int    // of the argument that is wrong, from 0; -1 when it is none of them
	Arg    string // what was given: "float64", "a float32 array of shape (3, 4)"
	Err    error  // what was wanted, what was found, what to do
}

// Error names the operation, the kernel, the argument and the reason.
func (e *OpError) Error() string {
	s := "usmarray/kernel: " + e.Op + ": "
	if e.Kernel != "" {
		s += "kernel " + e.Kernel + ": "
	}
	if e.Index >= 0 {
		s += fmt.Sprintf("argument %d, %s: ", e.Index, e.Arg)
	}
	return s + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
}

// Unwrap gives the reason.
func (e *OpError) Unwrap() error { return e.Err }

// opErr is a failure that no argument is to blame for.
func opErr(op string, k *syclobj.Kernel, err error) error {
	e := &OpError{Op: op, Index: -1, Err: err}
	if k != nil {
		e.Kernel = k.Name()
	}
	return e
}

// argErr is a failure of one argument.
func argErr(op string, k *syclobj.Kernel, i int, a *Arg, err error) error {
	return &OpError{Op: op, Kernel: k.Name(), Index: i, Arg: a.String(), Err: err}
}

// fromBelow is an error of syclobj's launch, of the same argument.
func fromBelow(op string, k *syclobj.Kernel, args []Arg, err error) error {
	if e := (*syclobj.KernelError)(nil); errors.As(err, &e) && e.Index >= 0 {
		return argErr(op, k, e.Index, &args[e.Index], e.Err)
	}
	return opErr(op, k, err)
}
