package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) { memtest.Main(m) }

// floats returns a function that fills a tensor with values.
func floats(values ...float32) func([]byte) error {
	return func(p []byte) error {
		for i, v := range values {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
		}
		return nil
	}
}

func kindOf(t *testing.T, err error) oip.Kind {
	t.Helper()
	var e *oip.Error
	require.ErrorAs(t, err, &e)
	return e.Kind
}

// begin starts a request and fills its input.
func begin(t *testing.T, e *engine.Engine, model string, values ...float32) *engine.Request {
	t.Helper()
	r := testenv.Must(e.Begin(t.Context(), model, ""))(t)
	in := testenv.Must(r.Input("x", "FP32", []int64{int64(len(values))}))(t)
	require.EqualValues(t, 4*len(values), in.Size())
	require.NoError(t, in.Fill(floats(values...)))
	return r
}

func TestBoundOutput(t *testing.T) {
	e := enginetest.New(t, engine.Options{Memory: engine.Pool{Limit: 64 << 20}}, enginetest.Identity())
	r := begin(t, e, "identity", 1, 2, 3)
	defer r.End()
	results := testenv.Must(r.Run())(t)
	require.Len(t, results, 1)
	require.Equal(t, "y", results[0].Name)
	require.Equal(t, oip.FP32, results[0].Datatype)
	require.Equal(t, []int64{3}, results[0].Shape)
	require.EqualValues(t, 12, results[0].Size)
	require.Equal(t, float32(3), math.Float32frombits(binary.LittleEndian.Uint32(results[0].Bytes[8:])))
	require.False(t, results[0].InRegion)
	m := testenv.Must(e.Model("identity", "1"))(t)
	s := m.Stats()
	require.EqualValues(t, 1, s.Success.Count)
	require.EqualValues(t, 12, s.InputBytes)
	buffer := results[0].Buffer.Retain() // like the buffer of a gRPC response
	r.End()
	r.End()
	require.True(t, buffer.Valid())
	buffer.Release()
}

// TestReturnedOutputs checks that outputs that a model returns are sent in the requested order.
func TestReturnedOutputs(t *testing.T) {
	e := enginetest.New(t, engine.Options{}, enginetest.Sum())
	for _, c := range []struct{ ask, get []string }{
		{nil, []string{"sum", "total"}},
		{[]string{"total"}, []string{"total"}},
		{[]string{"total", "sum"}, []string{"total", "sum"}},
	} {
		r := testenv.Must(e.Begin(t.Context(), "sum", "1"))(t)
		for _, name := range []string{"b", "a"} {
			in := testenv.Must(r.Input(name, "INT64", []int64{2, 2}))(t)
			require.NoError(t, in.Fill(func(p []byte) error {
				for i := range 4 {
					binary.LittleEndian.PutUint64(p[8*i:], uint64(i))
				}
				return nil
			}))
		}
		for _, name := range c.ask {
			require.NoError(t, testenv.ErrorOf(r.Output(name)))
		}
		results := testenv.Must(r.Run())(t)
		require.Len(t, results, len(c.get))
		for i, name := range c.get {
			require.Equal(t, name, results[i].Name)
			if name == "total" {
				require.Equal(t, 12.0, math.Float64frombits(binary.LittleEndian.Uint64(results[i].Bytes)))
				require.Empty(t, results[i].Shape)
			} else {
				require.EqualValues(t, 6, results[i].Bytes[24])
				require.Equal(t, []int64{2, 2}, results[i].Shape)
			}
		}
		r.End()
	}
}

