// Package treetest helps tests that read the source tree of the project. The module cache
// holds a tree without the nested modules: each module there is a tree of its own.
package treetest

import (
	"os"
	"path/filepath"
	"testing"
)

// NeedNestedModules skips the test if root, the directory of the module, contains no nested
// modules. If a variable USMBRIDGE_REQUIRE_* is set, the tests run in the repository, and
// NeedNestedModules fails the test instead.
func NeedNestedModules(t testing.TB, root string) {
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
