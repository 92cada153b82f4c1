//go:build cgo && linux

package workers_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// A service runs a function in two worker processes. The main function of its program calls
// workers.Main first. The function writes into memory of the service. TestExample runs the example: it
// has no Output comment because it needs a Python with NumPy.
func Example() {
	const source = "import numpy\ndef double(x):\n    n = numpy.asarray(x)\n    n *= 2\n    return float(n.sum())\n"
	pool, err := workers.New(workers.Config{
		Workers: 2, Queue: 100,
		Modules: []workers.Module{{Name: "models", Source: source}},
	})
	if err != nil {
		log.Fatal(err) // lists the interpreters examined and the package to install
	}
	defer pool.Close(context.Background())

	memory, err := segment.Default(nil, syclobj.USMUnknown, segment.PeersWrite) // memory that the workers can map
	if err != nil {
		log.Fatal(err)
	}
	x, err := usmarray.FromSlice(memory, []float32{1, 2, 3}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Release()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sum, err := pool.Call(ctx, "models:double", x)
	switch {
	case errors.Is(err, executor.ErrFull):
		log.Fatal("503: try again later")
	case errors.Is(err, workers.ErrDied):
		log.Fatal("500: ", err) // with the exit status and the last output of the process
	case err != nil:
		log.Fatal("500: ", err)
	}
	arguments, _ := pool.Traffic()
	fmt.Println(x, sum, arguments.Bytes, "bytes copied")
	// prints: [2. 4. 6.] 12 0 bytes copied
}