// TestRefusals checks that a request that does not match the model is rejected before memory is
// allocated for it.
func TestRefusals(t *testing.T) {
	e := enginetest.New(t, engine.Options{Memory: engine.Pool{Limit: 1 << 20}}, enginetest.Identity(), enginetest.Sum())
	_, err := e.Begin(t.Context(), "nothing\x00", "")
	require.Equal(t, oip.NotFound, kindOf(t, err))
	_, err = e.Begin(t.Context(), "identity", "2")
	require.Equal(t, oip.NotFound, kindOf(t, err))
	r := testenv.Must(e.Begin(t.Context(), "sum", ""))(t)
	defer r.End()
	for _, c := range []struct {
		name, datatype string
		shape          []int64
		kind           oip.Kind
	}{
		{"c", "INT64", []int64{1, 2}, oip.Invalid},
		{"a", "INT32", []int64{1, 2}, oip.Invalid},
		{"a", "int64", []int64{1, 2}, oip.Invalid},
		{"a", "INT64", []int64{1, 3}, oip.Invalid},
		{"a", "INT64", []int64{2}, oip.Invalid},
		{"a", "INT64", nil, oip.Invalid},
		{"a", "INT64", []int64{-1, 2}, oip.Invalid},
		{"a", "INT64", []int64{math.MaxInt64, 2}, oip.TooLarge},
		{"a", "INT64", []int64{1 << 20, 2}, oip.TooLarge},
	} {
		_, err := r.Input(c.name, c.datatype, c.shape)
		require.Equal(t, c.kind, kindOf(t, err), "%+v", c)
	}
	in := testenv.Must(r.Input("a", "INT64", []int64{1, 2}))(t)
	_, err = r.Input("a", "INT64", []int64{1, 2})
	require.Equal(t, oip.Invalid, kindOf(t, err))
	require.Equal(t, oip.NotFound, kindOf(t, in.Region(self, "r", 0, 16)))
	require.Equal(t, oip.Invalid, kindOf(t, in.Region(self, "r", 0, 17)))
	_, err = r.Output("x")
	require.Equal(t, oip.Invalid, kindOf(t, err))
	require.NoError(t, testenv.ErrorOf(r.Output("sum")))
	_, err = r.Output("sum")
	require.Equal(t, oip.Invalid, kindOf(t, err))
	require.ErrorIs(t, in.Fill(func([]byte) error { return io.ErrUnexpectedEOF }), io.ErrUnexpectedEOF)
	_, err = r.Run()
	require.Equal(t, oip.Invalid, kindOf(t, err), "not all inputs are there")
	r.End()
	m := testenv.Must(e.Model("sum", ""))(t)
	require.EqualValues(t, 1, m.Stats().Fail.Count)
}

// A request waits for memory until its deadline. A request that can never be served is refused
// immediately.
func TestMemoryBounds(t *testing.T) {
	const limit = 32 << 20
	e := enginetest.New(t, engine.Options{Memory: engine.Pool{Limit: limit}}, enginetest.Identity())
	holder := testenv.Must(e.Begin(t.Context(), "identity", ""))(t)
	defer holder.End()
	in, err := holder.Input("x", "FP32", []int64{limit / 16}) // the output takes the same amount
	require.NoError(t, err)
	require.NoError(t, in.Fill(func([]byte) error { return nil }))

	const more = limit / 8 / 10 * 7 // together with the output, 0.7 of the limit
	for range 2 {
		r := testenv.Must(e.Begin(t.Context(), "identity", ""))(t)
		r.SetTimeout(20 * time.Millisecond)
		in := testenv.Must(r.Input("x", "FP32", []int64{more}))(t)
		require.Equal(t, oip.Busy, kindOf(t, in.Fill(func([]byte) error { t.Error("read"); return nil })))
		r.End()
	}
	r := testenv.Must(e.Begin(t.Context(), "identity", ""))(t)
	in = testenv.Must(r.Input("x", "FP32", []int64{limit / 8}))(t)
	require.Equal(t, oip.TooLarge, kindOf(t, in.Fill(func([]byte) error { return nil })), "more than a request may have")
	r.End()

	waits := testenv.Must(e.Begin(t.Context(), "identity", ""))(t)
	in = testenv.Must(waits.Input("x", "FP32", []int64{more}))(t)
	filled := make(chan error)
	go func() { filled <- in.Fill(func([]byte) error { return nil }) }()
	holder.End()
	require.NoError(t, <-filled)
	waits.End()
}

