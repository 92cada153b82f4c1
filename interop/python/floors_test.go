package python_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors are the C files of this package from the ground up: a file includes, and so
// calls, only what stands before it.
var floors = []string{
	"usmb_pyfuncs",  // the list of CPython's functions
	"usmb_pytable",  // CPython's types, the table and what fills it
	"usmb_pymacros", // CPython's names for the members of the table
	"usmb_pyapi",    // CPython's C API as C files use it
	"usmb_pysignals",
	"usmb_pystate", // entering, drains, the end, fork
	"usmb_pymodules",
	"usmb_pyinit",
	"usmb_pyresult", // how an operation begins and ends
	"usmb_pycall",   // calls with a context
	"usmb_pytext",
	"usmb_pyvalues",
	"usmb_pygo", // Go values held by Python
	"usmb_pyerror",
	"usmb_pyobject",
}

func TestCFilesIncludeOnlyLowerOnes(t *testing.T) {
	files, err := filepath.Glob("*.[ch]")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	include := regexp.MustCompile(`(?m)^#include "(.+)\.h"`)
	for _, file := range files {
		name := strings.TrimSuffix(file, filepath.Ext(file))
		floor := slices.Index(floors, name)
		require.NotEqual(t, -1, floor, "%s has no floor", file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range include.FindAllStringSubmatch(string(text), -1) {
			below := slices.Index(floors, m[1])
			require.NotEqual(t, -1, below, "%s includes %s.h", file, m[1])
			if m[1] != name {
				require.Less(t, below, floor, "%s includes %s.h, which stands above it", file, m[1])
			}
		}
	}
}

// TestTableHasNoUnusedRows: each row is looked up at every start, and one that is
// missing refuses a Python.
func TestTableHasNoUnusedRows(t *testing.T) {
	used := map[string]bool{}
	for _, pattern := range []string{"*.[ch]", "../pymodule/*.[ch]", "../internal/calls/*.[ch]", "internal/testmod/*.c", "*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			switch file {
			case "usmb_pyfuncs.h", "usmb_pymacros.h", "usmb_pytable.c":
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			code := regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAllString(string(text), "")
			for _, name := range regexp.MustCompile(`\b_?Py\w+`).FindAllString(code, -1) {
				used[name] = true
			}
		}
	}
	for _, list := range []string{"REQUIRED", "OPTIONAL", "SINGLETONS", "EXCEPTIONS", "TYPES"} {
		for _, name := range tableNames(t, list) {
			require.True(t, used[name], "%s is not used: remove it from the list", name)
		}
	}
}
