package memmgr_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// partOf has the types that the parts of a Pool in this package consist of. The compiler separates the other parts.
var partOf = map[string]string{
	"waitlist": "waitlist", "waiter": "waitlist", "waitLine": "waitlist", "reservation": "waitlist", "sharedBudget": "waitlist",
	"reclaim": "reclaim", "refusals": "reclaim", "vainLimit": "reclaim",
}

// TestPartsOfAPoolAreSeparate checks the methods of each part: they have no parameter, result or variable of type
// *Pool, and access no field of another part. Methods of *Pool connect the parts.
func TestPartsOfAPoolAreSeparate(t *testing.T) {
	var files []*ast.File
	set := token.NewFileSet()
	pkg := testenv.Must(build.ImportDir(".", 0))(t)
	for _, name := range append(pkg.GoFiles, pkg.CgoFiles...) {
		files = append(files, testenv.Must(parser.ParseFile(set, name, nil, 0))(t))
	}
	info := types.Info{Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: emptyImporter{}, FakeImportC: true, Error: func(error) {}}
	checked, _ := config.Check("memmgr", set, files, &info) // identifiers of other packages are errors
	for name := range partOf {
		require.NotNil(t, checked.Scope().Lookup(name), name)
	}
	var part string
	var wrong []string
	report := func(n ast.Node, what string) {
		wrong = append(wrong, fmt.Sprintf("%s: a method of part %s %s", set.Position(n.Pos()), part, what))
	}
	visit := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			method := info.Defs[n.Name].(*types.Func).Signature().Recv()
			if method == nil {
				return false
			}
			part = partOf[typeName(method.Type())]
			return part != ""
		case *ast.Ident:
			if defined := info.Defs[n]; defined != nil && typeName(defined.Type()) == "Pool" {
				report(n, "has a variable of type Pool")
			}
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal {
				if of := typeName(s.Recv()); of == "Pool" || partOf[of] != "" && partOf[of] != part {
					report(n, "accesses "+of+"."+n.Sel.Name)
				}
			}
		}
		return true
	}
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				ast.Inspect(f, visit)
			}
		}
	}
	require.Empty(t, wrong)
}

// emptyImporter imports packages without their contents.
type emptyImporter struct{}

func (emptyImporter) Import(at string) (*types.Package, error) {
	p := types.NewPackage(at, path.Base(at))
	p.MarkComplete()
	return p, nil
}

// typeName returns the name of a type of the package, or of the one that it is a pointer to, a slice, an array or a
// map of; "" if it has none.
func typeName(t types.Type) string {
	for {
		switch u := t.(type) {
		case *types.Named:
			if u.Obj().Pkg() == nil || u.Obj().Pkg().Path() != "memmgr" {
				return ""
			}
			return u.Obj().Name()
		case interface{ Elem() types.Type }: // a pointer, slice, array or map
			t = u.Elem()
		default:
			return ""
		}
	}
}
