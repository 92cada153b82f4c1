package python_test

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

// floors lists the C files of this package in order. A file includes, and therefore calls,
// only files before it.
var floors = []string{
	"usmb_pyfuncs",  // the list of CPython's functions
	"usmb_pytable",  // CPython's types, the table and its loader
	"usmb_pymacros", // CPython's names for the members of the table
	"usmb_pyapi",    // CPython's C API for C files
	"usmb_pychild",  // forked children: signals, their end
	"usmb_pystate",  // entering, drains, shutdown
	"usmb_pyinit",   // built-in modules, starting the interpreter
	"usmb_pyresult", // the beginning and the end of an operation
	"usmb_pycall",   // calls with a context
	"usmb_pyvalues", // conversion of values and texts
	"usmb_pygo",     // Go values held by Python
	"usmb_pyerror",
	"usmb_pyobject",
}

func TestCFilesIncludeOnlyLowerOnes(t *testing.T) {
	files := testenv.Must(filepath.Glob("*.[ch]"))(t)
	require.NotEmpty(t, files)
	include := regexp.MustCompile(`(?m)^#include "(.+)\.h"`)
	for _, file := range files {
		name := strings.TrimSuffix(file, filepath.Ext(file))
		floor := slices.Index(floors, name)
		require.NotEqual(t, -1, floor, "%s has no floor", file)
		text := testenv.Must(os.ReadFile(file))(t)
		for _, m := range include.FindAllStringSubmatch(string(text), -1) {
			below := slices.Index(floors, m[1])
			require.NotEqual(t, -1, below, "%s includes %s.h", file, m[1])
			if m[1] != name {
				require.Less(t, below, floor, "%s includes %s.h, which stands above it", file, m[1])
			}
		}
	}
}

// TestTableHasNoUnusedRows checks that each row of the table is used. Every start looks up
// all rows and fails if a required one is missing.
func TestTableHasNoUnusedRows(t *testing.T) {
	used := map[string]bool{}
	for _, pattern := range []string{"*.[ch]", "../pymodule/*.[ch]", "../internal/calls/*.[ch]", "internal/testmod/*.c", "*.go"} {
		for _, file := range testenv.Must(filepath.Glob(pattern))(t) {
			switch file {
			case "usmb_pyfuncs.h", "usmb_pymacros.h", "usmb_pytable.c":
				continue
			}
			text := testenv.Must(os.ReadFile(file))(t)
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
