//go:build cgo && linux

// Membench compares the pool of package memmgr with the disjoint pool of the Unified Memory Framework (UMF), called
// from C, and with allocation by the SYCL library. For each work, both run in turns in one process, and the best of
// many short turns counts, so that other load on the machine affects both. It prints a table with
// ratios and bounds, and writes it as JSON with -json. With -strict it exits with 1 if a bound is missed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"text/tabwriter"
	"time"
)

// result is one line of the table.
type result struct {
	Work  string  `json:"work"`
	Ours  float64 `json:"ours"`
	Peer  float64 `json:"peer,omitempty"`
	Name  string  `json:"peer_name,omitempty"`
	Unit  string  `json:"unit"`
	Ratio float64 `json:"ratio,omitempty"` // of this module to the peer, or the value that the bound limits
	Bound float64 `json:"bound,omitempty"`
	Least bool    `json:"at_least,omitempty"` // the bound is a minimum
	Note  string  `json:"note,omitempty"`

	Account []string `json:"account,omitempty"` // printed below the table
}

// met reports whether the bound holds. It is true for results without a bound.
func (r *result) met() bool {
	switch {
	case r.Bound == 0:
		return true
	case r.Least:
		return r.Ratio >= r.Bound
	}
	return r.Ratio <= r.Bound
}

func (r *result) verdict() string {
	switch {
	case r.Bound == 0:
		return ""
	case r.met():
		return "ok"
	}
	return "MISSED"
}

// bench is the state that all works share.
type bench struct {
	lib    *umfLibrary
	rounds int
	quick  bool

	serviceTime time.Duration

	only    *regexp.Regexp
	results []result
}

func main() {
	out := flag.String("json", "", "file to write the results to, as JSON")
	rounds := flag.Int("rounds", 41, "turns of each work; the best counts")
	quick := flag.Bool("quick", false, "skip the works that need minutes or gigabytes")
	strict := flag.Bool("strict", false, "exit with 1 when a bound is missed")
	only := flag.String("work", "", "regular expression of the works to run: one, two, sycl, random, batch, umf, larson, handover, million, heap, rmm, fragmentation, pending, refusal, tenant, service, rounds, off")
	service := flag.Duration("service", 8*time.Second, "duration of the work \"service\"; its bound is for 60s")
	profile := flag.String("cpuprofile", "", "file to write a CPU profile to")
	enduring := flag.Duration("endure", 0, "run only the load of a service on host memory for this long; exits with 1 if memory grows or is still in use at the end")
	turns := flag.Bool("turns", false, "run one turn of the work \"off\" for each line of the standard input")
	flag.Parse()
	if *turns {
		exitOn(offTurns(os.Stdin, os.Stdout))
		return
	}
	if *enduring > 0 {
		exitOn(runEndure(*enduring, true))
		return
	}
	lib, err := openUMF()
	if err != nil {
		fmt.Fprintf(os.Stderr, "membench: not comparing with UMF: %v\n", err)
	}
	b := &bench{lib: lib, rounds: *rounds, quick: *quick, serviceTime: *service}
	if *only != "" {
		b.only, err = regexp.Compile(*only)
		exitOn(err)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		exitOn(err)
		exitOn(pprof.StartCPUProfile(f))
		defer pprof.StopCPUProfile()
	}
	b.run()
	missed := b.print()
	if *out != "" {
		exitOn(b.write(*out))
	}
	if missed > 0 && *strict {
		pprof.StopCPUProfile()
		os.Exit(1)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "membench:", err)
		os.Exit(1)
	}
}

func (b *bench) add(r result) { b.results = append(b.results, r) }

func (b *bench) print() (missed int) {
	p := deviceParams()
	fmt.Printf("Peer: UMF disjoint from C, slab %d KiB, poolable to %d MiB, capacity %d, smallest bucket %d B, system memory. %d CPUs.\n",
		p.SlabMinSize>>10, p.MaxPoolableSize>>20, p.Capacity, p.MinBucketSize, runtime.NumCPU())
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "work\tours\tpeer\tunit\tratio\tbound\t\t")
	for i := range b.results {
		r := &b.results[i]
		peer, ratio, bound := "", "", ""
		if r.Peer != 0 {
			peer = fmt.Sprintf("%.4g (%s)", r.Peer, r.Name)
		}
		if r.Ratio != 0 {
			ratio = fmt.Sprintf("%.3g", r.Ratio)
		}
		if r.Bound != 0 {
			sign := "<="
			if r.Least {
				sign = ">="
			}
			bound = fmt.Sprintf("%s %.3g", sign, r.Bound)
		}
		if !r.met() {
			missed++
		}
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Work, r.Ours, peer, r.Unit, ratio, bound, r.verdict(), r.Note)
	}
	_ = w.Flush()
	for i := range b.results {
		for _, line := range b.results[i].Account {
			fmt.Println(line)
		}
	}
	return missed
}

func (b *bench) write(path string) error {
	data, err := json.MarshalIndent(b.results, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
