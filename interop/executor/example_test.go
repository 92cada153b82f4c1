package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Each request gets an arena: the allocations of its Go and Python code share one limit, are charged to
// its client, and are freed when the request ends. There is no Output comment because the example needs
// Python.
func ExampleExecutor_Call_arena() {
	var e *executor.Executor  // of the service
	var client *memmgr.Tenant // of the service's pool
	request := func(ctx context.Context, id string, pixels []float32) error {
		a := arena.New(arena.Options{
			Name: id, Limit: 64 << 20,
			Choose: func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error) { return client, nil },
		})
		defer func() {
			if left := a.End(); left.Blocks != 0 {
				log.Printf("%s: %v", id, left) // Python keeps memory of the request
			}
		}()
		x, err := usmarray.FromSlice(a.Over(client), pixels, nil)
		if err != nil {
			return err // an *memmgr.OutOfMemoryError: 503
		}
		out, err := e.Call(arena.NewContext(ctx, a), "models:infer", x)
		if err != nil {
			return err
		}
		y := out.(*usmarray.Array)
		if err := a.Own(y); err != nil {
			return err
		}
		fmt.Println(y)
		return nil
	}
	if err := request(context.Background(), "7", []float32{1, 2}); err != nil {
		log.Print(err)
	}
}

// A service makes a call with the deadline of its request. There is no Output comment, so that go test
// does not run the example, which needs Python with NumPy.
func ExampleExecutor_Call() {
	if err := pymodule.Register(); err != nil {
		log.Fatal(err)
	}
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	const source = "import numpy\ndef infer(x): return {'mean': float(numpy.asarray(x).mean()), 'x': x}\ndef warm(): numpy.ones(1).mean()\n"
	e, err := executor.New(py, executor.Config{
		Slots: 2, Queue: 100,
		Modules: []executor.Module{{Name: "mean", Source: source}}, Warm: []string{"mean:warm"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close(context.Background())

	x, err := usmarray.FromPinnedSlice([]float64{1, 2, 6}, []int{3}) // Go's memory, shown to Python
	if err != nil {
		log.Fatal(err)
	}
	defer x.Release()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := e.Call(ctx, "mean:infer", python.Kwargs{"x": x})
	switch {
	case errors.Is(err, executor.ErrFull):
		log.Fatal("503: try again later")
	case errors.Is(err, context.DeadlineExceeded):
		log.Fatal("504: ", err) // says whether it was begun, stopped, or ran on
	case err != nil:
		log.Fatal("500: ", err)
	}
	result := out.(map[string]any)
	result["x"].(*usmarray.Array).Release()
	fmt.Println(result["mean"])
}
