package main

import (
	"slices"
	"strings"

	"github.com/usmbridge/usmbridge/interop/pymodule"
)

// registerModules makes the built-in modules known to the interpreter.
func registerModules() error { return pymodule.Register() }

// builtIn is the package that is built in.
const builtIn = "usmbridge"

// namePackage turns `-m usmbridge` into `-m usmbridge.__main__`. For runpy a built-in
// module is no package until it has been imported; this is the module that it would run.
func namePackage(args []string) []string {
	for i := 0; i < len(args); i++ {
		letters, ok := strings.CutPrefix(args[i], "-")
		if !ok || letters == "" {
			return args // a script, or - for standard input: the rest is its own
		}
		if strings.HasPrefix(letters, "-") {
			if letters == "-check-hash-based-pycs" {
				i++
			}
			continue
		}
		at := strings.IndexAny(letters, "cmWX") // those that take the rest, or the next
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
			return args // the end of Python's own
		}
		if value == "" {
			i++
		}
	}
	return args
}
