// Package childenv is the environment of programs that are run only to be asked something:
// packages syclobj and interop/python ask a Python. Its function may be called from any
// goroutine.
package childenv

import (
	"path/filepath"
	"slices"
	"strings"
)

// lists are the variables that name directories which code is taken from.
var lists = []string{"PATH", "PYTHONPATH", "LD_LIBRARY_PATH"}

// Absolute returns the environment without parts that depend on the working directory. Of
// the variables that name directories of code it keeps only absolute parts, and removes a
// variable that has none. An empty part means the working directory too.
func Absolute(environ []string) []string {
	var clean []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !slices.Contains(lists, name) {
			clean = append(clean, kv)
			continue
		}
		parts := slices.DeleteFunc(filepath.SplitList(value), func(p string) bool { return !filepath.IsAbs(p) })
		if len(parts) > 0 {
			clean = append(clean, name+"="+strings.Join(parts, string(filepath.ListSeparator)))
		}
	}
	return clean
}
