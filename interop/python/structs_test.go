//go:build linux && cgo

package python_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
)

type base struct {
	ID int `python:"id"`
}

type point struct {
	X, Y float64
}

type model struct {
	base
	*Extra
	Name    string           `python:"name"`
	Shape   []int            `python:"shape"`
	At      *point           `python:"at"`
	Corners []point          `python:"corners"`
	ByName  map[string]point `python:"by_name"`
	Limit   *big.Int         `python:"limit,omitempty"`
	Note    string           `python:"note,omitempty"`
	Left    chan int         `python:"-"`
}

type Extra struct {
	Scale float32 `python:"scale"`
}

type cyclic struct {
	Name string  `python:"name"`
	Next *cyclic `python:"next"`
}

func testStructs(t *testing.T, py *python.Interpreter) {
	m := model{base: base{7}, Extra: &Extra{0.5}, Name: "sobel", Shape: []int{-1, 3}, At: &point{1, 2},
		Corners: []point{{0, 1}, {2, 3}}, ByName: map[string]point{"a": {4, 5}}, Limit: big.NewInt(9)}
	out, err := py.Run("r = repr(m)\ns = m", python.Vars{"m": m}, "r", "s")
	require.NoError(t, err)
	require.Equal(t, "{'id': 7, 'scale': 0.5, 'name': 'sobel', 'shape': [-1, 3], 'at': {'X': 1.0, 'Y': 2.0}, "+
		"'corners': [{'X': 0.0, 'Y': 1.0}, {'X': 2.0, 'Y': 3.0}], 'by_name': {'a': {'X': 4.0, 'Y': 5.0}}, 'limit': 9}", out["r"])

	// Back, from a dict, from attributes, from a named tuple.
	for _, code := range []string{
		"v = m",
		"from types import SimpleNamespace as S\nv = S(**m); v.at = S(**m['at']); v.corners = tuple(S(**c) for c in m['corners'])",
		"from collections import namedtuple\nv = namedtuple('M', list(m))(**m)",
		"from dataclasses import make_dataclass\nv = make_dataclass('M', list(m))(**m)",
	} {
		f := ok[*python.Object](t)(py.Eval("lambda m, code: (lambda g: (exec(code, g), g['v'])[1])({'m': m})", nil))
		v := ok[*python.Object](t)(f.Call(m, code))
		got, err := python.As[model](v)
		require.NoError(t, err, code)
		require.Equal(t, m, got, code)
		pointer, err := python.As[*model](v)
		require.NoError(t, err)
		require.Equal(t, m, *pointer)
		v.Release()
		f.Release()
	}
	none := ok[*python.Object](t)(py.New(nil))
	defer none.Release()
	pointer, err := python.As[*model](none)
	require.NoError(t, err)
	require.Nil(t, pointer)
	// A nil embedded pointer leaves its fields out.
	out, err = py.Run("r = 'scale' in m", python.Vars{"m": model{}}, "r")
	require.NoError(t, err)
	require.Equal(t, false, out["r"])

	ring := &cyclic{Name: "a"}
	ring.Next = &cyclic{Name: "b", Next: ring}
	_, err = py.New(ring)
	require.ErrorIs(t, err, python.ErrCycle)
}

func testStructErrors(t *testing.T, py *python.Interpreter) {
	for _, c := range []struct {
		v    any
		says string
	}{
		{time.Now(), "its field wall is not exported"},
		{struct {
			A int `python:"x"`
			B int `python:"x"`
		}{}, `two of its fields are named "x"`},
		{struct {
			A int `python:"x,string"`
		}{}, `says "string"`},
		{struct{ C chan int }{}, `["C"]: python: cannot convert chan int`},
	} {
		_, err := py.New(c.v)
		var failed *python.ConversionError
		require.ErrorAs(t, err, &failed)
		require.ErrorContains(t, err, c.says)
	}
	for expr, says := range map[string]string{
		"{'name': 'n'}":               `it has no "id"`,
		"{'id': 'x'}":                 `["id"]: python: cannot convert string to int`,
		"3":                           "cannot convert Python int to python_test.part",
		"{'id': 1, 'in': [{'X': 1}]}": `["in"][0]["Y"]`,
		"type('T', (), {'id': property(lambda s: 1/0)})()": "division by zero",
		"{'id': 1, 'in': [], 'o': object(), 'z': 'x'}":     `["z"]`,
	} {
		o := ok[*python.Object](t)(py.Eval(expr, nil))
		_, err := python.As[part](o)
		require.ErrorContains(t, err, says, expr)
		o.Release()
	}
	loop := ok[*python.Object](t)(py.Eval("(lambda d: (d.update(next=d), d)[1])({'name': 'n'})", nil))
	defer loop.Release()
	_, err := python.As[cyclic](loop)
	require.ErrorIs(t, err, python.ErrCycle)
}

