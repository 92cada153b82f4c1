package pymodule

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors are the C files from the ground up, as the package documentation has them. A
// header that several files share is named with the lowest of them.
var floors = [][]string{
	{"support", "dtype", "typeinfo", "dpctl", "device", "syclref"},
	{"storage", "kept", "tensor"},
	{"array"},
	{"create", "copy"},
	{"promote", "element", "operators", "numpy", "assign", "retype", "full", "pickle", "index", "export", "arrow", "arrow_in", "exchange", "import", "buffer", "suai", "suai_in", "sequence", "asarray", "cute_tensor", "cute", "numba", "handover", "share"},
	{"array_type", "module", "package"},
}

func floorOf(name string) int {
	return slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, name) })
}

var (
	includes    = regexp.MustCompile(`(?m)^#include "usmb_(\w+)\.h"$`)
	comments    = regexp.MustCompile(`(?s)/\*.*?\*/`)
	identifiers = regexp.MustCompile(`\b(?:usmb|USMB)_\w+`)
)

// source is a C file or header: the headers of this package that it includes, and the
// identifiers of this module in the rest of it.
type source struct {
	includes []string
	words    map[string]bool
}

func read(t *testing.T, path string) source {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	s := source{words: map[string]bool{}}
	for _, m := range includes.FindAllStringSubmatch(string(raw), -1) {
		if floorOf(m[1]) >= 0 {
			s.includes = append(s.includes, m[1])
		}
	}
	for _, w := range identifiers.FindAllString(comments.ReplaceAllString(string(raw), ""), -1) {
		s.words[w] = true
	}
	return s
}

// TestFloors holds the order of the C files: no file and no header includes one of a
// floor above its own, nothing includes in a circle, and a C file includes the headers
// that it uses and no others.
func TestFloors(t *testing.T) {
	headers := map[string]source{}
	paths, err := filepath.Glob("usmb_*.h")
	require.NoError(t, err)
	for _, p := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(p, "usmb_"), ".h")
		require.GreaterOrEqualf(t, floorOf(name), 0, "%s belongs to no floor: name it in the list", p)
		headers[name] = read(t, p)
	}
	for name, h := range headers {
		for _, below := range h.includes {
			require.LessOrEqualf(t, floorOf(below), floorOf(name), "usmb_%s.h includes usmb_%s.h of a floor above", name, below)
		}
	}
	for name := range headers {
		require.NotContainsf(t, reach(headers, name, nil), name, "usmb_%s.h includes itself", name)
	}
	files, err := filepath.Glob("*.c")
	require.NoError(t, err)
	listed := 0
	for _, p := range files {
		name := strings.TrimSuffix(p, ".c")
		require.GreaterOrEqualf(t, floorOf(name), 0, "%s belongs to no floor: name it in the list", p)
		listed++
		f := read(t, p)
		for _, h := range f.includes {
			require.LessOrEqualf(t, floorOf(h), floorOf(name), "%s includes usmb_%s.h of a floor above", p, h)
			used := slices.ContainsFunc(keys(f.words), func(w string) bool { return headers[h].words[w] })
			require.Truef(t, used, "%s includes usmb_%s.h and uses nothing of it", p, h)
		}
	}
	for _, f := range floors {
		listed -= len(f)
	}
	require.Zero(t, listed, "the list names files that there are not")
}

// reach lists the headers that a header includes, at any depth.
func reach(headers map[string]source, name string, seen []string) []string {
	for _, h := range headers[name].includes {
		if !slices.Contains(seen, h) {
			seen = reach(headers, h, append(seen, h))
		}
	}
	return seen
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}
