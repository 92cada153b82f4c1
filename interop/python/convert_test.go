//go:build linux && cgo

package python_test

import (
	"fmt"
	"math/big"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
)

func testConvert(t *testing.T, py *python.Interpreter) {
	type name string
	type flags []bool
	huge, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	n := 5
	for _, c := range []struct {
		in   any
		repr string
		back any
	}{
		{nil, "None", nil},
		{true, "True", true},
		{false, "False", false},
		{42, "42", int64(42)},
		{int8(-3), "-3", int64(-3)},
		{int64(-1 << 63), "-9223372036854775808", int64(-1 << 63)},
		{^uint64(0), "18446744073709551615", new(big.Int).SetUint64(^uint64(0))},
		{uint8(200), "200", int64(200)},
		{huge, huge.String(), huge},
		{float32(0.5), "0.5", 0.5},
		{1e300, "1e+300", 1e300},
		{complex(1, -2), "(1-2j)", complex(1, -2)},
		{complex64(2i), "2j", 2i},
		{"", "''", ""},
		{"grüße \x00 世界 😀", `'grüße \x00 世界 😀'`, "grüße \x00 世界 😀"},
		{name("n"), "'n'", "n"},
		{[]byte(nil), "b''", []byte{}},
		{[]byte{0, 255}, `b'\x00\xff'`, []byte{0, 255}},
		{[]int{1, 2}, "[1, 2]", []any{int64(1), int64(2)}},
		{[]string(nil), "[]", []any{}},
		{[2]float64{1, 2}, "[1.0, 2.0]", []any{1.0, 2.0}},
		{flags{true}, "[True]", []any{true}},
		{python.Tuple{1, "a", nil}, "(1, 'a', None)", python.Tuple{int64(1), "a", nil}},
		{[][]int{{1}, {}}, "[[1], []]", []any{[]any{int64(1)}, []any{}}},
		{map[string]int{"a": 1}, "{'a': 1}", map[string]any{"a": int64(1)}},
		{map[string]int{}, "{}", map[string]any{}},
		{map[int]any{7: []int{1}}, "{7: [1]}", map[any]any{int64(7): []any{int64(1)}}},
		{&n, "5", int64(5)},
		{(*int)(nil), "None", nil},
		{(*big.Int)(nil), "None", nil},
		{(*python.Object)(nil), "None", nil},
	} {
		t.Run(fmt.Sprintf("%T %s", c.in, c.repr), func(t *testing.T) {
			o := ok[*python.Object](t)(py.New(c.in))
			defer o.Release()
			require.Equal(t, c.repr, o.String())
			require.Equal(t, c.back, ok[any](t)(o.Value()))
			require.Equal(t, c.in == nil || c.repr == "None", o.IsNone())
		})
	}
	b := ok[*python.Object](t)(py.Eval("bytearray(b'xy')", nil))
	defer b.Release()
	require.Equal(t, []byte("xy"), ok[any](t)(b.Value()))
	require.Equal(t, []byte("xy"), ok[[]byte](t)(b.Bytes()))
	set := ok[*python.Object](t)(py.Eval("[{1}]", nil))
	defer set.Release()
	list := ok[any](t)(set.Value()).([]any)
	require.Equal(t, "{1}", list[0].(*python.Object).String())
	list[0].(*python.Object).Release()
}

func testConvertErrors(t *testing.T, py *python.Interpreter) {
	for _, v := range []any{make(chan int), struct{ C chan int }{}, []any{1, make(chan int)}, map[string]any{"k": make(chan int)}, python.Tuple{make(chan int)}} {
		_, err := py.New(v)
		var c *python.ConversionError
		require.ErrorAs(t, err, &c, "%T", v)
	}
	_, err := py.New("\xff")
	require.ErrorIs(t, err, python.ValueError, "no UTF-8 is a UnicodeDecodeError")
	_, err = py.New(map[any]any{1: 1, "x": []any{make(chan int)}})
	require.ErrorContains(t, err, "chan int")

	o := ok[*python.Object](t)(py.Eval(`{(1, 2): object()}`, nil))
	defer o.Release()
	_, err = o.Value()
	require.ErrorContains(t, err, "a dict to a Go map")
	s := ok[*python.Object](t)(py.Eval(`"\ud800"`, nil))
	defer s.Release()
	_, err = s.Text()
	require.ErrorIs(t, err, python.Exception("UnicodeEncodeError"))
	require.Equal(t, `'\ud800'`, s.String())
	_, err = s.Bytes()
	require.ErrorContains(t, err, "Python str to []byte")
	_, err = s.Int()
	require.ErrorIs(t, err, python.TypeError)
	big := ok[*python.Object](t)(py.Eval("2**64", nil))
	defer big.Release()
	_, err = big.Int()
	require.ErrorIs(t, err, python.OverflowError)
	f := ok[*python.Object](t)(py.Eval("1.5", nil))
	defer f.Release()
	_, err = f.Int()
	require.ErrorIs(t, err, python.TypeError, "a float is no index")
	require.InDelta(t, 1.5, ok[float64](t)(f.Float()), 0)
	require.InDelta(t, 18446744073709551616.0, ok[float64](t)(big.Float()), 0)
	_, err = s.Float()
	require.Error(t, err)
}

