package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMapNamesWhatIsThere checks that the files and directories named by CONTRIBUTING.md, README.md and
// docs/architecture.md exist.
func TestMapNamesWhatIsThere(t *testing.T) {
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

// needNestedModules skips the test if root, the directory of the module, contains no nested modules, as in
// the module cache. If a variable USMBRIDGE_REQUIRE_* is set, the tests run in the repository, and
// needNestedModules fails the test instead.
func needNestedModules(t testing.TB, root string) {
	t.Helper()
	nested, err := filepath.Glob(filepath.Join(root, "*", "*", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if len(nested) > 0 {
		return
	}
	for _, name := range []string{"USMBRIDGE_REQUIRE_PYTHON", "USMBRIDGE_REQUIRE_SYCL", "USMBRIDGE_REQUIRE_PEERS"} {
		if os.Getenv(name) != "" {
			t.Fatalf("%s is set, and %s has no nested modules; run the tests in the repository", name, root)
		}
	}
	t.Skipf("%s has no nested modules, as in the module cache; run this test in the repository", root)
}
