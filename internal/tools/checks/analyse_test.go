package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnalyse checks that the script finds each mistake, and accepts correct code.
func TestAnalyse(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("no gcc: %v", err)
	}
	for _, test := range []struct {
		name, file, text string
		want             string // in the output; "": no warning
	}{
		{"clean", "a.c", "int twice(int n);\nint twice(int n)\n{\n\treturn 2 * n;\n}\n", ""},
		{"a narrowing", "a.c", "char cut(long n);\nchar cut(long n)\n{\n\treturn n;\n}\n", "a.c:4"},
		{"a comparison of signs", "a.c", "int less(int a, unsigned b);\nint less(int a, unsigned b)\n{\n\treturn a < b;\n}\n", "a.c:4"},
		{
			"a use after free", "a.c",
			"#include <stdlib.h>\nint used(int *p);\nint used(int *p)\n{\n\tfree(p);\n\treturn *p;\n}\n",
			"a.c:6",
		},
		{
			"a leak before import C", "a.go",
			"package a\n\n/*\n#cgo LDFLAGS: -lm\n#include <stdlib.h>\nstatic int lost(void)\n{\n\tchar *p = malloc(1);\n\treturn p != NULL;\n}\n*/\nimport \"C\"\n\nfunc f() { C.lost() }\n",
			"a.go:9",
		},
		{"no C", "a.go", "package a\n", "no C found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), test.file)
			require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
			cmd := exec.CommandContext(t.Context(), "bash", "analyse.sh", file)
			cmd.Env = append(os.Environ(), "CC=gcc", "LC_ALL=C")
			out, err := cmd.CombinedOutput()
			if test.want == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "%s", out)
			assert.Contains(t, string(out), test.want)
		})
	}
}
