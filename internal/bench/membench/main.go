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
	Note  string  `json:"note,omitempty"`
}

// bench is the state that all works share.
type bench struct {
	rounds  int
	only    *regexp.Regexp
	results []result
}

func main() {
	out := flag.String("json", "", "file to write the results to, as JSON")
	rounds := flag.Int("rounds", 41, "turns of each work; the best counts")
	only := flag.String("work", "", "regular expression of the works to run: one, sycl, random, batch, larson, handover, million, rmm, rounds, fragmentation, refusal, tenant, traces, off")
	flag.Parse()
	exitOn(openUMF())
	b := &bench{rounds: *rounds, only: regexp.MustCompile(*only)}
	b.run()
	b.print()
	if *out != "" {
		data, err := json.MarshalIndent(b.results, "", "\t")
		exitOn(err)
		exitOn(os.WriteFile(*out, append(data, '\n'), 0o644))
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
		p.slab_min_size>>10, p.max_poolable_size>>20, p.capacity, p.min_bucket_size, runtime.NumCPU())
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "work\tours\tpeer\tunit\tratio\tbound\t\t")
	for i := range b.results {
		r := &b.results[i]
		peer, ratio, bound, verdict := "", "", "", ""
		if r.Peer != 0 {
			peer = fmt.Sprintf("%.4g (%s)", r.Peer, r.Name)
		}
		if r.Ratio != 0 {
			ratio = fmt.Sprintf("%.3g", r.Ratio)
		}
		if r.Bound != 0 {
			bound, verdict = fmt.Sprintf("<= %.3g", r.Bound), "ok"
			if r.Ratio > r.Bound {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Work, r.Ours, peer, r.Unit, ratio, bound, verdict, r.Note)
	}
	_ = w.Flush()
}
