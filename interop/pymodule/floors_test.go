package pymodule

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// floors are the C files in order: a file uses the functions and variables of files before
// it only.
var floors = []string{
	"support", "dtype", "convert", "sycl", "dpnp", "storage", "array", "order", "fork", "create", "buffer", "dlpack", "suai",
	"cuda", "arrow", "numpy", "asarray", "index", "pickle", "share", "cute", "numba", "handover",
	"array_type", "module",
}

// headers are the headers in order: a header includes headers before it only.
var headers = []string{
	"support", "convert", "storage", "sycl", "dpnp", "array", "order", "fork", "create", "exchange", "handover", "cute", "module",
}

var (
	comments    = regexp.MustCompile(`(?s)/\*.*?\*/`)
	includes    = regexp.MustCompile(`(?m)^#include "([a-z_]+)\.h"$`)
	rowOfFile   = regexp.MustCompile("(?m)^\\| `([a-z_]+)\\.c` \\|")
	identifiers = regexp.MustCompile(`\b(?:usmb|USMB)_\w+`)
	functions   = regexp.MustCompile(`(?m)^[A-Za-z_][\w *]*[ *](usmb_\w+)\([^;{}]*\)\n\{`)
	variables   = regexp.MustCompile(`(?m)^[A-Za-z_][\w *]*[ *](usmb_\w+)(?:\[\w*\])?(?: = [^;]*)?;`)
)

// source is a C file or header without its comments.
type source struct {
	includes []string // headers of this package
	words    []string // identifiers of this module
	defines  []string // functions and variables that other files can use
}

func read(t *testing.T, path string) source {
	t.Helper()
	raw := testenv.Must(os.ReadFile(path))(t)
	text := comments.ReplaceAllString(string(raw), "")
	var s source
	for _, m := range includes.FindAllStringSubmatch(text, -1) {
		if slices.Contains(headers, m[1]) {
			s.includes = append(s.includes, m[1])
		}
	}
	s.words = identifiers.FindAllString(text, -1)
	for _, found := range [][][]string{functions.FindAllStringSubmatch(text, -1), variables.FindAllStringSubmatch(text, -1)} {
		for _, m := range found {
			if !strings.HasPrefix(m[0], "static ") && !strings.HasPrefix(m[0], "extern ") {
				s.defines = append(s.defines, m[1])
			}
		}
	}
	return s
}

// names returns the base names of the files that match pattern, without their extension.
func names(t *testing.T, pattern string) []string {
	t.Helper()
	paths := testenv.Must(filepath.Glob(pattern))(t)
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(p, filepath.Ext(p))
	}
	return paths
}

// TestFloors holds the order of the C files: no two files use functions of each other.
func TestFloors(t *testing.T) {
	require.ElementsMatch(t, floors, names(t, "*.c"), "the list must name each C file")
	var rows []string
	page := testenv.Must(os.ReadFile(filepath.Join(testenv.Root(), "docs", "architecture.md")))(t)
	for _, row := range rowOfFile.FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, row[1])
	}
	require.Equal(t, floors, rows, "docs/architecture.md")
	owner := map[string]int{} // of a function or variable: the position of its file
	for i, name := range floors {
		for _, f := range read(t, name+".c").defines {
			owner[f] = i
		}
	}
	require.Greater(t, len(owner), 100)
	for i, name := range floors {
		for _, w := range read(t, name+".c").words {
			if at, ok := owner[w]; ok {
				require.LessOrEqualf(t, at, i, "%s.c uses %s of %s.c, which is a later file", name, w, floors[at])
			}
		}
	}
}

// TestHeaders holds the order of the headers. A C file includes headers of which it uses a
// name, and no others.
func TestHeaders(t *testing.T) {
	require.ElementsMatch(t, headers, names(t, "*.h"), "the list must name each header")
	words := map[string][]string{}
	for i, name := range headers {
		h := read(t, name+".h")
		words[name] = h.words
		for _, included := range h.includes {
			require.Lessf(t, slices.Index(headers, included), i, "%s.h includes %s.h, which is a later file", name, included)
		}
	}
	for _, name := range floors {
		f := read(t, name+".c")
		for _, h := range f.includes {
			used := slices.ContainsFunc(words[h], func(w string) bool { return slices.Contains(f.words, w) })
			require.Truef(t, used, "%s.c includes %s.h and uses nothing of it", name, h)
		}
	}
}
