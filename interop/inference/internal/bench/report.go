package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// measured is one run of a load against a server.
type measured struct {
	rate, cpu, p50, p99 float64 // requests a second, and seconds
	failed              int
	problem             string // the last failure
}

func rate(m *measured) float64 { return m.rate }
func cpu(m *measured) float64  { return m.cpu }
func p50(m *measured) float64  { return m.p50 }
func p99(m *measured) float64  { return m.p99 }

// way is a server with a load.
type way struct {
	name   string
	server *server
	spec   spec
	runs   []*measured
}

// inTurn runs all ways in turn, n times.
func inTurn(ways []*way, n int, d time.Duration) error {
	for range n {
		for _, w := range ways {
			m, err := w.spec.against(w.server, d)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.runs = append(w.runs, m)
		}
	}
	return nil
}

func (w *way) median(of func(*measured) float64) float64 {
	var values []float64
	for _, m := range w.runs {
		values = append(values, of(m))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// table prints the ways of a work.
func table(work string, ways []*way) {
	fmt.Printf("\n%s\n", work)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\trequests/s\tCPU a request\tmedian\t99 %\tfailed\t")
	micro := func(seconds float64) time.Duration { return time.Duration(seconds * 1e9).Round(time.Microsecond) }
	for _, w := range ways {
		failed := 0
		for _, m := range w.runs {
			if failed += m.failed; m.failed > 0 {
				fmt.Printf("%s: %s\n", w.name, m.problem)
			}
		}
		fmt.Fprintf(t, "%s\t%.0f\t%v\t%v\t%v\t%d\t\n", w.name, w.median(rate), micro(w.median(cpu)), micro(w.median(p50)), micro(w.median(p99)), failed)
	}
	_ = t.Flush()
}

// bound prints a measured value and its bound.
func bound(what string, found float64, sign string, limit float64) {
	result := "MISSED"
	if sign == ">=" && found >= limit || sign == "<=" && found <= limit {
		result = "met"
	}
	fmt.Printf("  %-62s %8.2f  bound %s %.2f  %s\n", what, found, sign, limit, result)
}