// The deadline and the client interrupt a running call, with different errors.
func TestDeadlineAndCancel(t *testing.T) {
	m, began, release := enginetest.Blocking("blocking")
	defer close(release)
	e := enginetest.New(t, engine.Options{}, m)
	r := begin(t, e, "blocking", 1)
	whole := r.Deadline() // of 30 s
	r.SetTimeout(time.Hour)
	require.Equal(t, whole, r.Deadline())
	r.SetTimeout(time.Second)
	require.Equal(t, whole.Add(-29*time.Second), r.Deadline())
	r.End()
	run := func(ctx context.Context, timeout time.Duration) error {
		r := testenv.Must(e.Begin(ctx, "blocking", ""))(t)
		defer r.End()
		r.SetTimeout(timeout)
		in := testenv.Must(r.Input("x", "FP32", []int64{1}))(t)
		var err error
		if err = in.Fill(floats(1)); err == nil {
			_, err = r.Run()
		}
		return err
	}
	// On a machine under load, a short timeout can expire before the call begins.
	for timeout, begun := 20*time.Millisecond, false; !begun; timeout *= 2 {
		err := run(t.Context(), timeout)
		require.Error(t, err)
		select {
		case <-began:
			begun = true
			require.Equal(t, oip.Deadline, kindOf(t, err))
		default:
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-began; cancel() }()
	require.Equal(t, oip.Cancelled, kindOf(t, run(ctx, 0)))
}

func TestFailures(t *testing.T) {
	secret := errors.New("at 0xc0001234 in /etc/secret")
	e := enginetest.New(t, engine.Options{}, enginetest.Failing(secret))
	r := begin(t, e, "failing", 1)
	defer r.End()
	_, err := r.Run()
	require.Equal(t, oip.Internal, kindOf(t, err))
	require.NotContains(t, oip.As(err).Message, "secret")
	require.ErrorIs(t, err, secret)
	m := testenv.Must(e.Model("failing", ""))(t)
	require.EqualValues(t, 1, m.Stats().Fail.Count)
}

// TestFullQueue checks that a request that finds the queue of the runner full may be tried again.
func TestFullQueue(t *testing.T) {
	e := enginetest.New(t, engine.Options{}, enginetest.Failing(&executor.Error{Kind: executor.ErrFull}))
	r := begin(t, e, "failing", 1)
	defer r.End()
	_, err := r.Run()
	require.Equal(t, oip.Busy, kindOf(t, err))
	require.Positive(t, oip.As(err).RetryAfter)
}

// Returned values are checked against the declaration of the model.
func TestBadModels(t *testing.T) {
	e := enginetest.Sum()
	good := e.Infer
	e.Infer = func(ctx context.Context, in, out []*usmarray.Array) ([]*usmarray.Array, error) {
		list, err := good(ctx, in, out)
		if err != nil {
			return nil, err
		}
		list[0], list[1] = list[1], list[0]
		return list, nil
	}
	s := enginetest.New(t, engine.Options{}, e)
	r := testenv.Must(s.Begin(t.Context(), "sum", ""))(t)
	defer r.End()
	for _, name := range []string{"a", "b"} {
		in := testenv.Must(r.Input(name, "INT64", []int64{1, 2}))(t)
		require.NoError(t, in.Fill(func(p []byte) error { clear(p); return nil }))
	}
	_, err := r.Run()
	require.Equal(t, oip.Internal, kindOf(t, err))
	require.Contains(t, err.Error(), "is declared as")
	require.NotContains(t, oip.As(err).Message, "declared")
}

// TestInvalidDefinitions checks that New rejects invalid definitions of models.
func TestInvalidDefinitions(t *testing.T) {
	tensor := func(name string, d oip.Datatype, shape ...int64) []oip.Tensor {
		return []oip.Tensor{{Name: name, Datatype: d, Shape: shape}}
	}
	x, y := tensor("x", oip.FP32, -1), tensor("y", oip.FP32, -1)
	for _, d := range []engine.Definition{
		{Meta: oip.Model{Name: "m", Inputs: tensor("x", oip.BYTES, -1), Outputs: y}, Function: "m:f"},
		{Meta: oip.Model{Name: "m", Inputs: tensor("x", oip.FP32, -2), Outputs: y}, Function: "m:f"},
		{Meta: oip.Model{Name: "m", Inputs: tensor("x", oip.FP32, 1<<40, 1<<40), Outputs: y}, Function: "m:f"},
		{Meta: oip.Model{Name: "m", Inputs: x, Outputs: tensor("y", oip.FP32, -1, -1)}, Function: "m:f", Bound: true},
	} {
		require.Error(t, testenv.ErrorOf(engine.New(engine.Options{}).SetModel(d)), "%+v", d)
	}
}

// The engine is not ready while the runner is not healthy, and not live if that lasts.
func TestHealth(t *testing.T) {
	runner := enginetest.NewRunner(enginetest.Identity())
	e := enginetest.With(t, runner, engine.Options{Patience: time.Nanosecond}, enginetest.Identity())
	require.NoError(t, e.Live())
	runner.SetHealth(&executor.Error{Kind: executor.ErrWarming})
	require.Equal(t, oip.NotReady, kindOf(t, e.Ready()))
	time.Sleep(time.Millisecond)
	require.NoError(t, e.Live(), "a warm-up is no reason")
	runner.SetHealth(&executor.Error{Kind: executor.ErrStuck})
	require.Equal(t, oip.NotReady, kindOf(t, e.Ready()))
	require.Eventually(t, func() bool { return e.Live() != nil }, 30*time.Second, time.Millisecond)
	runner.SetHealth(nil)
	require.NoError(t, e.Live())
	require.NoError(t, e.Ready())
}

// A drain refuses new requests and waits for those in flight.
func TestDrain(t *testing.T) {
	m, began, release := enginetest.Blocking("blocking")
	e := enginetest.New(t, engine.Options{}, m)
	r := begin(t, e, "blocking", 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer r.End()
		_, err := r.Run()
		if err != nil {
			t.Error(err)
		}
	})
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, e.Close(ctx), context.Canceled)
	require.Equal(t, oip.NotReady, kindOf(t, e.Ready()))
	_, err := e.Begin(t.Context(), "blocking", "")
	require.Equal(t, oip.NotReady, kindOf(t, err))
	close(release)
	require.NoError(t, e.Close(t.Context()))
	wg.Wait()
}

