package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestPagesNameExistingFiles checks that the files and directories named by CONTRIBUTING.md, README.md and
// docs/architecture.md exist.
func TestPagesNameExistingFiles(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	needNestedModules(t, root)
	file := regexp.MustCompile("[`(]((?:dlpack|examples|internal|interop|memmgr|syclobj|usmarray)/[a-z0-9_./-]*[a-z0-9_])[`)]")
	for _, page := range []string{"CONTRIBUTING.md", "README.md", "docs/architecture.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		names := file.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, names)
		for _, m := range names {
			_, err := os.Stat(filepath.Join(root, m[1]))
			require.NoError(t, err, "%s names it", page)
		}
	}
}

// needNestedModules ends the test if root, the directory of the module, contains no nested modules, as in
// the module cache.
func needNestedModules(t testing.TB, root string) {
	t.Helper()
	nested, err := filepath.Glob(filepath.Join(root, "*", "*", "go.mod"))
	require.NoError(t, err)
	if len(nested) == 0 {
		testenv.Missing(t, root+" has no nested modules; run this test in the repository", testenv.Python, testenv.SYCL, testenv.Peers)
	}
}
