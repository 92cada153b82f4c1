package workers

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/values"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/usmarray"
)

// samples returns results of each kind.
func samples() []any {
	huge := new(big.Int).Lsh(big.NewInt(-3), 100)
	return []any{
		nil, true, false, int64(0), int64(math.MinInt64), int64(math.MaxInt64), huge, 1.5, math.Inf(-1), math.NaN(), complex(1, -1),
		"", "grüße", []byte{}, []byte{1, 2}, []any{}, []any{int64(1), []any{"x"}}, python.Tuple{int64(1), nil},
		map[string]any{"a": int64(1), "b": map[string]any{}}, map[any]any{int64(1): "x", nil: 2.5, "s": nil, true: nil},
	}
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	e := newEncoder(1 << 20)
	require.NoError(t, e.Encode(v))
	return e.bytes()
}

func TestValues(t *testing.T) {
	for _, v := range samples() {
		d := decoder{b: encoded(t, v)}
		got := testenv.Must(d.result())(t)
		require.Equal(t, fmt.Sprintf("%T %v", v, v), fmt.Sprintf("%T %v", got, got))
		for n := range len(encoded(t, v)) {
			d := decoder{b: encoded(t, v)[:n]}
			if _, err := d.result(); err != nil {
				require.ErrorIs(t, err, ErrMessage)
			} else {
				require.Fail(t, "a truncated value", "%v", v)
			}
		}
	}
	type named int8
	x := "x"
	for v, want := range map[any]any{
		named(-3): int64(-3), uint64(math.MaxUint64): new(big.Int).SetUint64(math.MaxUint64), float32(0.5): 0.5, complex64(1): complex128(1),
		[2]int{1, 2}: []any{int64(1), int64(2)}, &x: "x", (*string)(nil): nil,
	} {
		d := decoder{b: encoded(t, v)}
		require.Equal(t, want, testenv.Must(d.result())(t))
	}
}

// words returns the bytes of a message with these words.
func words(w ...uint64) []byte {
	var b []byte
	for _, x := range w {
		b = binary.NativeEndian.AppendUint64(b, x)
	}
	return b
}

func word(kind values.Kind, n uint64) uint64 { return uint64(kind) | n<<4 }

// address is a valid address in this process, which a message must not contain.
var address int64

// forged returns invalid messages that a hostile worker could send.
func forged() map[string][]byte {
	here := uint64(uintptr(unsafe.Pointer(&address)))
	return map[string][]byte{
		"nothing":         {},
		"half a word":     {0, 0, 0},
		"a kind":          words(word(15, 0)),
		"none with one":   words(word(values.None, 1)),
		"bool of two":     words(word(values.Bool, 2)),
		"an int with one": words(word(values.Int, 1), 1),
		"after the end":   words(word(values.None, 0), 0),
		"a long list":     words(word(values.List, 1<<40)),
		"a long dict":     words(word(values.Dict, 2), 0, 0, 0),
		"a long text":     words(word(values.Text, 1<<60-1), 0),
		"text, no NUL":    words(word(values.Text, 8), 0),
		"an array":        words(word(values.Number, 0)),
		"a list as key":   words(word(values.Dict, 1), word(values.List, 0), word(values.None, 0)),
		"a key twice":     words(word(values.Dict, 2), word(values.Text, 1), 'a', 0, word(values.Text, 1), 'a', 0),
		"a number twice":  words(word(values.Dict, 2), word(values.Int, 0), 2, 0, word(values.Int, 0), 2, 0),
		"a deep list":     bytes.Repeat(words(word(values.List, 1)), 5000),

		"an object":               words(word(values.Object, 0), here),
		"no object":               words(word(values.Object, 0), 0),
		"an object in a list":     words(word(values.List, 1), word(values.Object, 0), here),
		"an object as key":        words(word(values.Dict, 1), word(values.Object, 0), here, 0),
		"an object in a tuple":    words(word(values.Tuple, 2), 0, word(values.Object, 7), here),
		"an address of an array":  words(word(values.Array, 1), here, here, 0, 0, 1, 1),
		"an array without extent": words(word(values.Array, 0), here, here, 0, 0),
		"an array in a dict":      words(word(values.Dict, 1), word(values.Text, 1), 'a', word(values.Array, 0), here, here, 0, 0),
	}
}

// TestForgedValues checks that the decoder refuses addresses, and lengths without data before it allocates memory
// for them.
func TestForgedValues(t *testing.T) {
	a := testenv.Held(usmarray.FromPinnedSlice([]int32{1}, []int{1}))(t)
	for name, b := range forged() {
		d := decoder{b: b}
		require.ErrorIs(t, testenv.ErrorOf(d.result()), ErrMessage, name)
		// The same as an argument of a call, and after a table with an array.
		d = decoder{b: append(words(word(values.Text, 1), 'f', word(values.Int, 0), 1, word(values.Int, 0), 0), b...)}
		_, _, err := d.call()
		require.ErrorIs(t, err, ErrMessage, name)
		if name != "an array" {
			d = decoder{b: b, arrays: []*usmarray.Array{a}}
			require.ErrorIs(t, testenv.ErrorOf(d.result()), ErrMessage, name)
		}
	}
}

