// Command adopt is built as a shared library, the extension module usmb_adopted, by
// a test: Go code that finds itself in a process which is Python already.
package main

/*
#cgo CFLAGS: -std=gnu11 -I${SRCDIR}/../..
#include "adopt.h"
*/
import "C"

import (
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/interop/python"
)

func main() {}

// check is what the module's function run does: it returns nil or an exception.
//
//export usmb_adopted_check
func usmb_adopted_check() C.int {
	if err := check(); err != nil {
		python.Raise(err)
		return -1
	}
	return 0
}

func check() error {
	py, err := python.Start()
	if err != nil {
		return err
	}
	if !py.Adopted() {
		return errors.New("not adopted")
	}
	if _, err := python.Start(python.WithEnvironment(&python.Environment{Prefix: "/elsewhere"})); !errors.Is(err, python.ErrConflict) {
		return fmt.Errorf("another Python was accepted: %v", err)
	}
	out, err := py.Run("import sys; r = [sys.prefix, sys.executable, sys.base_prefix]", nil, "r")
	if err != nil {
		return err
	}
	env := py.Environment()
	if got := fmt.Sprint(out["r"]); got != fmt.Sprint([]any{env.Prefix, env.Executable, env.BasePrefix}) {
		return fmt.Errorf("environment %+v, Python says %s", env, got)
	}
	// Another goroutine enters while this thread waits without the GIL.
	done := make(chan error)
	go func() {
		_, err := py.Run("x = 1", nil)
		done <- err
	}()
	py.WithoutGIL(func() { err = <-done })
	return errors.Join(err, py.Close()) // Close leaves an adopted interpreter alone
}
