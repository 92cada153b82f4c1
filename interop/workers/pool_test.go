//go:build cgo && linux

package workers_test

import (
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestExample runs the example and checks its output.
func TestExample(t *testing.T) {
	t.Setenv(python.EnvVar, testpython.Need(t, "numpy").Executable)
	require.Equal(t, "[2. 4. 6.] 12 0 bytes copied\n", testenv.Printed(t, Example))
}

func TestCalls(t *testing.T) {
	p := open(t, workers.Config{})
	require.NoError(t, p.Health())
	ctx := limited(t)
	v := testenv.Must(p.Call(ctx, "models:add", 2, python.Kwargs{"b": 40}))(t)
	require.Equal(t, int64(42), v)
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	plain := []any{nil, true, false, int64(-5), huge, 1.5, complex(1, 2), "grüße", []byte{0, 1}, []any{int64(1)}, python.Tuple{"a"},
		map[string]any{"k": []any{}}, map[any]any{int64(1): "one"}}
	v = testenv.Must(p.Call(ctx, "models:same", append(plain, python.Kwargs{"x": float32(0.5), "y": []uint16{1, 2}})...))(t)
	require.Equal(t, map[string]any{"args": plain, "names": map[string]any{"x": 0.5, "y": []any{int64(1), int64(2)}}}, v)
	v = testenv.Must(p.Call(ctx, "models:pid"))(t)
	require.NotEqual(t, int64(os.Getpid()), v)
	require.Equal(t, int64(p.Workers()[0].PID), v)
}

// The names of directories in Path need not be UTF-8.
func TestPath(t *testing.T) {
	for _, name := range []string{"plain", "modèles", "mod\xe8les"} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "helper_of_path.py"), []byte("def f(): return __file__.encode(errors='surrogateescape')\n"), 0o600))
		p := open(t, workers.Config{Path: []string{dir}, Import: []string{"helper_of_path"}})
		v := testenv.Must(p.Call(limited(t), "helper_of_path:f"))(t)
		require.Equal(t, filepath.Join(dir, "helper_of_path.py"), string(v.([]byte)))
	}
}

func TestArrays(t *testing.T) {
	p := open(t, workers.Config{})
	ctx := limited(t)
	shared := memory(t, segment.PeersWrite)
	x := shared.floats(1, 2, 3, 4)

	require.NoError(t, testenv.ErrorOf(p.Call(ctx, "models:double", x)))
	require.Equal(t, []float32{2, 4, 6, 8}, floatsOf(t, x), "the worker wrote the caller's memory")

	y := shared.floats(0, 0, 0, 0)
	require.NoError(t, testenv.ErrorOf(p.Call(ctx, "models:into", x, python.Kwargs{"outputs": map[string]any{"y": y}})))
	require.Equal(t, []float32{3, 5, 7, 9}, floatsOf(t, y))

	view := testenv.Held(x.Index(usmarray.IndexFrom(0).By(2)))(t)
	v := testenv.Must(p.Call(ctx, "models:facts", view.AsReadOnly()))(t)
	require.Equal(t, map[string]any{"readonly": true, "shape": []any{int64(2)}, "strides": []any{int64(2)}, "interprocess": true, "usm": nil, "sum": 8.0}, v)
	in, out := p.Traffic()
	require.Equal(t, workers.Traffic{Handles: 4}, in)
	require.Zero(t, out)

	v = testenv.Must(p.Call(ctx, "models:own", 3))(t)
	require.Equal(t, []float32{7, 7, 7}, floatsOf(t, v))
	_, out = p.Traffic()
	require.Equal(t, workers.Traffic{Handles: 1}, out)
	list := testenv.Must(p.Call(ctx, "models:same", v, x, v))(t).(map[string]any)["args"].([]any)
	require.Equal(t, x.Pointer(), list[1].(*usmarray.Array).Pointer(), "the result has the address of the argument")
	for _, a := range list {
		a.(*usmarray.Array).Release()
	}
	v.(*usmarray.Array).Release()
	_, out = p.Traffic()
	require.Equal(t, workers.Traffic{Handles: 4}, out)

	v = testenv.Must(p.Call(ctx, "models:doubled", x))(t)
	require.Equal(t, []float32{4, 8, 12, 16}, floatsOf(t, v))
	v.(*usmarray.Array).Release()
	_, out = p.Traffic()
	require.Equal(t, workers.Traffic{Handles: 4, Copies: 1, Bytes: 16}, out, "NumPy's memory is copied once")
}

// TestResultsOutliveThePool checks that results stay valid after their worker and the Pool have ended.
func TestResultsOutliveThePool(t *testing.T) {
	p := open(t, workers.Config{})
	v := testenv.Must(p.Call(limited(t), "models:own", 1<<16))(t)
	require.NoError(t, p.Close(limited(t)))
	values := floatsOf(t, v)
	require.Len(t, values, 1<<16)
	require.Equal(t, float32(7), values[1<<16-1])
	require.NoError(t, v.(*usmarray.Array).SetAt(float32(1), 0))
	v.(*usmarray.Array).Release()
}

// TestByValue checks that an array in memory that other processes cannot map is passed as a read-only copy.
func TestByValue(t *testing.T) {
	p := open(t, workers.Config{})
	r := testenv.Must(memmgr.Default(nil, syclobj.USMUnknown))(t)
	x := testenv.Held(usmarray.FromSlice(r, []float32{1, 2, 3}, []int{3}))(t)
	v := testenv.Must(p.Call(limited(t), "models:facts", x))(t)
	require.Equal(t, 6.0, v.(map[string]any)["sum"])
	require.Equal(t, true, v.(map[string]any)["readonly"])
	require.ErrorIs(t, testenv.ErrorOf(p.Call(limited(t), "models:double", x)), python.ValueError, "writing to a copy is an error")
	require.Equal(t, []float32{1, 2, 3}, floatsOf(t, x))
	in, _ := p.Traffic()
	require.Equal(t, workers.Traffic{Copies: 2, Bytes: 24}, in)
}

// TestFromWorkerToWorker checks that an array from one worker can be an argument of a call in another.
func TestFromWorkerToWorker(t *testing.T) {
	p := open(t, workers.Config{Workers: 2, Least: 2})
	ctx := limited(t)
	shared := memory(t, segment.PeersWrite)
	begun, end := shared.flag(), shared.flag()
	made := testenv.Must(p.Call(ctx, "models:own", 4))(t)
	first := testenv.Must(p.Call(ctx, "models:pid"))(t)
	held := make(chan any, 1)
	go func() { // occupies the worker that was used last
		v, err := p.Call(ctx, "models:until", begun, end)
		if err != nil {
			v = err
		}
		held <- v
	}()
	eventually(t, func() bool { return isSet(begun) }, "the call does not begin")
	v := testenv.Must(p.Call(ctx, "models:same", made, python.Kwargs{"pid": 1}))(t)
	back := v.(map[string]any)["args"].([]any)[0].(*usmarray.Array)
	require.Equal(t, []float32{7, 7, 7, 7}, floatsOf(t, back))
	require.NoError(t, made.(*usmarray.Array).SetAt(float32(8), 0))
	require.Equal(t, []float32{8, 7, 7, 7}, floatsOf(t, back), "one memory in three processes")
	back.Release()
	require.NoError(t, end.SetAt(uint8(1), 0))
	require.Equal(t, first, <-held)
	in, out := p.Traffic()
	require.Zero(t, in.Copies)
	require.Zero(t, out.Copies)
	made.(*usmarray.Array).Release()
}
