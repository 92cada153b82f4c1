// Package childenv prepares the environment of helper programs: packages syclobj and interop/python run a
// Python to query it. Its function may be called from any goroutine.
package childenv

import (
	"path/filepath"
	"slices"
	"strings"
)

// lists are the variables with directories from which code is loaded.
var lists = []string{"PATH", "PYTHONPATH", "LD_LIBRARY_PATH"}

// Absolute returns the environment without dependencies on the working directory: of the variables with
// directories from which code is loaded, only absolute parts are kept, and a variable without any is
// removed. An empty part also means the working directory.
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
