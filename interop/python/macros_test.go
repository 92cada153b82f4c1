package python_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestMacros checks that usmb_pymacros.h matches the lists of usmb_pyfuncs.h.
func TestMacros(t *testing.T) {
	want := macros(t)
	require.Equal(t, want, testenv.Generated(t, "usmb_pymacros.h", want), "run CGO_ENABLED=0 go test ./interop/python -run TestMacros -update")
}

// TestStableABI checks that the required members of the table are in the stable ABI of CPython 3.11. Tools for
// wheels cannot check this, because the members are found with dlsym. testdata/stable_abi_3.11.txt has the
// names of the members that Misc/stable_abi.toml of CPython 3.11 lists.
func TestStableABI(t *testing.T) {
	text := testenv.Must(os.ReadFile("testdata/stable_abi_3.11.txt"))(t)
	var names []string
	for _, list := range []string{"REQUIRED", "EXCEPTIONS", "TYPES"} {
		names = append(names, tableNames(t, list)...)
	}
	source, err := os.ReadFile("usmb_pytable.c") // the structs of the singletons
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`X\(Py_\w+, (_Py_\w+)\)`).FindAllSubmatch(source, -1) {
		names = append(names, string(m[1]))
	}
	later := []string{"PyObject_Vectorcall", "PyObject_VectorcallMethod", "PyUnicode_AsUTF8"} // exported by 3.11, stable since 3.12 and 3.13
	require.ElementsMatch(t, append(strings.Fields(string(text)), later...), names)
}

// macros returns the text of usmb_pymacros.h.
func macros(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`/*
 * usmb_pymacros.h: CPython's names for the required members of the table usmb_py.
 * Generated from usmb_pyfuncs.h; do not edit. To generate it:
 * CGO_ENABLED=0 go test ./interop/python -run TestMacros -update
 */
#ifndef USMB_PYMACROS_H
#define USMB_PYMACROS_H

`)
	for _, list := range []struct{ name, format string }{
		{"REQUIRED", "#define %[1]s usmb_py.%[1]s\n"},
		{"SINGLETONS", "#define %[1]s usmb_py.%[1]s\n"},
		{"EXCEPTIONS", "#define %[1]s usmb_py.%[1]s\n"},
		{"TYPES", "#define %[1]s (*usmb_py.%[1]s)\n"},
	} {
		for _, name := range tableNames(t, list.name) {
			fmt.Fprintf(&b, list.format, name)
		}
	}
	b.WriteString("\n#endif /* USMB_PYMACROS_H */\n")
	return b.String()
}

// tableNames returns the names in the list USMB_PY_<list> of usmb_pyfuncs.h.
func tableNames(t *testing.T, list string) []string {
	t.Helper()
	text := testenv.Must(os.ReadFile("usmb_pyfuncs.h"))(t)
	_, rows, found := strings.Cut(string(text), "#define USMB_PY_"+list+"(X)")
	require.True(t, found, list)
	rows, _, _ = strings.Cut(rows, "\n\n")
	var names []string
	for _, m := range regexp.MustCompile(`X\((?:[^,()\n]+, )?(_?Py\w+)`).FindAllStringSubmatch(rows, -1) {
		names = append(names, m[1])
	}
	require.NotEmpty(t, names, list)
	return names
}