// TestNoAddresses checks that the encoder of messages writes no addresses.
func TestNoAddresses(t *testing.T) {
	e := newEncoder(1 << 20)
	require.Panics(t, func() { _ = e.Object(unsafe.Pointer(&address)) })
	require.Panics(t, func() { _, _ = e.Array(1) })
}

func FuzzValue(f *testing.F) {
	for _, v := range samples() {
		f.Add(encoded(f, v))
	}
	for _, b := range forged() {
		f.Add(b)
	}
	var arrays []*usmarray.Array
	for i := range 3 {
		a := testenv.Must(usmarray.FromPinnedSlice([]int32{int32(i)}, []int{1}))(f)
		f.Cleanup(a.Release)
		arrays = append(arrays, a)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{b: b, arrays: arrays}
		v, err := d.result()
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		e := newEncoder(math.MaxInt)
		require.NoError(t, e.Encode(v))
		d = decoder{b: e.bytes(), arrays: e.arrays}
		require.Equal(t, rendered(reflect.ValueOf(v)), rendered(reflect.ValueOf(testenv.Must(d.result())(t))))
	})
}

// rendered returns a value as text, with dictionaries sorted by the text of their keys. fmt would sort keys that are
// pointers, such as large integers, by address.
func rendered(v reflect.Value) string {
	if !v.IsValid() {
		return "nil"
	}
	var parts []string
	switch x := v.Interface().(type) {
	case *big.Int, *usmarray.Array:
		return fmt.Sprintf("%T %v", x, x)
	}
	switch v.Kind() {
	case reflect.Interface:
		return rendered(v.Elem())
	case reflect.Map:
		for k, e := range v.Seq2() {
			parts = append(parts, rendered(k)+": "+rendered(e))
		}
		slices.Sort(parts)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			parts = append(parts, rendered(v.Index(i)))
		}
	default:
		return fmt.Sprintf("%v %v", v.Type(), v)
	}
	return fmt.Sprintf("%v%q", v.Type(), parts)
}

// TestSmallLargeIntegers checks that each integer has only one encoding, so that a key cannot occur twice.
func TestSmallLargeIntegers(t *testing.T) {
	text := func(digits string) []byte {
		b := append(words(word(values.Big, uint64(len(digits)))), digits...)
		return append(b, make([]byte, 8-len(digits)%8)...)
	}
	for _, b := range [][]byte{
		text(""), text("0"), text("-7"), text("7fffffffffffffff"), text("ffffffffffffffff"), text("-8000000000000000"),
		text("010000000000000000"), text("+10000000000000000"), text("1_0000000000000000"), text("ABCDEF0123456789AB"), text("x"),
		words(word(values.Uint, 0), 0), words(word(values.Uint, 0), math.MaxInt64),
	} {
		d := decoder{b: b}
		v, err := d.result()
		require.ErrorIs(t, err, ErrMessage, "%q is %v", b, v)
	}
	d := decoder{b: text("-10000000000000000")}
	require.Equal(t, new(big.Int).Lsh(big.NewInt(-1), 64), testenv.Must(d.result())(t))
}

func FuzzCall(f *testing.F) {
	for _, args := range [][]any{nil, {1, "x"}, {python.Kwargs{"a": 1}}, {nil, python.Kwargs{"a": []any{}}}} {
		e := newEncoder(1 << 20)
		require.NoError(f, e.call("module:name", args))
		f.Add(append([]byte{0}, e.bytes()...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{b: b}
		entries, err := d.table()
		if err == nil {
			require.LessOrEqual(t, len(entries), maxArrays)
			d.arrays = make([]*usmarray.Array, len(entries))
			_, _, err = d.call()
		}
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
		}
	})
}

func frame(k kind, call uint64, length uint32, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, length)
	b = append(b, byte(k))
	return append(binary.LittleEndian.AppendUint64(b, call), payload...)
}

