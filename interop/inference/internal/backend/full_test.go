package backend_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
)

// TestMemoryIsFull checks that all requests are served if memory has no room for all of them at
// once. Waiting requests must not hold memory that a running call needs.
func TestMemoryIsFull(t *testing.T) {
	sources := []models.Source{
		source("returns", header+`
import usmbridge
def infer(x):
    y = usmbridge.empty(x.size, dtype="float32", usm_type=x.usm_type)
    memoryview(y)[:] = memoryview(x)
    return {"y": y}
def warm(): pass
`),
		source("keeps", header+`
import usmbridge
def infer(x):
    y = usmbridge.empty(x.size, dtype="float32", usm_type=x.usm_type)
    memoryview(y)[:] = memoryview(x)
    return {"y": y[::2]}
def warm(): pass
`),
		source("writes", header+`
def infer(x, *, outputs):
    memoryview(outputs["y"])[:] = memoryview(x)
def warm(): pass
`),
		source("tells", header+`
def output_shapes(x):
    return {"y": x}
def infer(x, *, outputs):
    memoryview(outputs["y"])[:] = memoryview(x)
def warm(): pass
`),
	}
	e := open(t, sources, func(o *engine.Options) { o.Timeout = 5 * time.Minute })
	for _, s := range sources {
		t.Run(s.Name, func(t *testing.T) {
			const size = 1 << 20 // floats: 4 MiB
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					r, err := e.Begin(t.Context(), s.Name, "")
					if err != nil {
						t.Error(err)
						return
					}
					defer r.End()
					x, err := r.Input("x", "FP32", []int64{size})
					if err == nil {
						err = x.Fill(func(p []byte) error { time.Sleep(20 * time.Millisecond); p[0] = byte(i); return nil })
					}
					if err != nil {
						t.Error(err)
						return
					}
					results, err := r.Run()
					if err != nil {
						t.Error(err)
					} else if results[0].Bytes[0] != byte(i) {
						t.Error("the numbers of another request")
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestOutputsAreCleared checks that output elements that a model does not write are 0, and not data
// of another request.
func TestOutputsAreCleared(t *testing.T) {
	e := open(t, []models.Source{
		source("writes", header+"def infer(x, *, outputs):\n    if x.size and x[0].item(): memoryview(outputs['y'])[:] = memoryview(x)\n"),
		source("tells", header+"def output_shapes(x): return {'y': x}\ndef infer(x, *, outputs):\n    if x.size and x[0].item(): memoryview(outputs['y'])[:] = memoryview(x)\n"),
	})
	secret := make([]float32, 4096)
	for i := range secret {
		secret[i] = 42
	}
	for range 8 {
		for _, name := range []string{"writes", "tells"} {
			require.NoError(t, testenv.ErrorOf(enginetest.Call(t.Context(), e, name, "x", []int64{int64(len(secret))}, secret)))
			got := testenv.Must(enginetest.Call(t.Context(), e, name, "x", []int64{int64(len(secret))}, make([]float32, len(secret))))(t)
			require.True(t, bytes.Equal(make([]byte, 4*len(secret)), got), name)
		}
	}
}
