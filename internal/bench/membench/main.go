//go:build cgo && linux

// Membench compares the pool of package memmgr with the disjoint pool of the Unified Memory Framework (UMF), called
// from C, and with allocation by the SYCL library. For each work, both run in turns in one process, and the best of
// many short turns counts, so that other load on the machine affects both. It prints a table with
// ratios and bounds, and writes it as JSON with -json.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"text/tabwriter"
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

	only    *regexp.Regexp
	results []result
}

func main() {
	out := flag.String("json", "", "file to write the results to, as JSON")
	rounds := flag.Int("rounds", 41, "turns of each work; the best counts")
	only := flag.String("work", "", "regular expression of the works to run: one, sycl, random, batch, larson, handover, million, rmm, rounds, fragmentation, refusal, tenant, traces, off")
	flag.Parse()
	lib, err := openUMF()
	if err != nil {
		fmt.Fprintf(os.Stderr, "membench: not comparing with UMF: %v\n", err)
	}
	b := &bench{lib: lib, rounds: *rounds}
	if *only != "" {
		b.only, err = regexp.Compile(*only)
		exitOn(err)
	}
	b.run()
	b.print()
	if *out != "" {
		exitOn(b.write(*out))
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "membench:", err)
		os.Exit(1)
	}
}

func (b *bench) add(r result) { b.results = append(b.results, r) }

func (b *bench) print() {
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
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Work, r.Ours, peer, r.Unit, ratio, bound, r.verdict(), r.Note)
	}
	_ = w.Flush()
}

func (b *bench) write(path string) error {
	data, err := json.MarshalIndent(b.results, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
