// Command numba is a Go service whose inner loop Numba compiles. The signal lies in
// memory that Go allocated (shared USM, or the host's without SYCL), and no byte of it is
// copied for any of
//
//   - a compiled function that Python calls with the array itself,
//   - the same through numpy.asarray,
//   - a compiled function of C's kind, whose address Go calls without Python's lock, on
//     a slice of the array, from several goroutines at once,
//   - the same loop in Go.
//
// It prints what each has found, and its time.
//
//	numba [-n elements]
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

// report computes the energy of one signal in each way.
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

// best takes the best time of several calls, after one that compiles.
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
