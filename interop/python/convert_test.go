//go:build linux && cgo

package python_test

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
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
			o := testenv.Held(py.New(c.in))(t)
			require.Equal(t, c.repr, o.String())
			require.Equal(t, c.back, testenv.Must(o.Value())(t))
			require.Equal(t, c.in == nil || c.repr == "None", o.IsNone())
		})
	}
	b := testenv.Held(py.Eval("bytearray(b'xy')", nil))(t)
	require.Equal(t, []byte("xy"), testenv.Must(b.Value())(t))
	require.Equal(t, []byte("xy"), testenv.Must(b.Bytes())(t))
	set := testenv.Held(py.Eval("[{1}]", nil))(t)
	list := testenv.Must(set.Value())(t).([]any)
	require.Equal(t, "{1}", list[0].(*python.Object).String())
	list[0].(*python.Object).Release()
}

func testConvertErrors(t *testing.T, py *python.Interpreter) {
	for _, v := range []any{make(chan int), struct{ C chan int }{}, []any{1, make(chan int)}, map[string]any{"k": make(chan int)}, python.Tuple{make(chan int)}} {
		testenv.As[*python.ConversionError](t, testenv.ErrorOf(py.New(v)))
	}
	require.ErrorIs(t, testenv.ErrorOf(py.New("\xff")), python.ValueError, "invalid UTF-8 is not a UnicodeDecodeError")
	require.ErrorContains(t, testenv.ErrorOf(py.New(map[any]any{1: 1, "x": []any{make(chan int)}})), "chan int")

	o := testenv.Held(py.Eval(`{(1, 2): object()}`, nil))(t)
	require.ErrorContains(t, testenv.ErrorOf(o.Value()), "a dict to a Go map")
	s := testenv.Held(py.Eval(`"\ud800"`, nil))(t)
	require.ErrorIs(t, testenv.ErrorOf(s.Text()), python.Exception("UnicodeEncodeError"))
	require.Equal(t, `'\ud800'`, s.String())
	require.ErrorContains(t, testenv.ErrorOf(s.Bytes()), "Python str to []byte")
	require.ErrorIs(t, testenv.ErrorOf(s.Int()), python.TypeError)
	big := testenv.Held(py.Eval("2**64", nil))(t)
	require.ErrorIs(t, testenv.ErrorOf(big.Int()), python.OverflowError)
	f := testenv.Held(py.Eval("1.5", nil))(t)
	require.ErrorIs(t, testenv.ErrorOf(f.Int()), python.TypeError, "a float is not an index")
	require.InDelta(t, 1.5, testenv.Must(f.Float())(t), 0)
	require.InDelta(t, 18446744073709551616.0, testenv.Must(big.Float())(t), 0)
	require.Error(t, testenv.ErrorOf(s.Float()))
}

// requireAs checks that an object converts to a Go value.
func requireAs[T any](t *testing.T, o *python.Object, want T) {
	t.Helper()
	require.Equal(t, want, testenv.Must(python.As[T](o))(t))
}

