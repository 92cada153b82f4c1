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
// docs/internals.md exists in this package, in one below it or in internal/owner.
func TestInternalsPageNamesExistingIdentifiers(t *testing.T) {
	page := testenv.Must(os.ReadFile("../docs/internals.md"))(t)
	declared := declaredNames(t, ".", "internal/account", "internal/block", "internal/front", "internal/heap", "internal/order", "internal/pending", "internal/purge", "internal/tlsf", "../internal/owner")
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

// declaredNames returns the names of the functions, methods, types, constants, variables and
// fields that the packages in some folders declare outside of their tests.
func declaredNames(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range folders {
		for _, file := range parseFolder(t, folder) {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					names[n.Name.Name] = true
				case *ast.TypeSpec:
					names[n.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range n.Names {
						names[name.Name] = true
					}
				case *ast.StructType:
					for _, field := range n.Fields.List {
						for _, name := range field.Names {
							names[name.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	return names
}

// parseFolder parses the Go files of a folder, without those of tests.
func parseFolder(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	paths := testenv.Must(filepath.Glob(filepath.Join(folder, "*.go")))(t)
	require.NotEmpty(t, paths)
	set := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := testenv.Must(parser.ParseFile(set, path, nil, 0))(t)
		files = append(files, file)
	}
	return files
}
