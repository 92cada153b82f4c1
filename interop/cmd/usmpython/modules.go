package main

import (
	"slices"
	"strings"

	"github.com/usmbridge/usmbridge/interop/pymodule"
)

// registerModules makes the built-in modules known to the interpreter.
func registerModules() error { return pymodule.Register() }

// builtIn is the name of the built-in package.
const builtIn = "usmbridge"

// namePackage replaces `-m usmbridge` by `-m usmbridge.__main__`. runpy does not recognize a built-in module
// as a package until it has been imported; __main__ is the module that it would run.
func namePackage(args []string) []string {
	for i := 0; i < len(args); i++ {
		letters, ok := strings.CutPrefix(args[i], "-")
		if !ok || letters == "" {
			return args // a script, or - for standard input: the rest are its arguments
		}
		if strings.HasPrefix(letters, "-") {
			if letters == "-check-hash-based-pycs" {
				i++
			}
			continue
		}
		at := strings.IndexAny(letters, "cmWX") // options whose value is the rest of the argument, or the next one
		if at < 0 {
			continue
		}
		value := letters[at+1:]
		if letters[at] == 'm' {
			switch {
			case value == builtIn:
				args = slices.Clone(args)
				args[i] += ".__main__"
			case value == "" && i+1 < len(args) && args[i+1] == builtIn:
				args = slices.Clone(args)
				args[i+1] += ".__main__"
			}
		}
		if letters[at] == 'c' || letters[at] == 'm' {
			return args // the rest are arguments of the program
		}
		if value == "" {
			i++
		}
	}
	return args
}