func testAs(t *testing.T, py *python.Interpreter) {
	eval := func(expr string) *python.Object { return testenv.Held(py.Eval(expr, nil))(t) }
	type name string
	requireAs(t, eval("7"), 7)
	requireAs(t, eval("[1, 2.5]"), []float32{1, 2.5})
	requireAs(t, eval("{'a': (1, 2)}"), map[string][]int{"a": {1, 2}})
	requireAs(t, eval("(1, 255)"), [2]uint8{1, 255})
	requireAs(t, eval("2**64-1"), ^uint64(0))
	requireAs(t, eval("'x'"), name("x"))
	requireAs(t, eval("None"), (*int)(nil))
	requireAs[any](t, eval("[None]"), []any{nil})
	requireAs(t, eval("{1: True}"), map[int]bool{1: true})
	require.Equal(t, "1180591620717411303424", testenv.Must(python.As[*big.Int](eval("2**70")))(t).String())
	o := testenv.Must(python.As[*python.Object](eval("object")))(t)
	o.Release()
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
	ns := testenv.Held(py.Eval("__import__('types').SimpleNamespace(a=1)", nil))(t)
	require.NoError(t, ns.SetAttr("b", []int{1, 2}))
	b := testenv.Held(ns.Attr("b"))(t)
	require.Equal(t, 2, testenv.Must(b.Len())(t))
	require.Equal(t, "list", testenv.Must(b.Type())(t))
	testenv.Must(ns.Method("__delattr__", "a"))(t).Release()
	require.ErrorIs(t, testenv.ErrorOf(ns.Attr("a")), python.AttributeError)

	require.NoError(t, b.SetItem(0, "x"))
	first := testenv.Held(b.Item(0))(t)
	require.Equal(t, "x", testenv.Must(first.Text())(t))
	require.Equal(t, "x", testenv.Must(first.Str())(t))
	testenv.Must(b.Method("__delitem__", 1))(t).Release()
	_, err := b.Item(1)
	require.ErrorIs(t, err, python.IndexError)
	require.ErrorIs(t, err, python.LookupError, "a base class does not match")
	require.NotErrorIs(t, err, python.KeyError)

	again := testenv.Must(b.Retain())(t)
	require.Equal(t, b.Pointer(), again.Pointer())
	b2 := python.Borrow(b.Pointer())
	require.Equal(t, b.Pointer(), b2.Pointer())
	b2.Release()
	owned := python.FromPointer(testenv.Must(python.NewReference(b))(t))
	require.Equal(t, b.Pointer(), owned.Pointer())
	owned.Release()
	again.Release()
	again.Release()
	testMisuse(t, py, again)
	require.Equal(t, "<released Python object>", again.String())
	require.Nil(t, python.FromPointer(nil))
	(*python.Object)(nil).Release()
	bad := testenv.Held(py.Eval("type('Bad', (), {'__repr__': lambda s: 1/0, '__len__': lambda s: 1/0})()", nil))(t)
	require.ErrorIs(t, testenv.ErrorOf(bad.Len()), python.Exception("ZeroDivisionError"))
	require.Contains(t, bad.String(), "ZeroDivisionError")
}

// testMisuse checks that methods of a nil or released Object panic with a *python.UseError
// that names the method.
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
	require.False(t, python.Held(), "the panic left the GIL held")
	require.ErrorContains(t, testenv.ErrorOf(py.Func("f", "", nil)), "Func f")
}

// testNilInterpreter runs before Start, while Current returns nil.
func testNilInterpreter(t *testing.T) {
	py := python.Current()
	require.Nil(t, py)
	require.ErrorIs(t, testenv.ErrorOf(py.New(1)), python.ErrNotStarted)
	require.ErrorIs(t, testenv.ErrorOf(new(python.Interpreter).New(1)), python.ErrNotStarted)
	require.ErrorIs(t, testenv.ErrorOf(py.Import("sys")), python.ErrNotStarted)
	require.ErrorIs(t, testenv.ErrorOf(py.Eval("1", nil)), python.ErrNotStarted)
	require.ErrorIs(t, testenv.ErrorOf(py.Run("x = 1", nil)), python.ErrNotStarted)
	require.ErrorIs(t, testenv.ErrorOf(py.Module("m", "")), python.ErrNotStarted)
	require.ErrorIs(t, testenv.ErrorOf(py.Func("f", "", func(python.Args) (any, error) { return nil, nil })), python.ErrNotStarted)
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
	f := testenv.Held(py.Eval("lambda *a, **k: (a, sorted(k.items()))", nil))(t)
	for _, c := range []struct {
		args []any
		want string
	}{
		{nil, "((), [])"},
		{[]any{1, "b"}, "((1, 'b'), [])"},
		{[]any{1, python.Kwargs{"x": 2, "y": nil}}, "((1,), [('x', 2), ('y', None)])"},
		{[]any{python.Kwargs{}}, "((), [])"},
	} {
		require.Equal(t, c.want, testenv.Held(f.Call(c.args...))(t).String())
	}
	s := testenv.Held(py.New("a,b"))(t)
	require.Equal(t, "['a', 'b']", testenv.Held(s.Method("split", python.Kwargs{"sep": ","}))(t).String())
	require.ErrorIs(t, testenv.ErrorOf(s.Method("nope")), python.AttributeError)
	require.ErrorIs(t, testenv.ErrorOf(s.Call()), python.TypeError)
	require.ErrorContains(t, testenv.ErrorOf(f.Call(1, make(chan int))), "argument 2")
	require.ErrorContains(t, testenv.ErrorOf(f.Call(python.Kwargs{"k": make(chan int)})), "argument k")
}