func testAs(t *testing.T, py *python.Interpreter) {
	var made []*python.Object
	eval := func(expr string) *python.Object {
		o := ok[*python.Object](t)(py.Eval(expr, nil))
		made = append(made, o)
		return o
	}
	defer func() {
		for _, o := range made {
			o.Release()
		}
	}()
	type name string
	check := func(got any, err error, want any) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	a, err := python.As[int](eval("7"))
	check(a, err, 7)
	b, err := python.As[[]float32](eval("[1, 2.5]"))
	check(b, err, []float32{1, 2.5})
	c, err := python.As[map[string][]int](eval("{'a': (1, 2)}"))
	check(c, err, map[string][]int{"a": {1, 2}})
	d, err := python.As[[2]uint8](eval("(1, 255)"))
	check(d, err, [2]uint8{1, 255})
	e, err := python.As[uint64](eval("2**64-1"))
	check(e, err, ^uint64(0))
	f, err := python.As[name](eval("'x'"))
	check(f, err, name("x"))
	g, err := python.As[*int](eval("None"))
	check(g, err, (*int)(nil))
	h, err := python.As[any](eval("[None]"))
	check(h, err, []any{nil})
	i, err := python.As[*big.Int](eval("2**70"))
	require.NoError(t, err)
	require.Equal(t, "1180591620717411303424", i.String())
	o, err := python.As[*python.Object](eval("object"))
	require.NoError(t, err)
	o.Release()
	m, err := python.As[map[int]bool](eval("{1: True}"))
	check(m, err, map[int]bool{1: true})
	for expr, f := range map[string]func(*python.Object) error{
		"300":        func(o *python.Object) error { _, err := python.As[uint8](o); return err },
		"-1":         func(o *python.Object) error { _, err := python.As[uint](o); return err },
		"1.0":        func(o *python.Object) error { _, err := python.As[int](o); return err },
		"'1'":        func(o *python.Object) error { _, err := python.As[int](o); return err },
		"1":          func(o *python.Object) error { _, err := python.As[string](o); return err },
		"None":       func(o *python.Object) error { _, err := python.As[int](o); return err },
		"[1]":        func(o *python.Object) error { _, err := python.As[[2]int](o); return err },
		"[object()]": func(o *python.Object) error { _, err := python.As[[]int](o); return err },
		"2**64":      func(o *python.Object) error { _, err := python.As[uint64](o); return err },
		"{'a': 1}":   func(o *python.Object) error { _, err := python.As[[]int](o); return err },
		"{'b': 'x'}": func(o *python.Object) error { _, err := python.As[map[string]int](o); return err },
		"[1, 2]":     func(o *python.Object) error { _, err := python.As[map[string]int](o); return err },
		"1j":         func(o *python.Object) error { _, err := python.As[float64](o); return err },
		"b''":        func(o *python.Object) error { _, err := python.As[string](o); return err },
	} {
		var c *python.ConversionError
		require.ErrorAs(t, f(eval(expr)), &c, expr)
	}
}

