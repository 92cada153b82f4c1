package memmgr_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestInternalsPageNamesExistingIdentifiers checks that each identifier and file in backticks on
// docs/internals.md is one of this package, of one below it, of internal/owner, or of the C headers.
func TestInternalsPageNamesExistingIdentifiers(t *testing.T) {
	page := testenv.Must(os.ReadFile("../docs/internals.md"))(t)
	declared := usedNames(t, ".", "internal/account", "internal/block", "internal/front", "internal/heap", "internal/order", "internal/pending", "internal/purge", "internal/tlsf", "../internal/owner")
	for _, folder := range []string{"../internal/owner", "../syclobj", "../interop/pymodule"} {
		for _, path := range testenv.Must(filepath.Glob(filepath.Join(folder, "*.h")))(t) {
			for _, name := range regexp.MustCompile(`\busmb_\w+`).FindAllString(string(testenv.Must(os.ReadFile(path))(t)), -1) {
				declared[name] = true
			}
		}
	}
	quoted := regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, quoted)
	var missing []string
	for _, m := range quoted {
		name := strings.TrimSuffix(m[1], "()")
		switch {
		case strings.Contains(name, "/") || strings.HasSuffix(name, ".go"):
			if _, err := os.Stat(filepath.Join("..", name)); err != nil {
				missing = append(missing, name)
			}
		case name == "memmgr" || name == "usmb_checks" || strings.HasPrefix(name, "make "):
		default:
			for _, part := range strings.Split(name, ".") {
				if !declared[part] {
					missing = append(missing, name)
				}
			}
		}
	}
	require.Empty(t, missing, "docs/internals.md names identifiers or files that do not exist: correct the page")
}

// usedNames returns the identifiers in the Go files of some folders, without those of tests.
func usedNames(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	names, set := map[string]bool{}, token.NewFileSet()
	for _, folder := range folders {
		for _, path := range testenv.Must(filepath.Glob(filepath.Join(folder, "*.go")))(t) {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			ast.Inspect(testenv.Must(parser.ParseFile(set, path, nil, 0))(t), func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok {
					names[name.Name] = true
				}
				return true
			})
		}
	}
	return names
}
