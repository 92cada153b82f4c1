package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/cute"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/safetensors"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// TestErrorsShareAShape checks that the operation errors of all packages have the operation in Op and
// the reason in Err, and that errors.Is and errors.As find the reason. The errors of package cute have
// the texts of CuTe DSL, which name no operation.
func TestErrorsShareAShape(t *testing.T) {
	for _, e := range []error{
		&dlpack.Error{}, &syclobj.OpError{}, &memmgr.OpError{}, &segment.OpError{}, &share.OpError{}, &npy.OpError{}, &safetensors.OpError{}, &usmarray.OpError{}, &python.OpError{},
		&syclobj.BuildError{}, &syclobj.KernelError{}, &kernel.OpError{},
	} {
		of := reflect.TypeOf(e).Elem()
		op, ok := of.FieldByName("Op")
		require.True(t, ok && op.Type.Kind() == reflect.String, "%v has no Op", of)
		reason, ok := of.FieldByName("Err")
		require.True(t, ok && reason.Type == reflect.TypeFor[error](), "%v has no Err", of)
		seesThrough(t, e)
	}
	seesThrough(t, &cute.Error{})
	for _, e := range []error{&memmgr.UseError{}, &usmarray.UseError{}, &python.UseError{}} {
		of := reflect.TypeOf(e).Elem()
		op, ok := of.FieldByName("Op")
		require.True(t, ok && op.Type.Kind() == reflect.String, "%v has no Op", of)
	}
}

func seesThrough(t *testing.T, e error) {
	t.Helper()
	_, one := e.(interface{ Unwrap() error })
	_, many := e.(interface{ Unwrap() []error })
	require.True(t, one || many, "%T has no Unwrap", e)
}

// TestNoPanicIsAString checks that the value of a panic is an error. Internal packages may panic with
// a string.
func TestNoPanicIsAString(t *testing.T) {
	seen := 0
	for path, p := range list(t) {
		if !ours(path) || p.Name == "main" || strings.Contains(path, "/internal/") || strings.HasSuffix(path, "test") {
			continue
		}
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" {
					seen++
					require.False(t, isText(call.Args[0]), "%s: a panic with a string; make it an error", set.Position(call.Pos()))
				}
				return true
			})
		}
	}
	require.Greater(t, seen, 10)
}

// isText reports whether an expression is a string, as far as its syntax shows.
func isText(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.BasicLit:
		return x.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(x.X) || isText(x.Y)
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		return ok && strings.HasPrefix(f.Sel.Name, "Sprint")
	}
	return false
}
