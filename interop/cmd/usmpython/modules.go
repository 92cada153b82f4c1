package main

import "github.com/usmbridge/usmbridge/interop/pymodule"

// registerModules makes the built-in modules known to the interpreter.
func registerModules() error { return pymodule.Register() }