// A load must name its model: Options.Load may load all models if the name is empty.
func TestLoadWithoutName(t *testing.T) {
	loaded := []string{}
	load := func(_ context.Context, model string) error {
		loaded = append(loaded, model)
		return nil
	}
	e := enginetest.New(t, engine.Options{Load: load}, enginetest.Identity())
	require.Equal(t, oip.NotFound, kindOf(t, e.Load(t.Context(), "", nil)))
	require.NoError(t, e.Load(t.Context(), "new", nil))
	require.Equal(t, []string{"new"}, loaded)
}

// With many clients, some of which give up, every request ends.
func TestManyClients(t *testing.T) {
	e := enginetest.New(t, engine.Options{Memory: engine.Pool{Limit: 32 << 20}}, enginetest.Identity())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range 100 {
				r, err := e.Begin(context.Background(), "identity", "")
				if err != nil {
					t.Error(err)
					return
				}
				in, err := r.Input("x", "FP32", []int64{int64(1 + 997*i)})
				if err != nil {
					t.Error(err)
				} else if err := in.Fill(floats(float32(i))); err != nil {
					t.Error(err)
				} else if i%5 != 0 {
					results, err := r.Run()
					if err != nil || math.Float32frombits(binary.LittleEndian.Uint32(results[0].Bytes)) != float32(i) {
						t.Error(err, results)
					}
				}
				r.End()
			}
		})
	}
	wg.Wait()
}

