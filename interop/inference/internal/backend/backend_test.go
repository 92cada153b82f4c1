package backend_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/inference/internal/backend"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// TestMain checks for leaks of memory only, because Python keeps dpctl queues until the process
// ends.
func TestMain(m *testing.M) {
	workers.Main()
	memtest.Main(m)
}

const limit = 64 << 20

// open serves sources with the real Python. The test is skipped without Python.
func open(t testing.TB, sources []models.Source, change ...func(*engine.Options)) *engine.Engine {
	t.Helper()
	return openWith(t, sources, backend.Options{}, change...)
}

func openWith(t testing.TB, sources []models.Source, o backend.Options, change ...func(*engine.Options)) *engine.Engine {
	t.Helper()
	testpython.Need(t)
	var log enginetest.Log
	o.Limit, o.Grace, o.Log = limit, 200*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	b, err := backend.Open(o)
	require.NoError(t, err, "%s", &log)
	eo := engine.Options{Memory: b.Memory, Calls: b.Calls, Results: b.Results, ForModels: b.ForModels, Runner: b.Runner, Apart: o.Workers > 0, Log: o.Log,
		Timeout: 5 * time.Minute} // time for workers to restart on a machine under load
	for _, f := range change {
		f(&eo)
	}
	e := engine.New(eo)
	for _, s := range sources {
		d := testenv.Must(b.Load(t.Context(), s, false))(t)
		require.Empty(t, d.Broken, "%s: %s", d.Detail, &log)
		require.NoError(t, testenv.ErrorOf(e.SetModel(d)))
	}
	e.Loaded()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		require.NoError(t, e.Close(ctx))
		require.NoError(t, b.CloseRunner(ctx), "%s", &log)
		require.NoError(t, b.Close(), "%s", &log)
		if t.Failed() {
			t.Log(&log)
		}
	})
	return e
}

// needNumba skips the test if the built-in models cannot run.
func needNumba(t testing.TB) {
	t.Helper()
	testpython.Need(t, "numpy", "numba")
}

// source returns the source of a model.
func source(name, text string) models.Source {
	return models.Source{Name: name, File: name + ".py", Text: strings.TrimSpace(text) + "\n"}
}