// testStructReferences: what is looked up and what a failed decoding has made is let go.
func testStructReferences(t *testing.T, py *python.Interpreter) {
	type items struct {
		Items int `python:"items"`
	}
	d := ok[*python.Object](t)(py.Eval("{'items': 1}", nil))
	defer d.Release()
	count := ok[*python.Object](t)(py.Eval("__import__('sys').getrefcount", nil))
	defer count.Release()
	refs := func() int64 {
		n := ok[*python.Object](t)(count.Call(d))
		defer n.Release()
		return ok[int64](t)(n.Int())
	}
	before := refs()
	for range 100 {
		require.Equal(t, 1, ok[items](t)(python.As[items](d)).Items)
	}
	require.Equal(t, before, refs(), "a dict has a method of that name")

	objects, _ := python.ObjectCounts()
	for expr, as := range map[string]func(*python.Object) error{
		"{'P': {'A': object(), 'Z': 'x'}}":                            func(o *python.Object) error { _, err := python.As[holder](o); return err },
		"{'P': None, 'M': {'a': {'A': object(), 'Z': 'x'}}}":          func(o *python.Object) error { _, err := python.As[holder](o); return err },
		"{'P': None, 'M': {object(): {'A': object(), 'Z': 1}, 1: 2}}": func(o *python.Object) error { _, err := python.As[holder](o); return err },
		"{'L': [[object()], [{'A': object(), 'Z': 'x'}]]}":            func(o *python.Object) error { _, err := python.As[struct{ L *[][]held }](o); return err },
		"{'A': object(), 'Z': 'x'}":                                   func(o *python.Object) error { _, err := python.As[struct{ held }](o); return err },
		"{(1, 2): {'X': 1, 'Y': 2}}":                                  func(o *python.Object) error { _, err := python.As[map[any]point](o); return err },
		"{'P': None, 'M': {(object(),): {'A': object(), 'Z': 1}}}":    func(o *python.Object) error { _, err := python.As[holder](o); return err },
	} {
		o := ok[*python.Object](t)(py.Eval(expr, nil))
		var failed *python.ConversionError
		require.ErrorAs(t, as(o), &failed, expr)
		o.Release()
		now, _ := python.ObjectCounts()
		require.LessOrEqual(t, now, objects, expr) // fewer where Go collects what was forgotten before
	}
}

type held struct {
	A *python.Object
	Z int
}

type holder struct {
	P *held
	M map[any]held
}

type part struct {
	ID int            `python:"id"`
	In []point        `python:"in"`
	O  *python.Object `python:"o,omitempty"`
	Z  int            `python:"z,omitempty"`
}

var errMine = errors.New("mine")

type myError struct{ code int }

func (e *myError) Error() string { return fmt.Sprint("code ", e.code) }