func testIteration(t *testing.T, py *python.Interpreter) {
	o := testenv.Must(py.Eval("iter(x * x for x in range(5))", nil))(t)
	var got []int64
	for e, err := range o.All() {
		require.NoError(t, err)
		got = append(got, testenv.Must(e.Int())(t))
		if len(got) == 4 {
			break
		}
	}
	o.Release()
	require.Equal(t, []int64{0, 1, 4, 9}, got)
	o = testenv.Must(py.Eval("(1 // x for x in (1, 0))", nil))(t)
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
	o = testenv.Must(py.New(1))(t)
	for _, err := range o.All() {
		require.ErrorIs(t, err, python.TypeError)
	}
	o.Release()
}

// testFailedAs checks that a failed conversion releases the Objects that it created.
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
		o := testenv.Must(py.Eval(expr, nil))(t)
		var failed *python.ConversionError
		require.ErrorAs(t, as(o), &failed, expr)
		o.Release()
		now, _ := python.ObjectCounts()
		require.LessOrEqual(t, now, objects, expr) // less if Go collected Objects of earlier tests
	}
	require.ErrorContains(t, testenv.ErrorOf(py.New(struct{ A int }{})), "pass a map of its fields")
}

// testCyclesToGo checks that the conversion of a Python value that contains itself fails with
// the position. Unbounded recursion would overflow Go's stack and end the process.
func testCyclesToGo(t *testing.T, py *python.Interpreter) {
	for _, c := range []struct{ code, says string }{
		{"v = []; v.append(v)", `value[0] refers back to value`},
		{"v = {}; v['a'] = v", `value["a"] refers back to value`},
		{"v = [1, 2, {}]; v[2]['a'] = v", `value[2]["a"] refers back to value`},
		{"l = []; v = (0, l); l.append(v)", `value[1][0] refers back to value`},
		{"d = {}; d[7] = [d]; v = [d]", `value[0][7][0] refers back to value[0]`},
		{"class L(list): pass\nv = L(); v.append((v,))", `value[0][0] refers back to value`},
		{"class K(list):\n  def __hash__(self): return 1\nk = K(); k.append(k); v = {k: 1}", `value.key(0)[0] refers back to value.key(0)`},
	} {
		t.Run(c.code, func(t *testing.T) {
			_, err := py.Run(c.code, nil, "v")
			testenv.Failed(t, err, python.ErrCycle, c.says)
			v := testenv.Held(py.Eval("(exec(code, d := {}), d['v'])[1]", python.Vars{"code": c.code}))(t)
			_, err = v.Value()
			require.ErrorIs(t, err, python.ErrCycle)
			testenv.As[*python.ConversionError](t, err)
			require.ErrorIs(t, testenv.ErrorOf(python.As[[]any](v)), python.ErrCycle)
			require.ErrorIs(t, testenv.ErrorOf(python.As[*big.Int](v)), python.ErrCycle)
		})
	}
	twice := testenv.Held(py.Eval("[a, a, {'x': a}]", python.Vars{"a": []int{1}}))(t)
	one := []any{int64(1)}
	require.Equal(t, []any{one, one, map[string]any{"x": one}}, testenv.Must(twice.Value())(t), "the same list twice is not a cycle")
}

