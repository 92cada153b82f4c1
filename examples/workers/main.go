// Command workers finds the edges of a picture in two Python processes, each with its own interpreter and
// GIL: dpnp computes the luminance in one, Numba the edges in the other, in memory that this program
// allocated. A table shows the processes, addresses and copied bytes of each exchange.
//
//	workers [-in picture.png|.jpg] [-out edges.png]
//
// The memory is shared USM of an OpenCL CPU device, which each process maps at its own addresses. Without
// such a device it is memory of the host, and NumPy replaces dpnp; the program prints the reason. It needs
// a Python with NumPy: `make python` sets one up, and `VIRTUAL_ENV=.venv go run ./examples/workers` uses
// it.
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
	workers.Main() // in the worker processes, which run this program, Main does not return
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
