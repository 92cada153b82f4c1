//go:build linux && cgo

package python_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

// BenchmarkPython measures an entry into Python and common operations. It embeds the Python
// that Find returns.
func BenchmarkPython(b *testing.B) {
	env, err := python.Find()
	if err != nil {
		b.Skipf("no Python to embed: %v", err)
	}
	py := testenv.Must(python.Start(python.WithEnvironment(env)))(b)
	f := testenv.Must(py.Eval("lambda x: x", nil))(b)
	back := testenv.Must(py.New(func(a python.Args) (any, error) { return nil, nil }))(b)
	operations := map[string]func(){
		"int":      func() { o, _ := py.New(1 << 40); o.Release() },
		"call":     func() { o, _ := f.Call(1); o.Release() },
		"callback": func() { o, _ := back.Call(); o.Release() },
		"attr":     func() { o, _ := f.Attr("__name__"); o.Release() },
	}
	b.Run("With", func(b *testing.B) {
		for b.Loop() {
			_ = py.With(func() error { return nil })
		}
	})
	for name, op := range operations {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				op()
			}
		})
		b.Run(name+" inside With", func(b *testing.B) {
			_ = py.With(func() error {
				for b.Loop() {
					op()
				}
				return nil
			})
		})
	}
}
