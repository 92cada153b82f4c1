//go:build cgo && linux

package executor_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// values generates values from bytes, in pairs: one for the executor, and one for python.New with a
// Python Array in the place of each array.
type values struct {
	data    []byte
	array   *usmarray.Array
	object  *python.Object
	strange bool // generate values that only Python converts, too
}

func (v *values) byte() byte {
	if len(v.data) == 0 {
		return 0
	}
	b := v.data[0]
	v.data = v.data[1:]
	return b
}

func (v *values) word() uint64 {
	var w [8]byte
	v.data = v.data[copy(w[:], v.data):]
	return binary.LittleEndian.Uint64(w[:])
}

func (v *values) text() string {
	n := min(int(v.byte()), len(v.data))
	s := strings.ToValidUTF8(string(v.data[:n]), "?")
	v.data = v.data[n:]
	return s
}

func (v *values) next(depth int) (ours, theirs any) {
	kind := v.byte()
	if depth == 0 {
		kind %= 12
	}
	switch kind % 18 {
	default:
		return nil, nil
	case 1:
		b := v.byte()&1 == 1
		return b, b
	case 2:
		n := int64(v.word())
		return n, n
	case 3:
		n := v.word()
		return n, n
	case 4:
		f := math.Float64frombits(v.word())
		return f, f
	case 5:
		f := float32(v.byte()) / 3
		return f, f
	case 6:
		c := complex(float64(v.byte()), math.Float64frombits(v.word()))
		return c, c
	case 7, 8:
		s := v.text()
		return s, s
	case 9:
		b := []byte(v.text())
		return b, b
	case 10:
		return v.array, v.object
	case 11:
		if !v.strange {
			n := int32(v.byte()) - 7
			return n, n
		}
		s := [2]any{v.text(), int8(v.byte())}
		return s, s
	case 12, 13, 14:
		a, b := make([]any, v.byte()%5), []any(nil)
		for i := range a {
			var theirs any
			a[i], theirs = v.next(depth - 1)
			b = append(b, theirs)
		}
		if kind%18 == 14 {
			return python.Tuple(a), python.Tuple(b)
		}
		return a, append([]any{}, b...)
	case 15, 16:
		a, b := map[string]any{}, map[string]any{}
		for range v.byte() % 4 {
			name := v.text()
			a[name], b[name] = v.next(depth - 1)
		}
		return a, b
	case 17:
		return []*usmarray.Array{v.array, nil}, []any{v.object, nil}
	}
}

const compare = `
def key(v):
    if isinstance(v, dict): return {k: key(e) for k, e in sorted(v.items())}
    if isinstance(v, (list, tuple)): return type(v)(map(key, v))
    return v
def same(a, b, **named):
    for x, y in [(a, b), (list(named), sorted(named, key=list(named).index))]:
        if repr(key(x)) != repr(key(y)): return repr(x) + " is not " + repr(y)
    return ",".join(sorted(named))
`

// FuzzArguments checks that the executor, which encodes arguments without Python, converts them as
// python.New does.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"", "\x02abcdefgh", "\x0c\x04\x01\x01\x0a\x07\x02hi\x09\x01z", "\x0f\x02\x01a\x0e\x02\x0a\x00\x01b\x10\x01\x01c\x11",
		"\x04\xff\xff\xff\xff\xff\xff\xff\xff", "\x0c\x02\x0b\x03a\x00b\x05\x03", "\x07\x0c\x00null\x00inside\x00"} {
		f.Add([]byte(seed), "name", false)
		f.Add([]byte(seed), "a name\x00", true)
	}
	py, r := start(f)
	m := testenv.Must(py.Module("compared", compare))(f)
	f.Cleanup(m.Release)
	e := testenv.Must(executor.New(py, executor.Config{}))(f)
	f.Cleanup(func() { require.NoError(f, e.Close(f.Context())) })
	array := testenv.Must(usmarray.FromSlice(r, []int16{1, 2, 3, 4, 5, 6}, []int{2, 3}))(f)
	f.Cleanup(array.Release)
	object := testenv.Must(pymodule.ToPython(array))(f)
	f.Cleanup(object.Release)
	f.Fuzz(func(t *testing.T, data []byte, name string, strange bool) {
		v := &values{data: data, array: array, object: object, strange: strange}
		name = strings.ToValidUTF8(name, "?")
		ours, theirs := v.next(6)
		want := testenv.Held(py.New(theirs))(t)
		named := python.Kwargs{}
		if name != "" && name != "a" && name != "b" {
			named[name] = ours
		}
		out := testenv.Must(e.Call(t.Context(), "compared:same", ours, want, named))(t)
		if len(named) == 0 {
			name = ""
		}
		require.Equal(t, name, out)
	})
}

