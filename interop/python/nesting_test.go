//go:build linux && cgo

package python_test

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
)

// testCyclesToGo: a Python value that contains itself is an error that says where;
// before it was one, Go's stack overflowed and ended the process.
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
			require.ErrorIs(t, err, python.ErrCycle)
			require.ErrorContains(t, err, c.says)
			v := ok[*python.Object](t)(py.Eval("(exec(code, d := {}), d['v'])[1]", python.Vars{"code": c.code}))
			defer v.Release()
			_, err = v.Value()
			require.ErrorIs(t, err, python.ErrCycle)
			var conversion *python.ConversionError
			require.ErrorAs(t, err, &conversion)
			_, err = python.As[[]any](v)
			require.ErrorIs(t, err, python.ErrCycle)
			_, err = python.As[*big.Int](v)
			require.ErrorIs(t, err, python.ErrCycle)
		})
	}
	twice := ok[*python.Object](t)(py.Eval("[a, a, {'x': a}]", python.Vars{"a": []int{1}}))
	defer twice.Release()
	one := []any{int64(1)}
	require.Equal(t, []any{one, one, map[string]any{"x": one}}, ok[any](t)(twice.Value()), "the same list twice is no cycle")
}

// testCyclesToPython is the same for Go values, wherever they are converted.
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
	f := ok[*python.Object](t)(py.Eval("lambda *a, **k: None", nil))
	defer f.Release()
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
			require.ErrorIs(t, err, python.ErrCycle)
			require.ErrorContains(t, err, c.says)
			var conversion *python.ConversionError
			require.ErrorAs(t, err, &conversion)
			_, err = f.Call(1, c.value)
			require.ErrorIs(t, err, python.ErrCycle)
			require.ErrorContains(t, err, "argument 2")
			_, err = f.Call(python.Kwargs{"k": c.value})
			require.ErrorIs(t, err, python.ErrCycle)
			_, err = py.Run("x = v", python.Vars{"v": c.value})
			require.ErrorIs(t, err, python.ErrCycle)
			require.ErrorIs(t, f.SetAttr("x", c.value), python.ErrCycle)
		})
	}
	one := []int{1}
	same := ok[*python.Object](t)(py.New([]any{one, one, &one, map[string]any{"x": &one}}))
	require.Equal(t, "[[1], [1], [1], {'x': [1]}]", same.String(), "the same slice twice is no cycle")
	same.Release()
}

// testDepth: deep nesting without a cycle ends in an error as well, long before the
// stack does.
func testDepth(t *testing.T, py *python.Interpreter) {
	const fits = 1000
	nest := func(n int) any {
		var v any
		for range n {
			v = []any{v}
		}
		return v
	}
	o := ok[*python.Object](t)(py.New(nest(fits)))
	require.Equal(t, nest(fits), ok[any](t)(o.Value()))
	o.Release()
	_, err := py.New(nest(fits + 1))
	require.ErrorIs(t, err, python.ErrTooDeep)
	require.ErrorContains(t, err, "1000")
	require.Less(t, len(err.Error()), 300, "the path is cut short")
	_, err = py.New(nest(100_000))
	require.ErrorIs(t, err, python.ErrTooDeep)
	deep := ok[*python.Object](t)(py.Eval("__import__('functools').reduce(lambda a, _: [a], range(n), None)", python.Vars{"n": 100_000}))
	defer deep.Release()
	_, err = deep.Value()
	require.ErrorIs(t, err, python.ErrTooDeep)

	_, err = py.New(map[string]any{"k": []any{1, make(chan int)}})
	require.ErrorContains(t, err, `value["k"][1]: `)
	_, err = py.Run(`v = {"k": [1, {(1, 2): 3}]}`, nil, "v")
	require.ErrorContains(t, err, `variable v: value["k"][1].key(0): `)
}

// testLongInts: Python bounds the digits of decimal texts, not the size of an int.
func testLongInts(t *testing.T, py *python.Interpreter) {
	long := new(big.Int).Lsh(big.NewInt(-5), 20000)
	o := ok[*python.Object](t)(py.New(long))
	defer o.Release()
	same := ok[*python.Object](t)(py.Eval("x == -5 << 20000", python.Vars{"x": o}))
	defer same.Release()
	require.Equal(t, true, ok[any](t)(same.Value()))
	require.Equal(t, long, ok[any](t)(o.Value()))
	named := ok[*python.Object](t)(py.Eval("type('N', (int,), {'__repr__': lambda s: 'many', '__str__': lambda s: 'many'})(2**70)", nil))
	defer named.Release()
	require.Equal(t, new(big.Int).Lsh(big.NewInt(1), 70), ok[any](t)(named.Value()))
}
