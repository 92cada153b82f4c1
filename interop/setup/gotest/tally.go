package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// test is one test while it runs.
type test struct {
	output strings.Builder
	parent bool // has subtests, which are counted instead
}

// skip is one skipped test with its reason.
type skip struct{ pkg, name, reason string }

// tally counts events and prints as they come.
type tally struct {
	out                     io.Writer
	running                 map[string]*test            // package + "\x00" + name; name "" is the package itself
	failedIn                map[string]int              // package -> failed tests
	builds                  map[string]*strings.Builder // import path -> compiler's output
	passed, failed, skipped int
	skips                   []skip
	broken                  []string // packages that failed without a failed test, and failed tests
}

func newTally(out io.Writer) *tally {
	return &tally{
		out: out, running: map[string]*test{}, failedIn: map[string]int{},
		builds: map[string]*strings.Builder{},
	}
}

func (t *tally) get(pkg, name string) *test {
	key := pkg + "\x00" + name
	if t.running[key] == nil {
		t.running[key] = &test{}
	}
	return t.running[key]
}

// add takes one event.
func (t *tally) add(e event) {
	switch e.Action {
	case "build-output":
		if t.builds[e.ImportPath] == nil {
			t.builds[e.ImportPath] = &strings.Builder{}
		}
		t.builds[e.ImportPath].WriteString(e.Output)
	case "run":
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			t.get(e.Package, e.Test[:i]).parent = true
		}
		t.get(e.Package, e.Test)
	case "output":
		t.get(e.Package, e.Test).output.WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(e)
		} else {
			t.endTest(e)
		}
	}
}

// endTest counts one test. Output of a subtest comes under its own name only,
// so a failed parent's is short.
func (t *tally) endTest(e event) {
	this := t.get(e.Package, e.Test)
	delete(t.running, e.Package+"\x00"+e.Test)
	switch e.Action {
	case "pass":
		if !this.parent {
			t.passed++
		}
	case "skip":
		if !this.parent {
			t.skipped++
		}
		t.skips = append(t.skips, skip{e.Package, e.Test, reason(this.output.String())})
	case "fail":
		t.failedIn[e.Package]++
		if !this.parent || ownFailure.MatchString(this.output.String()) {
			t.failed++
			t.broken = append(t.broken, e.Package+" "+e.Test)
		}
		fmt.Fprint(t.out, this.output.String())
	}
}

// endPackage prints the line of a package. One that failed with no failed
// test (it does not compile, it crashed, TestMain found a leak) counts as one
// failure, and everything that it wrote is shown.
func (t *tally) endPackage(e event) {
	text := t.get(e.Package, "").output.String()
	switch {
	case e.Action == "pass":
		fmt.Fprintf(t.out, "ok    %-60s %7.1fs\n", e.Package, e.Elapsed)
	case e.Action == "skip": // no test files
	case t.failedIn[e.Package] > 0:
		fmt.Fprintf(t.out, "FAIL  %-60s %7.1fs\n", e.Package, e.Elapsed)
	default:
		t.failed++
		if e.FailedBuild != "" {
			t.broken = append(t.broken, e.Package+" (does not compile)")
			if b := t.builds[e.FailedBuild]; b != nil {
				text = b.String() + text
			}
		} else {
			t.broken = append(t.broken, e.Package+" (outside its tests)")
			for key, unfinished := range t.running {
				if pkg, name, _ := strings.Cut(key, "\x00"); pkg == e.Package && name != "" {
					text = unfinished.output.String() + text
				}
			}
		}
		fmt.Fprintf(t.out, "%sFAIL  %s\n", text, e.Package)
	}
	for key := range t.running {
		if strings.HasPrefix(key, e.Package+"\x00") {
			delete(t.running, key)
		}
	}
}

var (
	// ownFailure finds a message of the test itself: "    file_test.go:12: text".
	ownFailure = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: `)
	framework  = regexp.MustCompile(`^\s*(=== |--- )`)
	position   = regexp.MustCompile(`^\w+\.go:\d+: `)
)

// reason takes from a skipped test's output what it gave to t.Skip.
func reason(output string) string {
	var words []string
	for _, line := range strings.Split(output, "\n") {
		line = strings.TrimRight(line, " \t")
		if line == "" || framework.MatchString(line) {
			continue
		}
		words = append(words, position.ReplaceAllString(strings.TrimSpace(line), ""))
	}
	if len(words) == 0 {
		return "(no reason given)"
	}
	return strings.Join(words, " ")
}

// summary prints the skips, what failed, and the count as the last line.
func (t *tally) summary() {
	if len(t.skips) > 0 {
		fmt.Fprintf(t.out, "\nskipped:\n")
		for _, s := range t.skips {
			fmt.Fprintf(t.out, "  %s %s: %s\n", s.pkg, s.name, s.reason)
		}
	}
	if len(t.broken) > 0 {
		fmt.Fprintf(t.out, "\nfailed:\n")
		for _, name := range t.broken {
			fmt.Fprintf(t.out, "  %s\n", name)
		}
	}
	fmt.Fprintf(t.out, "\n%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
}