func testObjects(t *testing.T, py *python.Interpreter) {
	ns := ok[*python.Object](t)(py.Eval("__import__('types').SimpleNamespace(a=1)", nil))
	defer ns.Release()
	require.NoError(t, ns.SetAttr("b", []int{1, 2}))
	b := ok[*python.Object](t)(ns.Attr("b"))
	defer b.Release()
	require.Equal(t, 2, ok[int](t)(b.Len()))
	require.Equal(t, "list", ok[string](t)(b.Type()))
	ok[*python.Object](t)(ns.Method("__delattr__", "a")).Release()
	_, err := ns.Attr("a")
	require.ErrorIs(t, err, python.AttributeError)

	require.NoError(t, b.SetItem(0, "x"))
	first := ok[*python.Object](t)(b.Item(0))
	require.Equal(t, "x", ok[string](t)(first.Text()))
	require.Equal(t, "x", ok[string](t)(first.Str()))
	first.Release()
	ok[*python.Object](t)(b.Method("__delitem__", 1)).Release()
	_, err = b.Item(1)
	require.ErrorIs(t, err, python.IndexError)
	require.ErrorIs(t, err, python.LookupError, "a base class counts")
	require.NotErrorIs(t, err, python.KeyError)

	again := ok[*python.Object](t)(b.Retain())
	require.Equal(t, b.Pointer(), again.Pointer())
	b2 := python.Borrow(b.Pointer())
	require.Equal(t, b.Pointer(), b2.Pointer())
	b2.Release()
	owned := python.FromPointer(ok[unsafe.Pointer](t)(python.NewReference(b)))
	require.Equal(t, b.Pointer(), owned.Pointer())
	owned.Release()
	again.Release()
	again.Release()
	testMisuse(t, py, again)
	require.Equal(t, "<released Python object>", again.String())
	require.Nil(t, python.FromPointer(nil))
	(*python.Object)(nil).Release()
	bad := ok[*python.Object](t)(py.Eval("type('Bad', (), {'__repr__': lambda s: 1/0, '__len__': lambda s: 1/0})()", nil))
	defer bad.Release()
	_, err = bad.Len()
	require.ErrorIs(t, err, python.Exception("ZeroDivisionError"))
	require.Contains(t, bad.String(), "ZeroDivisionError")
}

// testMisuse: nil and what was released panic with a type that says which method.
func testMisuse(t *testing.T, py *python.Interpreter, released *python.Object) {
	for _, o := range []*python.Object{nil, released} {
		for op, use := range map[string]func(){
			"Attr": func() { _, _ = o.Attr("x") }, "SetAttr": func() { _ = o.SetAttr("x", 1) },
			"Item": func() { _, _ = o.Item(1) }, "SetItem": func() { _ = o.SetItem(1, 1) },
			"Call": func() { _, _ = o.Call() }, "Method": func() { _, _ = o.Method("x") }, "Len": func() { _, _ = o.Len() },
			"All": func() { o.All()(nil) }, "Type": func() { _, _ = o.Type() }, "Str": func() { _, _ = o.Str() },
			"Text": func() { _, _ = o.Text() }, "Int": func() { _, _ = o.Int() }, "Float": func() { _, _ = o.Float() },
			"Bytes": func() { _, _ = o.Bytes() }, "Value": func() { _, _ = o.Value() }, "IsNone": func() { o.IsNone() },
			"Retain": func() { _, _ = o.Retain() }, "Pointer": func() { o.Pointer() },
			"CapsulePointer": func() { _, _ = o.CapsulePointer("x") },
		} {
			misused := &python.UseError{}
			func() {
				defer func() { misused, _ = recover().(*python.UseError) }()
				use()
			}()
			require.NotNil(t, misused, op)
			require.Equal(t, op, misused.Op)
		}
		o.Release()
		require.Contains(t, o.String(), "Python object>")
	}
	require.PanicsWithError(t, "python: Object.Retain: the *Object is nil", func() { _, _ = python.As[*python.Object](nil) })
	require.False(t, python.Held(), "a panic gives the GIL up")
	_, err := py.Func("f", "", nil)
	require.ErrorContains(t, err, "Func f")
}

// testNilInterpreter is for before Start, where Current returns nil.
func testNilInterpreter(t *testing.T) {
	py := python.Current()
	require.Nil(t, py)
	_, err := py.New(1)
	require.ErrorIs(t, err, python.ErrNotStarted)
	_, err = new(python.Interpreter).New(1)
	require.ErrorIs(t, err, python.ErrNotStarted)
	_, err = py.Import("sys")
	require.ErrorIs(t, err, python.ErrNotStarted)
	_, err = py.Eval("1", nil)
	require.ErrorIs(t, err, python.ErrNotStarted)
	_, err = py.Run("x = 1", nil)
	require.ErrorIs(t, err, python.ErrNotStarted)
	_, err = py.Module("m", "")
	require.ErrorIs(t, err, python.ErrNotStarted)
	_, err = py.Capsule(unsafe.Pointer(t), "t")
	require.ErrorIs(t, err, python.ErrNotStarted)
	_, err = py.Func("f", "", func(python.Args) (any, error) { return nil, nil })
	require.ErrorIs(t, err, python.ErrNotStarted)
	require.ErrorIs(t, py.Flush(), python.ErrNotStarted)
	require.ErrorIs(t, py.Close(), python.ErrNotStarted)
	require.ErrorIs(t, py.With(func() error { return nil }), python.ErrNotStarted)
	require.Zero(t, py.Environment())
	require.False(t, py.Adopted())
	ran := false
	py.WithoutGIL(func() { ran = true })
	require.True(t, ran)
}

