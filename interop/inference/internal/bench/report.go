package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// row is one line of the result, for JSON.
type row struct {
	Work   string  `json:"work"`
	Way    string  `json:"way"`
	Rate   float64 `json:"requests_per_second"`
	CPU    float64 `json:"cpu_seconds_per_request"`
	P50    float64 `json:"p50_seconds"`
	P99    float64 `json:"p99_seconds"`
	Failed int     `json:"failed"`
}

// verdict is a bound and the measured value.
type verdict struct {
	Work  string  `json:"work"`
	What  string  `json:"what"`
	Found float64 `json:"found"`
	Sign  string  `json:"sign"` // ">=" or "<="
	Bound float64 `json:"bound"`
	Met   bool    `json:"met"`
}

// report collects and prints.
type report struct {
	Rows     []row     `json:"rows"`
	Verdicts []verdict `json:"bounds"`
}

func micro(seconds float64) string {
	return time.Duration(seconds * 1e9).Round(time.Microsecond).String()
}

// table prints the ways of a work.
func (r *report) table(work string, ways []*way) {
	fmt.Printf("\n%s\n", work)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "way\trequests/s\tCPU a request\tmedian\t99 %\tfailed\t")
	for _, x := range ways {
		failed, first := x.runs.trouble()
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\t%d\t\n", x.name, x.runs.rate(), micro(x.runs.cpu()), micro(x.runs.p50()), micro(x.runs.p99()), failed)
		if failed > 0 {
			fmt.Printf("%s: %s\n", x.name, first)
		}
		r.Rows = append(r.Rows, row{work, x.name, x.runs.rate(), x.runs.cpu(), x.runs.p50(), x.runs.p99(), failed})
	}
	_ = w.Flush()
}

func (r *report) bound(work, what string, found float64, sign string, bound float64) {
	met := found >= bound
	if sign == "<=" {
		met = found <= bound
	}
	result := "met"
	if !met {
		result = "MISSED"
	}
	fmt.Printf("  %-62s %8.2f  bound %s %.2f  %s\n", what, found, sign, bound, result)
	r.Verdicts = append(r.Verdicts, verdict{work, what, found, sign, bound, met})
}

func (r *report) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