// shm creates shared memory like a client, and returns its key and its mapping.
func shm(t *testing.T, size int) (key string, data []byte) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "usmbridge-engine-")
	if err != nil {
		t.Skip("no POSIX shared memory here: ", err)
	}
	defer f.Close()
	t.Cleanup(func() { os.Remove(f.Name()) })
	require.NoError(t, f.Truncate(int64(size)))
	data = testenv.Must(syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED))(t)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(data)) })
	return filepath.Base(f.Name()), data
}

// self is a client of a Unix socket that runs as the user of the test.
var self = peercred.Client{Local: true, Known: true, UID: uint32(os.Geteuid())}

// TestRegions checks that requests use regions in place, or copy them if the models run in worker
// processes. In both cases, invalid references and truncated memory are errors of the request.
func TestRegions(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprint("apart ", apart), func(t *testing.T) {
			regions := region.New(region.Options{})
			t.Cleanup(func() { require.NoError(t, regions.Close()) })
			e := enginetest.New(t, engine.Options{Regions: regions, Apart: apart, Memory: engine.Pool{Limit: 16 << 20}}, enginetest.Identity())
			key, data := shm(t, 8192)
			require.NoError(t, regions.Register(self, "r", key, 0, 8192))
			require.NoError(t, floats(1, 2, 3)(data))
			for _, fill := range []bool{false, true} {
				clear(data[4096:])
				r := testenv.Must(e.Begin(t.Context(), "identity", ""))(t)
				in := testenv.Must(r.Input("x", "FP32", []int64{3}))(t)
				if fill { // Fill also reserves memory for the output
					require.NoError(t, in.Fill(floats(1, 2, 3)))
				} else {
					require.Equal(t, oip.Invalid, kindOf(t, in.Region(self, "r", 0, 16)), "not its size")
					require.Equal(t, oip.Invalid, kindOf(t, in.Region(self, "r", 2, 12)), "not aligned")
					require.Equal(t, oip.NotFound, kindOf(t, in.Region(self, "s", 0, 12)))
					require.Equal(t, oip.Invalid, kindOf(t, in.Region(self, "r", 8184, 12)), "beyond its end")
					require.NoError(t, in.Region(self, "r", 0, 12))
				}
				out := testenv.Must(r.Output("y"))(t)
				require.NoError(t, out.Region(self, "r", 4096, 100))
				require.Equal(t, oip.InUse, kindOf(t, regions.Unregister(self, "r")))
				results := testenv.Must(r.Run())(t)
				require.True(t, results[0].InRegion)
				require.Equal(t, data[:12], data[4096:4108])
				require.Zero(t, data[4108])
				r.End()
			}
			r := testenv.Must(e.Begin(t.Context(), "identity", ""))(t)
			in := testenv.Must(r.Input("x", "FP32", []int64{3}))(t)
			require.NoError(t, in.Region(self, "r", 0, 12))
			out := testenv.Must(r.Output("y"))(t)
			require.NoError(t, out.Region(self, "r", 4096, 8))
			_, err := r.Run()
			require.Equal(t, oip.Invalid, kindOf(t, err), "no room for the output")
			r.End()

			r = testenv.Must(e.Begin(t.Context(), "identity", ""))(t)
			in = testenv.Must(r.Input("x", "FP32", []int64{3}))(t)
			require.NoError(t, in.Region(self, "r", 4096, 12))
			require.NoError(t, os.Truncate("/dev/shm/"+key, 0))
			_, err = r.Run()
			require.Equal(t, oip.Invalid, kindOf(t, err), "cut off")
			r.End()
			require.NoError(t, regions.Unregister(self, "r"))
		})
	}
}
