//go:build unix

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A row is a surface, or one stage.
type row struct {
	name, command, before string
	stages                []*stage
	records               []record
}

func rowsOf(stages []*stage, b *book, each bool) []*row {
	var rows []*row
	index := map[string]*row{}
	for _, s := range stages {
		r := &row{name: "`" + s.Name + "`", command: s.Command}
		if k := surfaceOf(s); k < len(surfaces) && !each {
			r = &row{name: surfaces[k].name, command: "make check-long ONLY=" + surfaces[k].word, before: surfaces[k].before}
		}
		if known, ok := index[r.name]; ok {
			r = known
		} else {
			rows, index[r.name] = append(rows, r), r
		}
		r.stages = append(r.stages, s)
		if rec, ok := b.get(s.Name); ok {
			r.records = append(r.records, rec)
		}
	}
	return rows
}

// writeTable prints what the README has: date, commit and a row for each surface.
func writeTable(w io.Writer, stages []*stage, b *book, each bool) {
	rows := rowsOf(stages, b, each)
	var all []record
	for _, r := range rows {
		all = append(all, r.records...)
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "Nothing has been run yet.")
		return
	}
	var commits []string
	var first, last time.Time
	for _, r := range all {
		if !slices.Contains(commits, r.Commit) {
			commits = append(commits, r.Commit)
		}
		if first.IsZero() || r.Date.Before(first) {
			first = r.Date
		}
		if r.Date.After(last) {
			last = r.Date
		}
	}
	const day = "2 January 2006"
	when := last.Format(day)
	if f := first.Format(day); f != when {
		when = f + " to " + when
	}
	fmt.Fprintf(w, "%s, commit %s:\n\n", when, strings.Join(commits, ", "))
	fmt.Fprintln(w, "| surface | stages, and the time of each | cases tried | found | command |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- |")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | `%s` |\n", r.name, r.extent(), r.cases(), r.found(), strings.ReplaceAll(r.command, "|", `\|`))
	}
}

// extent says how many stages there are, for how long each ran, and what is missing.
func (r *row) extent() string {
	var shortest, longest float64
	complete := 0
	for i, rec := range r.records {
		if rec.Complete && len(rec.Findings) == 0 {
			complete++
		}
		if i == 0 || rec.Seconds < shortest {
			shortest = rec.Seconds
		}
		longest = max(longest, rec.Seconds)
	}
	if len(r.records) == 0 {
		return fmt.Sprintf("%d, not run", len(r.stages))
	}
	text := fmt.Sprintf("%d of %s", len(r.stages), minutes(shortest))
	if a, b := minutes(shortest), minutes(longest); a != b {
		text = fmt.Sprintf("%d of %s to %s", len(r.stages), a, b)
	}
	if n := len(r.stages) - complete; n > 0 {
		text += fmt.Sprintf("; %d not complete", n)
	}
	return text
}

func minutes(seconds float64) string {
	if seconds < 59.5 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}

// cases are the executions, in numbers that can be read.
func (r *row) cases() string {
	n := int64(0)
	for _, rec := range r.records {
		n += rec.Executions
	}
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%d million", n/1_000_000)
	case n >= 1_000_000:
		return fmt.Sprintf("%.1f million", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%d thousand", n/1000)
	}
	return fmt.Sprint(n)
}

// found says what was found this time, and what was before.
func (r *row) found() string {
	n := 0
	for _, rec := range r.records {
		n += len(rec.Findings)
	}
	text := "nothing"
	switch {
	case n > 0:
		text = fmt.Sprintf("**%d**", n)
	case len(r.records) == 0:
		text = ""
	}
	if r.before != "" {
		text = strings.TrimPrefix(text+"; mended before: "+r.before, "; ")
	}
	return text
}

// writeList prints each stage with its state and the command that does the same by hand.
func writeList(w io.Writer, stages []*stage, b *book) {
	for _, s := range stages {
		state := "not run"
		if rec, ok := b.get(s.Name); ok {
			state = fmt.Sprintf("%d executions in %.0f s at %s, %s", rec.Executions, rec.Seconds, rec.Commit, rec.Date.Format(time.DateTime))
			switch {
			case len(rec.Findings) > 0:
				state = fmt.Sprintf("FOUND %d, ", len(rec.Findings)) + state
			case !rec.Complete:
				state = "not complete, " + state
			}
		}
		fmt.Fprintf(w, "%s: %s\n    %s\n", s.Name, state, s.Command)
	}
}
