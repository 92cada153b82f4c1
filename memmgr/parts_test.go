package memmgr_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// parts are the types of the parts of a Pool that are in this package. The compiler separates the others.
var parts = []string{"waitlist", "reclaim"}

// shared are types that parts hand to each other, and descriptions that all parts read.
var shared = []string{"poolMutex", "want"}

// TestPartsOfAPoolAreSeparate checks the methods of each part, and of the types that only this part
// consists of: they have no parameter, result or variable of type *Pool, and access no field of
// another part. Methods of *Pool connect the parts.
func TestPartsOfAPoolAreSeparate(t *testing.T) {
	pkg := checkPackage(t, ".")
	pool := pkg.lookup("Pool")
	require.NotNil(t, pool)
	partOf := map[*types.TypeName]string{}
	for _, name := range shared {
		partOf[pkg.lookup(name)] = ""
	}
	for _, part := range parts {
		name := pkg.lookup(part)
		require.NotNil(t, name, part)
		require.True(t, hasField(pool, name), part)
		pkg.assign(partOf, name, part)
	}
	var wrong []string
	pkg.eachMethod(func(receiver *types.TypeName, method *ast.FuncDecl) {
		part := partOf[receiver]
		if part == "" {
			return
		}
		report := func(n ast.Node, format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("%s: method %s of part %s ", pkg.set.Position(n.Pos()), method.Name.Name, part)+
				fmt.Sprintf(format, args...))
		}
		ast.Inspect(method, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if object := pkg.info.Defs[n]; object != nil && typeName(object.Type()) == pool {
					report(n, "has the variable %s of type Pool", n.Name)
				}
			case *ast.SelectorExpr:
				selected := pkg.info.Selections[n]
				if selected == nil || selected.Kind() != types.FieldVal {
					return true
				}
				switch of := typeName(selected.Recv()); {
				case of == nil:
				case of == pool:
					report(n, "accesses Pool.%s", n.Sel.Name)
				case partOf[of] != "" && partOf[of] != part:
					report(n, "accesses %s.%s of part %s", of.Name(), n.Sel.Name, partOf[of])
				}
			}
			return true
		})
	})
	require.Empty(t, wrong)
}

// checkedPackage is the syntax of a package with the types of its own declarations. Imported packages
// are empty.
type checkedPackage struct {
	set   *token.FileSet
	files []*ast.File
	types *types.Package
	info  types.Info
}

type emptyImporter struct{}

func (emptyImporter) Import(at string) (*types.Package, error) {
	p := types.NewPackage(at, path.Base(at))
	p.MarkComplete()
	return p, nil
}

func checkPackage(t *testing.T, folder string) *checkedPackage {
	t.Helper()
	p := &checkedPackage{set: token.NewFileSet()}
	entries := testenv.Must(os.ReadDir(folder))(t)
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if matches, err := build.Default.MatchFile(folder, name); err != nil || !matches {
			continue
		}
		file := testenv.Must(parser.ParseFile(p.set, path.Join(folder, name), nil, 0))(t)
		p.files = append(p.files, file)
	}
	p.info = types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: emptyImporter{}, FakeImportC: true, Error: func(error) {}}
	p.types, _ = config.Check("memmgr", p.set, p.files, &p.info) // identifiers of other packages are errors
	return p
}

func (p *checkedPackage) lookup(name string) *types.TypeName {
	object, _ := p.types.Scope().Lookup(name).(*types.TypeName)
	return object
}

// assign records that a type and the unexported structs that its fields consist of belong to a part. A
// type that several parts consist of belongs to none of them.
func (p *checkedPackage) assign(partOf map[*types.TypeName]string, name *types.TypeName, part string) {
	if name == nil || name.Pkg() != p.types || name.Exported() {
		return
	}
	if other, known := partOf[name]; known {
		if other != part {
			partOf[name] = ""
		}
		return
	}
	partOf[name] = part
	fields, ok := name.Type().Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i := range fields.NumFields() {
		p.assign(partOf, typeName(fields.Field(i).Type()), part)
	}
}

// typeName returns the name of a type, or of the type that it is a pointer to, a slice, an array or a
// map of; nil if it has none.
func typeName(t types.Type) *types.TypeName {
	for {
		switch u := t.(type) {
		case *types.Named:
			return u.Obj()
		case *types.Pointer:
			t = u.Elem()
		case *types.Slice:
			t = u.Elem()
		case *types.Array:
			t = u.Elem()
		case *types.Map:
			t = u.Elem()
		default:
			return nil
		}
	}
}

func hasField(of, is *types.TypeName) bool {
	fields := of.Type().Underlying().(*types.Struct)
	for i := range fields.NumFields() {
		if typeName(fields.Field(i).Type()) == is {
			return true
		}
	}
	return false
}

// eachMethod calls f for each method of the package with the type of its receiver.
func (p *checkedPackage) eachMethod(f func(receiver *types.TypeName, method *ast.FuncDecl)) {
	for _, file := range p.files {
		for _, decl := range file.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil {
				continue
			}
			if object, ok := p.info.Defs[method.Name].(*types.Func); ok {
				f(typeName(object.Signature().Recv().Type()), method)
			}
		}
	}
}