// testCyclesToPython does the same for Go values, in each method that converts them.
func testCyclesToPython(t *testing.T, py *python.Interpreter) {
	list := []any{0, nil}
	list[1] = list
	dict := map[string]any{}
	dict["a"] = []any{dict}
	var pointer any
	pointer = &pointer
	type self *self
	var loop self
	loop = &loop
	tuple := python.Tuple{nil}
	tuple[0] = tuple
	type tree []tree
	root := tree{nil}
	root[0] = root
	shorter := []any{nil, nil}
	shorter[0] = shorter[:1]
	f := testenv.Held(py.Eval("lambda *a, **k: None", nil))(t)
	for _, c := range []struct {
		name  string
		value any
		says  string
	}{
		{"slice", list, `value[1] refers back to value`},
		{"map", dict, `value["a"][0] refers back to value`},
		{"pointer to any", pointer, `*value refers back to value`},
		{"pointer", loop, `*value refers back to value`},
		{"tuple", tuple, `value[0] refers back to value`},
		{"recursive type", root, `value[0] refers back to value`},
		{"part of a slice", shorter, `value[0][0] refers back to value[0]`},
		{"inside", []any{1, list}, `value[1][1] refers back to value[1]`},
		{"behind a pointer", []any{&list}, `(*value[0])[1] refers back to *value[0]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := py.New(c.value)
			testenv.Failed(t, err, python.ErrCycle, c.says)
			testenv.As[*python.ConversionError](t, err)
			testenv.Failed(t, testenv.ErrorOf(f.Call(1, c.value)), python.ErrCycle, "argument 2")
			require.ErrorIs(t, testenv.ErrorOf(f.Call(python.Kwargs{"k": c.value})), python.ErrCycle)
			require.ErrorIs(t, testenv.ErrorOf(py.Run("x = v", python.Vars{"v": c.value})), python.ErrCycle)
			require.ErrorIs(t, f.SetAttr("x", c.value), python.ErrCycle)
		})
	}
	one := []int{1}
	same := testenv.Held(py.New([]any{one, one, &one, map[string]any{"x": &one}}))(t)
	require.Equal(t, "[[1], [1], [1], {'x': [1]}]", same.String(), "the same slice twice is not a cycle")
}

// testDepth checks that deep nesting without a cycle is an error too.
func testDepth(t *testing.T, py *python.Interpreter) {
	const fits = 1000
	nest := func(n int) any {
		var v any
		for range n {
			v = []any{v}
		}
		return v
	}
	require.Equal(t, nest(fits), testenv.Must(testenv.Held(py.New(nest(fits)))(t).Value())(t))
	_, err := py.New(nest(fits + 1))
	testenv.Failed(t, err, python.ErrTooDeep, "1000")
	require.Less(t, len(err.Error()), 300, "the path is not shortened")
	require.ErrorIs(t, testenv.ErrorOf(py.New(nest(100_000))), python.ErrTooDeep)
	deep := testenv.Held(py.Eval("__import__('functools').reduce(lambda a, _: [a], range(n), None)", python.Vars{"n": 100_000}))(t)
	require.ErrorIs(t, testenv.ErrorOf(deep.Value()), python.ErrTooDeep)

	require.ErrorContains(t, testenv.ErrorOf(py.New(map[string]any{"k": []any{1, make(chan int)}})), `value["k"][1]: `)
	require.ErrorContains(t, testenv.ErrorOf(py.Run(`v = {"k": [1, {(1, 2): 3}]}`, nil, "v")), `variable v: value["k"][1].key(0): `)
}

// testLongInts checks integers whose decimal text would exceed Python's limit of digits.
func testLongInts(t *testing.T, py *python.Interpreter) {
	long := new(big.Int).Lsh(big.NewInt(-5), 20000)
	o := testenv.Held(py.New(long))(t)
	same := testenv.Held(py.Eval("x == -5 << 20000", python.Vars{"x": o}))(t)
	require.Equal(t, true, testenv.Must(same.Value())(t))
	require.Equal(t, long, testenv.Must(o.Value())(t))
	named := testenv.Held(py.Eval("type('N', (int,), {'__repr__': lambda s: 'many', '__str__': lambda s: 'many'})(2**70)", nil))(t)
	require.Equal(t, new(big.Int).Lsh(big.NewInt(1), 70), testenv.Must(named.Value())(t))
}
