//go:build cgo && linux

package pymodule_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// A panic in a function that C calls must not unwind through C: each exported function defers guard, or a function that
// recovers, in its first two statements. The exceptions call nothing that panics, or must end the program if it does.
func TestExportedFunctionsRecover(t *testing.T) {
	exceptions := map[string]bool{"usmb_go_stop": true}
	exported := 0
	for _, file := range testenv.Must(filepath.Glob("exports*_cgo.go"))(t) {
		parsed := testenv.Must(parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments))(t)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Doc == nil || !strings.Contains(f.Doc.List[len(f.Doc.List)-1].Text, "//export "+f.Name.Name) {
				continue
			}
			exported++
			require.True(t, exceptions[f.Name.Name] || recovers(f), "%s: %s has no guard against panics", file, f.Name.Name)
		}
	}
	require.NotZero(t, exported)
}

func recovers(f *ast.FuncDecl) (found bool) {
	for _, s := range f.Body.List[:min(2, len(f.Body.List))] {
		if d, ok := s.(*ast.DeferStmt); ok {
			ast.Inspect(d, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				found = found || ok && (id.Name == "guard" || id.Name == "recover")
				return true
			})
		}
	}
	return found
}