func floatsOf(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// sobelInGo computes the result of the model sobel in Go.
func sobelInGo(grey []float32, h, w int) []byte {
	out := make([]byte, h*w)
	at := func(i, j int) float32 { return grey[min(max(i, 0), h-1)*w+min(max(j, 0), w-1)] }
	for i := range h {
		for j := range w {
			gx := (at(i-1, j+1) + 2*at(i, j+1) + at(i+1, j+1)) - (at(i-1, j-1) + 2*at(i, j-1) + at(i+1, j-1))
			gy := (at(i+1, j-1) + 2*at(i+1, j) + at(i+1, j+1)) - (at(i-1, j-1) + 2*at(i-1, j) + at(i-1, j+1))
			out[i*w+j] = byte(min(255, math.RoundToEven(math.Sqrt(float64(float32(gx*gx)+float32(gy*gy))))))
		}
	}
	return out
}

func TestBuiltInModels(t *testing.T) {
	needNumba(t)
	for _, n := range []int{0, 2} {
		t.Run(fmt.Sprint(n, " workers"), func(t *testing.T) {
			tryBuiltIn(t, openWith(t, models.Builtin(), backend.Options{Workers: n}))
		})
	}
}

func tryBuiltIn(t *testing.T, e *engine.Engine) {
	for _, size := range [][2]int{{1, 1}, {1, 7}, {16, 16}, {103, 150}, {0, 5}} {
		h, w := size[0], size[1]
		shape := []int64{int64(h), int64(w)}
		grey := make([]float32, h*w)
		for i := range grey {
			grey[i] = float32((i * 7919) % 256)
		}
		edges := testenv.Must(enginetest.Call(t.Context(), e, "sobel", "luminance", shape, grey))(t)
		want := sobelInGo(grey, h, w)
		for i := range want {
			require.InDelta(t, want[i], edges[i], 1, "%v at %d", size, i) // fused multiply-adds round once less
		}
		same := testenv.Must(enginetest.Call(t.Context(), e, "identity", "x", []int64{int64(h * w)}, grey))(t)
		require.Equal(t, grey, floatsOf(same))
		rgb := make([]float32, 3*h*w)
		for i := range rgb {
			rgb[i] = float32((i * 104729) % 256)
		}
		luminance := testenv.Must(enginetest.Call(t.Context(), e, "luminance", "picture", append(shape, 3), rgb))(t)
		got := floatsOf(luminance)
		require.Len(t, got, h*w)
		for i := range got {
			require.InDelta(t, .299*rgb[3*i]+.587*rgb[3*i+1]+.114*rgb[3*i+2], got[i], 1e-3)
		}
	}
	for _, m := range e.Models() {
		require.EqualValues(t, 5, m.Stats().Success.Count)
	}
}

// many is a model that uses all features of the model interface: several inputs and outputs, fixed
// extents, and returned values of each kind.
var many = source("many", `
import usmbridge
INPUTS = {"a": ("INT64", [-1, 2]), "b": ("FP32", [-1])}
OUTPUTS = {"again": ("INT64", (-1, 2)), "list": ("FP64", (3,)), "scalar": ("BOOL", ()), "own": ("UINT8", (-1,))}

def infer(a, b):
    own = usmbridge.zeros(5, dtype="uint8")
    own.fill(7)
    return {"own": own, "again": a, "list": [1, 2.5, b.item() if b.size == 1 else 0], "scalar": True}
`)

func TestReturnedValues(t *testing.T) {
	for _, n := range []int{0, 1} {
		t.Run(fmt.Sprint(n, " workers"), func(t *testing.T) {
			tryReturned(t, openWith(t, []models.Source{many}, backend.Options{Workers: n}))
		})
	}
}

func tryReturned(t *testing.T, e *engine.Engine) {
	r := testenv.Must(e.Begin(t.Context(), "many", ""))(t)
	defer r.End()
	a := testenv.Must(r.Input("a", "INT64", []int64{3, 2}))(t)
	require.NoError(t, a.Fill(func(p []byte) error { p[40] = 9; return nil }))
	b := testenv.Must(r.Input("b", "FP32", []int64{1}))(t)
	require.NoError(t, b.Fill(func(p []byte) error { binary.LittleEndian.PutUint32(p, math.Float32bits(4)); return nil }))
	results := testenv.Must(r.Run())(t)
	require.Len(t, results, 4)
	require.Equal(t, []int64{3, 2}, results[0].Shape)
	require.EqualValues(t, 9, results[0].Bytes[40])
	require.Equal(t, []float64{1, 2.5, 4}, []float64{
		math.Float64frombits(binary.LittleEndian.Uint64(results[1].Bytes)),
		math.Float64frombits(binary.LittleEndian.Uint64(results[1].Bytes[8:])),
		math.Float64frombits(binary.LittleEndian.Uint64(results[1].Bytes[16:]))})
	require.Equal(t, []byte{1}, results[2].Bytes)
	require.Equal(t, []byte{7, 7, 7, 7, 7}, results[3].Bytes)
}

const header = `
INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}
`

// Memory that a model allocates in a call is charged to calls, and memory that the model keeps
// is counted.
func TestModelsMemory(t *testing.T) {
	e := open(t, []models.Source{
		source("takes", header+"import usmbridge\ndef infer(x):\n    y = usmbridge.empty(x.size, 'float32', usm_type=x.usm_type)\n    y.fill(3)\n    return {'y': y}"),
		source("keeps", header+"import usmbridge\nkept = []\ndef infer(x):\n    kept[:] = [usmbridge.empty(1000, 'float32', usm_type=x.usm_type)] * (x.size > 1)\n    return {'y': x}\ndef warm(): pass"),
	})
	got := testenv.Must(enginetest.Call(t.Context(), e, "takes", "x", []int64{3}, []float32{1, 2, 3}))(t)
	require.Equal(t, []float32{3, 3, 3}, floatsOf(got))
	var err error
	for wait := 2 * time.Second; ; wait *= 2 {
		short, cancel := context.WithTimeout(t.Context(), wait)
		_, err = enginetest.Call(short, e, "takes", "x", []int64{limit / 8}, nil) // and as much for the model
		cancel()
		if oip.As(err).Kind != oip.Deadline || wait > time.Minute { // the deadline expired before the model allocated memory
			break
		}
	}
	require.Equal(t, oip.Busy, oip.As(err).Kind, "more than calls may have: %v", err)
	for range 3 {
		require.NoError(t, testenv.ErrorOf(enginetest.Call(t.Context(), e, "keeps", "x", []int64{3}, []float32{1, 2, 3})))
	}
	require.NoError(t, testenv.ErrorOf(enginetest.Call(t.Context(), e, "keeps", "x", []int64{1}, []float32{1})))
	for name, kept := range map[string]uint64{"takes": 0, "keeps": 3} {
		m := testenv.Must(e.Model(name, ""))(t)
		require.Equal(t, kept, m.Stats().Kept, name)
	}
}

// TestMemoryBounds checks that the bounds of memory that models allocate, and of what they return, are the same in this
// process and in workers.
func TestMemoryBounds(t *testing.T) {
	sources := []models.Source{
		source("call", header+"import usmbridge\ndef output_shapes(x): return {'y': (1,)}\ndef infer(x, *, outputs): usmbridge.empty(int(x[0].item()) << 20, 'uint8', usm_type=x.usm_type)\ndef warm(): pass"),
		source("keeps", header+"import usmbridge\nkept = []\ndef infer(x):\n    kept.append(usmbridge.empty(1 << 20, 'uint8', usm_type=x.usm_type))\n    return {'y': x}\ndef warm(): pass"),
		source("returns", header+"import numpy\ndef infer(x): return {'y': numpy.zeros(int(x[0].item()) << 18, 'f4')}\ndef warm(): pass"),
		source("own", header+"import usmbridge\ndef infer(x): return {'y': usmbridge.zeros(int(x[0].item()) << 18, 'float32', usm_type=x.usm_type)}\ndef warm(): pass"),
	}
	const none = oip.Kind(oip.Kinds)
	for n := range 2 {
		t.Run(fmt.Sprint(n, " workers"), func(t *testing.T) {
			e := openWith(t, sources, backend.Options{Workers: n})
			call := func(model string, mib float32) error {
				_, err := enginetest.Call(t.Context(), e, model, "x", []int64{1}, []float32{mib})
				return err
			}
			for _, c := range []struct {
				model string
				mib   float32
				kind  oip.Kind // none: no error
			}{
				{"call", 4, none}, {"call", limit>>20/8 + 1, oip.Busy}, {"call", 1000, oip.Busy}, {"call", 4, none},
				{"returns", 4, none}, {"returns", limit >> 20 / 8, oip.TooLarge}, {"returns", 1000, oip.TooLarge}, {"returns", 4, none},
				{"own", 2, none}, {"own", 1000, oip.Busy}, {"own", 2, none},
			} {
				err := call(c.model, c.mib)
				if c.kind == none {
					require.NoError(t, err, "%s of %v MiB", c.model, c.mib)
				} else {
					require.Equal(t, c.kind, oip.As(err).Kind, "%s of %v MiB: %v", c.model, c.mib, err)
				}
			}
			if pool, ok := e.Options.Runner.(*workers.Pool); ok {
				_, results := pool.Traffic()
				require.EqualValues(t, 2*4<<20, results.Bytes, "a result that is too large is not copied")
				require.Eventually(t, func() bool { return pool.Workers()[0].Memory > 0 }, 30*time.Second, time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			kept := 0
			for ; kept < limit>>20; kept++ { // MiB
				short, cancel := context.WithTimeout(ctx, 3*time.Second)
				_, err := enginetest.Call(short, e, "keeps", "x", []int64{1}, []float32{1})
				cancel()
				if err != nil {
					break
				}
			}
			require.Positive(t, kept)
			require.Less(t, kept, limit>>20*3/4, "arrays that a model keeps are bounded")
		})
	}
}

// TestModelsThatFail checks that an error of a model fails only its own request. The client
// receives the message of an InvalidInput, but of no other exception: a ValueError, for example of
// NumPy, is an error of the server.
func TestModelsThatFail(t *testing.T) {
	sources := []models.Source{
		source("raises", header+"def infer(x): raise KeyError('secret')"),
		source("refuses", header+"from usmbridge.serving import InvalidInput\ndef infer(x): raise InvalidInput('a picture must have\\nsecret')"),
		source("numpy_error", header+"import numpy\ndef infer(x): return {'y': numpy.zeros(2) + numpy.zeros(3)}"),
		source("names", header+"def infer(x): return {'z': x}"),
		source("shape", header+"import usmbridge\ndef infer(x): return {'y': usmbridge.zeros((2, 2))}"),
		source("dtype", header+"import usmbridge\ndef infer(x): return {'y': usmbridge.zeros(3, dtype='float64')}"),
		source("nothing", header+"def infer(x): pass"),
		source("rubbish", header+"def infer(x): return {'y': object()}"),
		source("replaces", header+"def infer(x, *, outputs): outputs['y'] = x"),
		source("exits", header+"def infer(x): raise SystemExit(3)"),
		source("recurses", header+"def infer(x): return infer(x)"),
		source("writes", header+"def infer(x):\n    x[0] = 1\n    return {'y': x}"),
		source("memory", header+"def infer(x): raise MemoryError"),
		source("greedy", header+"import usmbridge\ndef infer(x): return {'y': usmbridge.empty(1 << 30, usm_type=x.usm_type)}"),
		source("good", header+"def infer(x): return {'y': x}"),
	}
	e := open(t, sources)
	for _, s := range sources {
		_, err := enginetest.Call(t.Context(), e, s.Name, "x", []int64{3}, []float32{1, 2, 3})
		if s.Name == "good" {
			require.NoError(t, err)
			continue
		}
		var told *oip.Error
		require.ErrorAs(t, err, &told, s.Name)
		kind := oip.Internal
		switch s.Name {
		case "refuses":
			kind = oip.Invalid
			require.Equal(t, "model refuses: a picture must have", told.Message)
		case "memory", "greedy":
			kind = oip.Busy
		case "writes":
			kind = told.Kind
		}
		require.Equal(t, kind, told.Kind, "%s: %v", s.Name, told)
		require.NotContains(t, told.Message, "secret")
		if s.Name == "raises" {
			require.Contains(t, told.Error(), "Traceback", "for the log")
		}
		require.Contains(t, told.Message, s.Name)
	}
}

// TestShapesOfInfer calls infer in every form that Python has. A response of 200 means that infer has run to its end and
// that nothing it returned was dropped. Forms that inspect recognizes are refused when the model is loaded.
func TestShapesOfInfer(t *testing.T) {
	testpython.Need(t)
	const write = "memoryview(outputs['y'])[:] = memoryview(x)"
	const (
		served = iota // READY, and the call answers with x
		fails         // READY, and the call fails
		refused
	)
	cases := []struct {
		name, text string
		want       int
	}{
		{"returns_none", "def infer(x, *, outputs): " + write, served},
		{"returns_outputs", "def infer(x, *, outputs):\n    " + write + "\n    return outputs", served},
		{"returns_copy", "def infer(x, *, outputs):\n    " + write + "\n    return dict(outputs)", fails},
		{"returns_dict", "def infer(x, *, outputs): return {'y': x}", fails},
		{"returns_array", "def infer(x, *, outputs): return x", fails},
		{"returns_list", "def infer(x, *, outputs): return []", fails},
		{"returns_false", "def infer(x, *, outputs): return False", fails},
		{"lambda_outputs", "infer = lambda x, *, outputs: memoryview(outputs['y']).__setitem__(slice(None), memoryview(x))", served},
		{"async_outputs", "async def infer(x, *, outputs): " + write, refused},
		{"generator_outputs", "def infer(x, *, outputs):\n    " + write + "\n    yield", refused},
		{"async_generator_outputs", "async def infer(x, *, outputs):\n    " + write + "\n    yield", refused},
		{"partial_async_outputs", "import functools\nasync def f(n, x, *, outputs): " + write + "\ninfer = functools.partial(f, 1)", refused},
		{"object_async_outputs", "class F:\n    async def __call__(self, x, *, outputs): " + write + "\ninfer = F()", refused},
		{"object_generator_outputs", "class F:\n    def __call__(self, x, *, outputs):\n        " + write + "\n        yield\ninfer = F()", refused},
		{"hidden_async_outputs", "async def f(x, outputs): " + write + "\ndef infer(x, *, outputs): return f(x, outputs)", fails},
		{"hidden_generator_outputs", "def infer(x, *, outputs): return (" + "outputs['y'].fill(1) for _ in [1])", fails},
		{"wrapped_async_outputs", "import functools\nasync def f(x, *, outputs): " + write + "\n@functools.wraps(f)\ndef infer(**kw): return f(**kw)", fails},
		{"runs_async_outputs", "import asyncio\nasync def f(x, outputs): " + write + "\ndef infer(x, *, outputs): asyncio.run(f(x, outputs))", served},
		{"static_method_outputs", "class F:\n    @staticmethod\n    def infer(x, *, outputs): " + write + "\ninfer = F.infer", served},
		{"object_outputs", "class F:\n    def __call__(self, x, *, outputs): " + write + "\ninfer = F()", served},
		{"deletes_output", "def infer(x, *, outputs): del outputs['y']", fails},
		{"plain", "def infer(x): return {'y': x}", served},
		{"plain_none", "def infer(x): pass", fails},
		{"plain_more", "def infer(x): return {'y': x, 'z': x}", fails},
		{"plain_fewer", "def infer(x): return {}", fails},
		{"plain_async", "async def infer(x): return {'y': x}", refused},
		{"plain_generator", "def infer(x): yield {'y': x}", refused},
		{"plain_async_generator", "async def infer(x): yield {'y': x}", refused},
		{"plain_hidden_async", "async def f(x): return {'y': x}\ndef infer(x): return f(x)", fails},
		{"plain_hidden_value", "async def f(x): return x\ndef infer(x): return {'y': f(x)}", fails},
		{"plain_generator_value", "def infer(x): return {'y': (v for v in x)}", fails},
		{"async_warm", "def infer(x): return {'y': x}\nasync def warm(): pass", refused},
		{"generator_warm", "def infer(x): return {'y': x}\ndef warm(): yield", refused},
		{"hidden_async_warm", "async def f(): pass\ndef infer(x): return {'y': x}\ndef warm(): return f()", refused},
		{"async_shapes", "async def output_shapes(x): return {'y': x}\ndef infer(x, *, outputs): " + write, refused},
		{"generator_shapes", "def output_shapes(x): yield {'y': x}\ndef infer(x, *, outputs): " + write, refused},
		{"hidden_async_shapes", "async def f(x): return {'y': x}\ndef output_shapes(x): return f(x)\ndef infer(x, *, outputs): " + write, fails},
	}
	var callable, others []models.Source
	for _, c := range cases {
		for suffix, declaration := range map[string]string{"": "", "_all": "WRITES_ALL = True\n"} {
			s := source(c.name+suffix, header+declaration+c.text)
			if c.want == refused {
				others = append(others, s)
			} else {
				callable = append(callable, s)
			}
		}
	}
	for n := range 2 {
		t.Run(fmt.Sprint(n, " workers"), func(t *testing.T) {
			for _, d := range load(t, n, others...) {
				require.NotEmpty(t, d.Broken, d.Meta.Name)
			}
			e := openWith(t, callable, backend.Options{Workers: n})
			for _, c := range cases {
				for _, name := range []string{c.name, c.name + "_all"} {
					if c.want == refused {
						continue
					}
					got, err := enginetest.Call(t.Context(), e, name, "x", []int64{3}, []float32{1, 2, 3})
					if c.want == fails {
						require.Equal(t, oip.Internal, oip.As(err).Kind, "%s: %v, %v", name, got, err)
						continue
					}
					require.NoError(t, err, name)
					require.Equal(t, []float32{1, 2, 3}, floatsOf(got), name)
				}
			}
		})
	}
}

// A model that does not return is interrupted at the deadline. Other models are served meanwhile.
func TestModelThatHangs(t *testing.T) {
	e := open(t, []models.Source{
		source("hangs", header+"def infer(x):\n    while x.size > 1: pass\n    return {'y': x}\ndef warm(): pass"),
		source("swallows", header+"def infer(x, *, outputs):\n    try:\n        while x.size > 1: pass\n    except BaseException: pass\ndef warm(): pass"),
		source("good", header+"def infer(x): return {'y': x}"),
	})
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := enginetest.Call(brief, e, "swallows", "x", []int64{2}, []float32{1, 2})
	require.Equal(t, oip.Deadline, oip.As(err).Kind, "an interrupted call has not run to its end")
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // only of the call that does not return
	defer cancel()
	_, err = enginetest.Call(short, e, "hangs", "x", []int64{2}, []float32{1, 2})
	require.Equal(t, oip.Deadline, oip.As(err).Kind)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = enginetest.Call(ctx, e, "hangs", "x", []int64{2}, []float32{1, 2})
	require.Equal(t, oip.Cancelled, oip.As(err).Kind)
	require.Eventually(t, func() bool {
		_, err := enginetest.Call(t.Context(), e, "good", "x", []int64{2}, []float32{1, 2})
		return err == nil
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, testenv.ErrorOf(enginetest.Call(t.Context(), e, "hangs", "x", []int64{1}, []float32{1})))
}

// TestOutputShapes checks output shapes that the model computes in output_shapes, including invalid
// ones.
func TestOutputShapes(t *testing.T) {
	e := open(t, []models.Source{
		source("halves", header+`
def output_shapes(x):
    return {"y": (x[0] // 2,)}
def infer(x, *, outputs):
    y = outputs["y"]
    for i in range(y.size):
        y[i] = x[2 * i].item()
`),
		source("wrong", header+"def output_shapes(x): return {'y': (1, 2)}\ndef infer(x, *, outputs): pass\ndef warm(): pass"),
		source("negative", header+"def output_shapes(x): return {'y': (-1,)}\ndef infer(x, *, outputs): pass\ndef warm(): pass"),
		source("huge", header+"def output_shapes(x): return {'y': (1 << 61,)}\ndef infer(x, *, outputs): pass\ndef warm(): pass"),
	})
	got := testenv.Must(enginetest.Call(t.Context(), e, "halves", "x", []int64{5}, []float32{1, 2, 3, 4, 5}))(t)
	require.Equal(t, []float32{1, 3}, floatsOf(got))
	for name, kind := range map[string]oip.Kind{"wrong": oip.Internal, "negative": oip.Internal, "huge": oip.TooLarge} {
		_, err := enginetest.Call(t.Context(), e, name, "x", []int64{1}, []float32{1})
		require.Equal(t, kind, oip.As(err).Kind, name)
	}
}

// Serial models run one call at a time, in parallel to calls of other models.
func TestSerial(t *testing.T) {
	e := open(t, []models.Source{source("alone", `
import time
SERIAL = True
INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}
within = 0
def infer(x):
    global within
    within += 1
    try:
        for _ in range(5):
            time.sleep(0.001)
            if within != 1: raise RuntimeError(within)
    finally:
        within -= 1
    return {"y": x}
`)})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := enginetest.Call(t.Context(), e, "alone", "x", []int64{1}, []float32{1}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A worker that dies fails the request that it ran, and no other.
func TestWorkerDies(t *testing.T) {
	e := openWith(t, []models.Source{
		source("dies", header+"import os, signal\ndef infer(x): os.kill(os.getpid(), signal.SIGKILL)\ndef warm(): pass"),
		source("good", header+"import time\ndef infer(x):\n    time.sleep(0.01)\n    return {'y': x}"),
	}, backend.Options{Workers: 2})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				if _, err := enginetest.Call(t.Context(), e, "good", "x", []int64{1}, []float32{1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		_, err := enginetest.Call(t.Context(), e, "dies", "x", []int64{1}, []float32{1})
		require.Equal(t, oip.Internal, oip.As(err).Kind)
		require.Equal(t, "model dies failed", oip.As(err).Message)
		require.ErrorIs(t, err, workers.ErrDied)
	}
	wg.Wait()
}

// A worker that hangs in C is killed after the deadline.
func TestWorkerHangs(t *testing.T) {
	e := openWith(t, []models.Source{
		source("hangs", header+"import ctypes\ndef infer(x): ctypes.PyDLL(None).pause()\ndef warm(): pass"),
		source("good", header+"def infer(x): return {'y': x}"),
	}, backend.Options{Workers: 1})
	r := testenv.Must(e.Begin(t.Context(), "hangs", ""))(t)
	defer r.End()
	r.SetTimeout(500 * time.Millisecond)
	in := testenv.Must(r.Input("x", "FP32", []int64{1}))(t)
	var err error
	if err = in.Fill(func(p []byte) error { clear(p); return nil }); err == nil { // in time
		_, err = r.Run()
	}
	require.Equal(t, oip.Deadline, oip.As(err).Kind)
	require.NoError(t, testenv.ErrorOf(enginetest.Call(t.Context(), e, "good", "x", []int64{1}, []float32{1})))
}

// A model that cannot be served is broken, with its file and the reason.
func TestBadModelFiles(t *testing.T) {
	testpython.Need(t)
	bad := map[string]string{
		"syntax":    "def infer(:",
		"imports":   "import no_such_module_anywhere",
		"leaves":    "raise SystemExit(0)",
		"empty":     "",
		"noinfer":   header,
		"inputs":    "INPUTS = {}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(): pass",
		"list":      "INPUTS = ['x']\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(x): pass",
		"datatype":  "INPUTS = {'x': ('float32', (-1,))}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(x): pass",
		"bytes":     "INPUTS = {'x': ('BYTES', (-1,))}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(x): pass",
		"shape":     "INPUTS = {'x': ('FP32', -1)}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(x): pass",
		"extent":    "INPUTS = {'x': ('FP32', (-2,))}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(x): pass",
		"huge":      "INPUTS = {'x': ('FP32', (1 << 70,))}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(x): pass",
		"name":      "INPUTS = {'x y': ('FP32', (-1,))}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(**x): pass",
		"keyword":   "INPUTS = {'class': ('FP32', (-1,))}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(**x): pass",
		"parameter": header + "def infer(y): pass",
		"more":      header + "def infer(x, z): pass",
		"outputs":   "INPUTS = {'outputs': ('FP32', (-1,))}\nOUTPUTS = {'y': ('FP32', (-1,))}\ndef infer(outputs): pass",
		"rule":      "INPUTS = {'x': ('FP32', (-1,))}\nOUTPUTS = {'y': ('FP32', (-1, -1))}\ndef infer(x, *, outputs): pass",
	}
	sources := []models.Source{source("good", header+"def infer(x): return {'y': x}")}
	for name, text := range bad {
		sources = append(sources, models.Source{Name: name, File: fmt.Sprintf("/models/%s.py", name), Text: text})
	}
	for _, n := range []int{0, 1} {
		for _, d := range load(t, n, sources...) {
			if d.Meta.Name == "good" {
				require.Empty(t, d.Broken)
				continue
			}
			require.NotEmpty(t, d.Broken)
			require.NotContains(t, d.Broken, "/models/")
			require.Contains(t, d.Detail, fmt.Sprintf("/models/%s.py: ", d.Meta.Name))
			if d.Meta.Name == "imports" { // the text of an exception is for the log
				require.Equal(t, "it cannot be imported", d.Broken)
				require.Contains(t, d.Detail, "no_such_module_anywhere")
			}
		}
	}
}

// load returns the definitions of sources and closes the backend.
func load(t *testing.T, workers int, sources ...models.Source) (list []engine.Definition) {
	t.Helper()
	testpython.Need(t)
	b := testenv.Must(backend.Open(backend.Options{Limit: limit, Workers: workers, Log: slog.New(slog.DiscardHandler)}))(t)
	for _, s := range sources {
		list = append(list, testenv.Must(b.Load(t.Context(), s, true))(t))
	}
	require.NoError(t, b.CloseRunner(t.Context()))
	require.NoError(t, b.Close())
	return list
}

// A model imports helper modules beside it, by name and relative to its package. A later load imports
// them again. The name of the directory need not be UTF-8.
func TestHelperModules(t *testing.T) {
	for i, c := range []struct {
		workers   int
		directory string
	}{{0, "models"}, {0, "mod\xe8les"}, {1, "models"}, {1, "mod\xe8les"}} {
		n, dir := c.workers, filepath.Join(t.TempDir(), c.directory)
		helpers := fmt.Sprint("helpers_of_a_test_", i) // the directories of all cases stay in sys.path
		require.NoError(t, os.Mkdir(dir, 0o700))
		uses := source("uses", header+"import "+helpers+" as h\nfrom . import _relative\nvalue = h.value + _relative.value\nif value != 5: raise ValueError(value)\ndef infer(x): return {'y': x}")
		uses.File = filepath.Join(dir, "uses.py")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "_relative.py"), []byte("value = 2"), 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, helpers), 0o700))
		for _, value := range []string{"3", "100"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, helpers, "__init__.py"), []byte("value = "+value), 0o600))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, helpers, "__pycache__")))
			got := load(t, n, uses)
			require.Equal(t, value == "3", got[0].Broken == "", got[0].Broken)
		}
	}
}

