package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/internal/treetest"
)

// TestMapNamesWhatIsThere checks that the files and directories named by CONTRIBUTING.md, README.md and
// docs/architecture.md exist.
func TestMapNamesWhatIsThere(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	treetest.NeedNestedModules(t, root)
	file := regexp.MustCompile("[`(]((?:dlpack|examples|interop|memmgr|syclobj|usmarray)/[a-z0-9_./-]*[a-z0-9_])[`)]")
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