func testCalls(t *testing.T, py *python.Interpreter) {
	f := ok[*python.Object](t)(py.Eval("lambda *a, **k: (a, sorted(k.items()))", nil))
	defer f.Release()
	for _, c := range []struct {
		args []any
		want string
	}{
		{nil, "((), [])"},
		{[]any{1, "b"}, "((1, 'b'), [])"},
		{[]any{1, python.Kwargs{"x": 2, "y": nil}}, "((1,), [('x', 2), ('y', None)])"},
		{[]any{python.Kwargs{}}, "((), [])"},
	} {
		r := ok[*python.Object](t)(f.Call(c.args...))
		require.Equal(t, c.want, r.String())
		r.Release()
	}
	s := ok[*python.Object](t)(py.New("a,b"))
	defer s.Release()
	r := ok[*python.Object](t)(s.Method("split", python.Kwargs{"sep": ","}))
	require.Equal(t, "['a', 'b']", r.String())
	r.Release()
	_, err := s.Method("nope")
	require.ErrorIs(t, err, python.AttributeError)
	_, err = s.Call()
	require.ErrorIs(t, err, python.TypeError)
	_, err = f.Call(1, make(chan int))
	require.ErrorContains(t, err, "argument 2")
	_, err = f.Call(python.Kwargs{"k": make(chan int)})
	require.ErrorContains(t, err, "argument k")
}

func testIteration(t *testing.T, py *python.Interpreter) {
	o := ok[*python.Object](t)(py.Eval("iter(x * x for x in range(5))", nil))
	var got []int64
	for e, err := range o.All() {
		require.NoError(t, err)
		got = append(got, ok[int64](t)(e.Int()))
		if len(got) == 4 {
			break
		}
	}
	o.Release()
	require.Equal(t, []int64{0, 1, 4, 9}, got)
	o = ok[*python.Object](t)(py.Eval("(1 // x for x in (1, 0))", nil))
	var last error
	n := 0
	for e, err := range o.All() {
		if err == nil {
			require.Equal(t, "1", e.String())
			n++
		}
		last = err
	}
	o.Release()
	require.Equal(t, 1, n)
	require.ErrorIs(t, last, python.Exception("ZeroDivisionError"))
	o = ok[*python.Object](t)(py.New(1))
	for _, err := range o.All() {
		require.ErrorIs(t, err, python.TypeError)
	}
	o.Release()
}

// testFailedAs checks that a conversion which fails releases the Objects it has made.
func testFailedAs(t *testing.T, py *python.Interpreter) {
	objects, _ := python.ObjectCounts()
	for expr, as := range map[string]func(*python.Object) error{
		"[object(), 'x']":       func(o *python.Object) error { _, err := python.As[[]int](o); return err },
		"[[object()], ['x']]":   func(o *python.Object) error { _, err := python.As[[][]*python.Object](o); return err },
		"{'a': object(), 1: 2}": func(o *python.Object) error { _, err := python.As[map[any]*python.Object](o); return err },
		"{object(): 'x'}":       func(o *python.Object) error { _, err := python.As[map[any]int](o); return err },
		"{(object(),): 1}":      func(o *python.Object) error { _, err := python.As[map[any]any](o); return err },
		"{'a': 1}":              func(o *python.Object) error { _, err := python.As[struct{ A int }](o); return err },
	} {
		o := ok[*python.Object](t)(py.Eval(expr, nil))
		var failed *python.ConversionError
		require.ErrorAs(t, as(o), &failed, expr)
		o.Release()
		now, _ := python.ObjectCounts()
		require.LessOrEqual(t, now, objects, expr) // Go may have collected Objects that earlier tests left
	}
	_, err := py.New(struct{ A int }{})
	require.ErrorContains(t, err, "pass a map of its fields")
}