// TestNamesAndWarm checks that a model with the name of a Python module does not hide that module,
// and that warm() is called once.
func TestNamesAndWarm(t *testing.T) {
	e := open(t, []models.Source{
		source("json", header+`
import json
warmed = 0
def warm():
    global warmed
    warmed += 1
def infer(x):
    return {"y": json.loads("[%d]" % warmed)}
`)})
	got := testenv.Must(enginetest.Call(t.Context(), e, "json", "x", []int64{1}, []float32{1}))(t)
	require.Equal(t, []float32{1}, floatsOf(got))
}

// TestModelOfTheGuide checks that the model of docs/serving.md works.
func TestModelOfTheGuide(t *testing.T) {
	needNumba(t)
	text := testenv.Must(os.ReadFile("../../../../docs/serving.md"))(t)
	_, model, ok := strings.Cut(string(text), "```python\n")
	require.True(t, ok)
	model, _, _ = strings.Cut(model, "```")
	e := open(t, []models.Source{source("readme", model)})
	r := testenv.Must(e.Begin(t.Context(), "readme", ""))(t)
	defer r.End()
	for name, values := range map[string][]float32{"x": {1, 2, 3}, "gain": {10}} {
		in := testenv.Must(r.Input(name, "FP32", []int64{int64(len(values))}))(t)
		require.NoError(t, in.Fill(func(p []byte) error {
			for i, v := range values {
				binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
			}
			return nil
		}))
	}
	results := testenv.Must(r.Run())(t)
	require.Equal(t, []float32{10, 20, 30}, floatsOf(results[0].Bytes))
}
