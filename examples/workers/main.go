// Command workers finds the edges of a picture in two Python processes, each with its own
// interpreter and lock: dpnp computes the luminance in one, Numba the edges in the other, in
// memory that this program made. A table shows every hand-over: processes, addresses,
// bytes copied.
//
//	workers [-in picture.png|.jpg] [-out edges.png]
//
// The memory is shared USM of an OpenCL CPU device, which both processes and this one see
// at addresses of their own. Without such a device it is memory of the host, and NumPy takes
// dpnp's place; the program says why. It needs a Python with NumPy: `make python` sets one up,
// and `VIRTUAL_ENV=.venv go run ./examples/workers` uses it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/usmbridge/usmbridge/interop/workers"
)

func main() {
	workers.Main() // the processes are this program
	in := flag.String("in", "", "the `picture`, PNG or JPEG; without it a photograph of the Go installation")
	out := flag.String("out", "", "the `file` for the result, a grey PNG; without it none is written")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "workers:", err)
		os.Exit(1)
	}
}
