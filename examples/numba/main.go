// Command numba is a Go service whose inner loop Numba compiles.
//
//	numba [-n elements]
//
// The signal is in memory that Go allocated (shared USM, or host memory without SYCL). The program computes
// its energy in several ways, all without a copy, and prints each result and its time:
//
//   - a compiled function that Python calls with the array itself,
//   - the same function, called with numpy.asarray of the array,
//   - a function compiled for C, whose address Go calls without the GIL, on a slice of the array, also from
//     several goroutines at once,
//   - the same loop in Go.
//
// It needs a Python with Numba: `make python` sets one up, and
// `VIRTUAL_ENV=.venv go run ./examples/numba` uses it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/usmbridge/usmbridge/usmarray"
)

func main() {
	n := flag.Int("n", 1_000_000, "`elements` of the signal")
	flag.Parse()
	if flag.NArg() > 0 || *n < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*n); err != nil {
		fmt.Fprintln(os.Stderr, "numba:", err)
		os.Exit(1)
	}
}

func run(n int) error {
	s, err := openService()
	if err != nil {
		return err
	}
	defer s.close()
	return s.report(os.Stdout, n)
}

// report computes the energy of one signal in each way and prints a line for each.
func (s *service) report(w io.Writer, n int) error {
	signal, err := s.signal(n)
	if err != nil {
		return err
	}
	defer signal.Release()
	fmt.Fprintf(w, "energy of %d float64 at %#x, %s\n\n", n, signal.Pointer(), s.place())
	for _, way := range s.ways() {
		value, took, err := best(way, signal)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		fmt.Fprintf(w, "%-46s %16.3f  %9.1f us\n", way.name, value, float64(took.Nanoseconds())/1000)
	}
	return nil
}

// best returns the shortest time of several calls, after a first call that compiles.
func best(way way, signal *usmarray.Array) (value float64, took time.Duration, err error) {
	if value, err = way.energy(signal); err != nil {
		return 0, 0, err
	}
	for i := range 20 {
		began := time.Now()
		if _, err = way.energy(signal); err != nil {
			return 0, 0, err
		}
		if t := time.Since(began); i == 0 || t < took {
			took = t
		}
	}
	return value, took, nil
}