// readBy is an argument that only Python converts. The conversion calls the function.
type readBy func()

func (f readBy) Error() string {
	f()
	return "read"
}

// TestReturnAfterReading checks that Call does not return while its arguments are converted, because the
// caller may change them afterwards.
func TestReturnAfterReading(t *testing.T) {
	e, _ := open(t, executor.Config{Grace: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned, read, early := make(chan struct{}), make(chan struct{}), false
	go func() {
		defer close(returned)
		_, _ = e.Call(ctx, "models:add", readBy(func() {
			cancel()
			select {
			case <-returned:
				early = true
			case <-time.After(200 * time.Millisecond): // a wrong Call has returned by then
			}
			close(read)
		}))
	}()
	await(t, read)
	require.False(t, early, "Call has returned")
	await(t, returned)
}

// TestLargeArguments covers sizes below and above those of the preallocated memory.
func TestLargeArguments(t *testing.T) {
	e, r := open(t, executor.Config{})
	py, _ := start(t)
	m := testenv.Must(py.Module("compared", compare+`
def count(*args, **named): return len(args), len(named), sum(args) + sum(named.values())
def length(x): return len(x)
def depth(x):
    n = 0
    while x: x, n = x[0], n + 1
    return n
`))(t)
	defer m.Release()
	for _, n := range []int{0, 1, 15, 16, 17, 100, 5000} {
		args, named, sum := make([]any, n), python.Kwargs{}, 0
		for i := range n {
			args[i] = i
			named[fmt.Sprintf("n%d", i)] = i
			sum += i
		}
		out := testenv.Must(e.Call(t.Context(), "compared:count", args...))(t)
		require.Equal(t, python.Tuple{int64(n), int64(0), int64(sum)}, out)
		out = testenv.Must(e.Call(t.Context(), "compared:count", append(args, named)...))(t)
		require.Equal(t, python.Tuple{int64(n), int64(n), int64(2 * sum)}, out)
	}
	for _, n := range []int{7, 8, 9, 4095, 4096, 4097, 1 << 20} {
		for _, v := range []any{strings.Repeat("x", n), make([]byte, n), make([]any, n), make([]float32, n)} {
			require.EqualValues(t, n, testenv.Must(e.Call(t.Context(), "compared:length", v))(t))
		}
	}
	for _, n := range []int{1, 31, 32, 33, 200} {
		v := []any{}
		for range n {
			v = []any{v}
		}
		require.EqualValues(t, n, testenv.Must(e.Call(t.Context(), "compared:depth", v))(t))
	}
	var arrays []*usmarray.Array
	for i := range 40 {
		arrays = append(arrays, testenv.Held(usmarray.Full(r, usmarray.Int64, []int{1 + i}, i))(t))
	}
	out := testenv.Must(e.Call(t.Context(), "compared:length", arrays))(t)
	require.EqualValues(t, 40, out)
	// Refused arguments leave no memory behind, wherever the refused value is.
	require.ErrorContains(t, testenv.ErrorOf(e.Call(t.Context(), "compared:length", arrays, map[string]any{"a": arrays[0], "b": make(chan int)})), "chan int")
	require.ErrorIs(t, testenv.ErrorOf(e.Call(t.Context(), "compared:length", arrays, "one too many")), python.TypeError)
	out = testenv.Must(e.Call(t.Context(), "compared:count", 1, python.Kwargs{"x": 2, "y": 3, "z": 4}))(t)
	require.Equal(t, python.Tuple{int64(1), int64(3), int64(10)}, out)
}