func FuzzMessage(f *testing.F) {
	f.Add(frame(toCall, 1, 3, []byte("abc")))
	f.Add(frame(atReady, 0, 0, nil))
	f.Add(frame(99, 0, 0, nil))
	f.Add(frame(atResult, 7, math.MaxUint32, []byte("abc")))
	f.Add(append(frame(atState, 0, 2, []byte("{}")), frame(atError, 2, 1000, []byte("{}"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		in := bytes.NewReader(b)
		var buf []byte
		for {
			before := in.Len()
			m, err := readMessage(in, &buf, limit)
			if err != nil {
				require.True(t, errors.Is(err, ErrMessage) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
				return
			}
			require.LessOrEqual(t, len(m.payload), limit)
			require.Equal(t, before-in.Len(), headBytes+len(m.payload))
		}
	})
}

// TestAnnouncedLength checks that memory for a message is allocated as its bytes arrive.
func TestAnnouncedLength(t *testing.T) {
	var buf []byte
	require.ErrorIs(t, testenv.ErrorOf(readMessage(bytes.NewReader(frame(toCall, 1, maxMessage, []byte("abc"))), &buf, maxMessage)), io.ErrUnexpectedEOF)
	require.LessOrEqual(t, cap(buf), most)
	require.ErrorIs(t, testenv.ErrorOf(readMessage(bytes.NewReader(frame(toCall, 1, maxMessage+1, nil)), &buf, maxMessage)), ErrMessage)
	long := bytes.Repeat([]byte("0123456789"), 1<<19)
	in := bytes.NewReader(append(frame(toCall, 1, uint32(len(long)), long), frame(toCancel, 2, 1, []byte("x"))...))
	m := testenv.Must(readMessage(in, &buf, maxMessage))(t)
	require.Equal(t, long, m.payload)
	m = testenv.Must(readMessage(in, &buf, maxMessage))(t)
	require.Equal(t, message{toCancel, 2, []byte("x")}, m)
	require.LessOrEqual(t, cap(buf), most, "the memory of a long message is not kept")
}

func FuzzFailure(f *testing.F) {
	for _, err := range failures() {
		b, jsonErr := json.Marshal(describe(err))
		require.NoError(f, jsonErr)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got failure
		if err := parseJSON(message{payload: b}, &got); err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		err := got.err(io.EOF)
		require.Error(t, err)
		require.NotPanics(t, func() { _ = err.Error() })
	})
}

func failures() []error {
	x := &python.Error{Type: "KeyError", Message: "'a'", Traceback: "Traceback …", Classes: []string{"KeyError", "LookupError"}}
	return []error{
		errors.New("plain"), x, &executor.Error{Op: "m:f", Err: x}, fmt.Errorf("result: %w", x),
		&executor.Error{Op: "m:f", Err: &python.OpError{Op: "CallContext", Kind: python.ErrInterrupted, Err: fmt.Errorf("%w: %w", io.EOF, x)}},
		&executor.Error{Op: "m:f", Kind: python.ErrNotBegun, Err: io.EOF},
		&python.PanicError{Value: "p", Stack: "s"}, fmt.Errorf("x: %w", &python.ConversionError{From: "a", To: "b", Err: python.ErrCycle}),
		fmt.Errorf("x: %w", python.ValueError), fmt.Errorf("x: %w", ErrTooLong),
	}
}

// TestFailures checks that errors.Is and errors.As give the same results after a transfer to another process.
func TestFailures(t *testing.T) {
	kinds := []error{python.ErrInterrupted, python.ErrNotBegun, python.ErrNotStopped, python.KeyError, python.LookupError, python.ValueError,
		python.ErrCycle, python.ErrTooDeep, ErrTooLong}
	for _, before := range failures() {
		b := testenv.Must(json.Marshal(describe(before)))(t)
		var f failure
		require.NoError(t, parseJSON(message{payload: b}, &f))
		after := f.err(io.EOF)
		for _, kind := range kinds {
			require.Equal(t, errors.Is(before, kind), errors.Is(after, kind), "%v: %v", before, kind)
		}
		var x *python.Error
		if errors.As(before, &x) {
			y := testenv.As[*python.Error](t, after)
			require.Equal(t, x.Traceback, y.Traceback)
		}
	}
	long := describe(errors.New(string(make([]byte, 1<<20))))
	require.LessOrEqual(t, len(long.Text), maxText+100)
}

// TestFailuresOfContexts checks that an error of the worker's context is one of the caller's context in the Pool, with or
// without an outcome, and that other errors are not.
func TestFailuresOfContexts(t *testing.T) {
	over, cancel := context.WithCancelCause(context.Background())
	cancel(errCancelled)
	exported := &share.OpError{Op: "Export", Err: context.Canceled}
	for name, c := range map[string]struct {
		ctx     context.Context
		err     error
		ended   bool
		outcome error
	}{
		"export of the result":     {over, fmt.Errorf("result: %w", afterCall(over, exported)), true, python.ErrNotStopped},
		"wait for the arguments":   {over, afterCall(over, context.Canceled), true, python.ErrNotStopped},
		"wait in the executor":     {over, &executor.Error{Op: "m:f", Err: context.Canceled}, true, nil},
		"cause":                    {over, &executor.Error{Op: "m:f", Err: fmt.Errorf("wait: %w", errCancelled)}, true, nil},
		"outcome":                  {over, &executor.Error{Op: "m:f", Kind: python.ErrNotBegun, Err: context.Canceled}, true, python.ErrNotBegun},
		"failure at the same time": {over, afterCall(over, io.EOF), false, nil},
		"another context":          {context.Background(), exported, false, nil},
		"no context":               {context.Background(), io.EOF, false, nil},
	} {
		b := testenv.Must(json.Marshal(describe(ofContext(c.ctx, c.err))))(t)
		var f failure
		require.NoError(t, parseJSON(message{payload: b}, &f), name)
		after := f.err(context.DeadlineExceeded)
		require.Equal(t, c.ended, errors.Is(after, context.DeadlineExceeded), name)
		for _, kind := range []error{python.ErrNotBegun, python.ErrInterrupted, python.ErrNotStopped} {
			require.Equal(t, c.outcome == kind, errors.Is(after, kind), "%s: %v", name, kind) //nolint:errorlint // the row's own sentinel
		}
	}
}