func testTypedFuncs(t *testing.T, py *python.Interpreter) {
	type key struct{}
	vars := python.Vars{
		"half": func(n int) (int, error) {
			if n%2 != 0 {
				return 0, &myError{n}
			}
			return n / 2, nil
		},
		"join":   func(sep string, parts ...string) string { return strings.Join(parts, sep) },
		"swap":   func(p point) (float64, float64) { return p.Y, p.X },
		"nobody": func() {},
		"who":    func(ctx context.Context) string { s, _ := ctx.Value(key{}).(string); return s },
		"same":   func(o *python.Object) (*python.Object, error) { return o.Retain() },
		"boom":   func(int) error { panic("oh") },
		"wrong":  func() error { return errMine },
		"none":   (func(int) int)(nil),
	}
	out, err := py.Run(`
import threading
r = [half(8), join("-", "a", "b"), join("-"), swap({"X": 1, "Y": 2}), nobody(), who(), none, half.__name__ != ""]
x = object()
r.append(same(x) is x)
def text(f, *a, **k):
    try: f(*a, **k)
    except Exception as e: return type(e).__name__ + ": " + str(e).splitlines()[0]
errors = [text(half, 3), text(half), text(half, 1, 2), text(half, "x"), text(half, n=2), text(boom, 1), text(join)]
threads = [threading.Thread(target=lambda i=i: r.append(half(2 * i))) for i in range(4)]
for th in threads: th.start()
for th in threads: th.join()
late = sorted(r[-4:])
r = r[:-4]
`, vars, "r", "errors", "late")
	require.NoError(t, err)
	require.Equal(t, []any{int64(4), "a-b", "", python.Tuple{2.0, 1.0}, nil, "", nil, true, true}, out["r"])
	require.Equal(t, []any{int64(0), int64(1), int64(2), int64(3)}, out["late"], "on threads that Python made")
	for i, says := range []string{"RuntimeError: code 3", "TypeError: ", "TypeError: ", "TypeError: argument 1", "TypeError: ",
		"RuntimeError: panic in Go: oh", "TypeError: "} {
		require.Contains(t, out["errors"].([]any)[i], says)
	}
	// The types of errors come back out of Python.
	_, err = py.Run("half(3)", python.Vars{"half": vars["half"]})
	var mine *myError
	require.ErrorAs(t, err, &mine)
	require.Equal(t, 3, mine.code)
	_, err = py.Run("wrong()", python.Vars{"wrong": vars["wrong"]})
	require.ErrorIs(t, err, errMine)
	// A first context is that of the call.
	f := ok[*python.Object](t)(py.Eval("lambda f: f()", nil))
	defer f.Release()
	o := ok[*python.Object](t)(f.CallContext(context.WithValue(t.Context(), key{}, "the caller"), vars["who"]))
	require.Equal(t, "the caller", ok[string](t)(o.Text()))
	o.Release()
	// It goes with the Python object.
	freed := make(chan struct{})
	func() {
		kept := new([1 << 10]byte)
		once := sync.OnceFunc(func() { close(freed) })
		addCleanup(kept, once)
		o := ok[*python.Object](t)(py.New(func(i int) int { return int(kept[i]) }))
		o.Release()
	}()
	collected(t, freed)
}

// addCleanup calls f when Go has collected what p points to.
func addCleanup(p *[1 << 10]byte, f func()) {
	runtime.AddCleanup(p, func(struct{}) { f() }, struct{}{})
}

func collected(t *testing.T, freed <-chan struct{}) {
	t.Helper()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	}, time.Minute, time.Millisecond, "the function is kept")
}

type Inner struct {
	Name  string
	Depth int `python:"depth"`
}

type Other struct {
	Depth int // no rival of Inner's, whose tag has another name
	Name  string
	Only  int
}

type tagged struct {
	Other int `python:"Only"`
}

type hiding struct {
	*Inner
	Other
	tagged
	Name string // hides both
}

