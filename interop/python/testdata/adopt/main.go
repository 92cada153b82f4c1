// Command adopt is the extension module usmb_adopted, which a test builds as a shared
// library. Its Go code runs in a process that runs Python already.
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

// usmb_adopted_check implements the function run of the module. It returns 0, or -1 with an
// exception.
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
	// Another goroutine enters Python while this thread waits without the GIL.
	done := make(chan error)
	go func() {
		_, err := py.Run("x = 1", nil)
		done <- err
	}()
	py.WithoutGIL(func() { err = <-done })
	return errors.Join(err, py.Close()) // Close does nothing on an adopted interpreter.
}
