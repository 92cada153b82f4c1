package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnalyse checks that the script finds each mistake, and accepts correct code.
func TestAnalyse(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("no gcc: %v", err)
	}
	for _, test := range []struct{ file, text, problem string }{
		{"clean.c", "int twice(int n);\nint twice(int n)\n{\n\treturn 2 * n;\n}\n", ""},
		{"narrowing.c", "char cut(long n);\nchar cut(long n)\n{\n\treturn n;\n}\n", "narrowing.c:4"},
		{"signs.c", "int less(int a, unsigned b);\nint less(int a, unsigned b)\n{\n\treturn a < b;\n}\n", "signs.c:4"},
		{"freed.c", "#include <stdlib.h>\nint used(int *p);\nint used(int *p)\n{\n\tfree(p);\n\treturn *p;\n}\n", "freed.c:6"},
		{"leak.go", "package a\n\n/*\n#cgo LDFLAGS: -lm\n#include <stdlib.h>\nstatic int lost(void)\n{\n\tchar *p = malloc(1);\n\treturn p != NULL;\n}\n*/\nimport \"C\"\n\nfunc f() { C.lost() }\n", "leak.go:9"},
		{"none.go", "package a\n", "no C found"},
	} {
		file := filepath.Join(t.TempDir(), test.file)
		require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
		cmd := exec.Command("bash", "analyse.sh", file)
		cmd.Env = append(os.Environ(), "CC=gcc", "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		require.Equal(t, test.problem != "", err != nil, "%s: %s", test.file, out)
		require.Contains(t, string(out), test.problem)
	}
}