// testHiddenFields: of fields with one name the shallowest is seen, then the tagged one.
func testHiddenFields(t *testing.T, py *python.Interpreter) {
	h := hiding{Inner: &Inner{"inner", 1}, Other: Other{2, "other", 3}, tagged: tagged{4}, Name: "outer"}
	out, err := py.Run("r = repr(h)", python.Vars{"h": h}, "r")
	require.NoError(t, err)
	require.Equal(t, "{'depth': 1, 'Depth': 2, 'Only': 4, 'Name': 'outer'}", out["r"])
	o := ok[*python.Object](t)(py.Eval("{'depth': 1, 'Depth': 2, 'Only': 4, 'Name': 'outer'}", nil))
	defer o.Release()
	got, err := python.As[hiding](o)
	require.NoError(t, err)
	require.Equal(t, hiding{Inner: &Inner{Depth: 1}, Other: Other{Depth: 2}, tagged: tagged{4}, Name: "outer"}, got)
	// Two at one depth without a tag hide each other.
	type A struct{ X, Y int }
	type B struct{ X, Z int }
	out, err = py.Run("r = repr(v)", python.Vars{"v": struct {
		A
		B
	}{A{1, 2}, B{3, 4}}}, "r")
	require.NoError(t, err)
	require.Equal(t, "{'Y': 2, 'Z': 4}", out["r"])

	// Behind an embedded pointer nothing need be found, or all.
	type Pair struct{ One, Two int }
	type optional struct {
		*Pair
		Three int
	}
	for expr, want := range map[string]optional{
		"{'Three': 3}":                     {Three: 3},
		"{'Two': 2, 'Three': 3, 'One': 1}": {Pair: &Pair{1, 2}, Three: 3},
	} {
		v := ok[*python.Object](t)(py.Eval(expr, nil))
		got, err := python.As[optional](v)
		require.NoError(t, err, expr)
		require.Equal(t, want, got)
		v.Release()
	}
	half := ok[*python.Object](t)(py.Eval("{'Two': 2, 'Three': 3}", nil))
	defer half.Release()
	_, err = python.As[optional](half)
	require.ErrorContains(t, err, `it has no "One"`)
}

// testKeywordStructs: what stands under "**" is spread.
func testKeywordStructs(t *testing.T, py *python.Interpreter) {
	type options struct {
		Rate  float64 `python:"rate"`
		Steps int     `python:"steps,omitempty"`
		Tags  []string
	}
	objects, _ := python.ObjectCounts()
	f := ok[*python.Object](t)(py.Eval("lambda *a, **k: repr((a, sorted(k.items())))", nil))
	given := ok[*python.Object](t)(py.Eval("{'rate': 1}", nil))
	for _, c := range []struct {
		kwargs python.Kwargs
		want   string
	}{
		{python.Kwargs{"**": options{Rate: 0.5, Tags: []string{"a"}}}, "((7,), [('Tags', ['a']), ('rate', 0.5)])"},
		{python.Kwargs{"**": &options{Rate: 0.5, Steps: 3}, "x": 1}, "((7,), [('Tags', []), ('rate', 0.5), ('steps', 3), ('x', 1)])"},
		{python.Kwargs{"**": map[string]int{"n": 2}}, "((7,), [('n', 2)])"},
		{python.Kwargs{"**": python.Kwargs{}}, "((7,), [])"},
		{python.Kwargs{"**": given}, "((7,), [('rate', 1)])"},
	} {
		for range 3 {
			o := ok[*python.Object](t)(f.Call(7, c.kwargs))
			require.Equal(t, c.want, ok[string](t)(o.Str()))
			o.Release()
			o = ok[*python.Object](t)(f.CallContext(t.Context(), 7, c.kwargs))
			require.Equal(t, c.want, ok[string](t)(o.Str()))
			o.Release()
		}
	}
	for _, c := range []struct {
		kwargs python.Kwargs
		says   string
	}{
		{python.Kwargs{"**": options{}, "rate": 1}, `argument **: "rate" comes twice`},
		{python.Kwargs{"**": 3}, "cannot convert int to keyword arguments: a struct, a map or a dict is wanted"},
		{python.Kwargs{"**": nil}, "to keyword arguments"},
		{python.Kwargs{"**": map[int]int{1: 2}}, "a key is no string"},
		{python.Kwargs{"**": struct{ C chan int }{}}, `["C"]`},
	} {
		_, err := f.Call(c.kwargs)
		require.ErrorContains(t, err, c.says)
	}
	given.Release()
	f.Release()
	now, _ := python.ObjectCounts()
	require.LessOrEqual(t, now, objects)
}

func generic[T any](v T) T { return v }

// testGenericNames: Python shows the name of a generic function.
func testGenericNames(t *testing.T, py *python.Interpreter) {
	for _, f := range []any{generic[int], generic[map[string]int]} {
		out, err := py.Run("n = f.__name__", python.Vars{"f": f}, "n")
		require.NoError(t, err)
		require.Equal(t, "generic", out["n"])
	}
}
