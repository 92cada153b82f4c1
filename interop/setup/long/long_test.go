//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/internal/treetest"
)

// A runner over a directory of its own, as one start of the program is.
func newRunner(t *testing.T, dir, commit string, seconds float64) (*runner, *bytes.Buffer) {
	t.Helper()
	b, err := openBook(filepath.Join(dir, "record.json"))
	require.NoError(t, err)
	var out bytes.Buffer
	return &runner{
		root: dir, dir: dir, commit: commit, env: os.Environ(), book: b, out: &out,
		time: time.Duration(seconds * float64(time.Second)), saves: saveEach,
	}, &out
}

// script is a stage that is a line of shell with the seconds as $1. What it appends to "runs"
// is how often it ran.
func script(name, line string, timed bool) *stage {
	return &stage{
		Name: name, Command: line, Timed: timed, Read: readFuzz,
		Args: func(_ *runner, seconds float64) []string {
			return []string{"bash", "-c", "echo $1 >>runs; " + line, "bash", fmt.Sprintf("%.1f", seconds)}
		},
	}
}

func runs(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "runs"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Fields(string(text))
}

const some = "echo 'fuzz: elapsed: 3s, execs: 12345 (4115/sec), new interesting: 1 (total: 2)'"

func TestCompleteStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := script("a", some, false)
	r, _ := newRunner(t, dir, "one", 5)
	r.run(t.Context(), []*stage{s}, 2)
	require.Zero(t, r.verdict(t.Context(), []*stage{s}))
	rec, ok := r.book.get("a")
	require.True(t, ok)
	assert.True(t, rec.Complete)
	assert.EqualValues(t, 12345, rec.Executions)
	assert.Equal(t, "one", rec.Commit)
	assert.WithinDuration(t, time.Now(), rec.Date, time.Hour)

	for _, c := range []struct {
		commit string
		again  bool
		runs   int
	}{{"one", false, 1}, {"two", false, 1}, {"one", true, 1}, {"two", true, 2}, {"two", true, 2}} {
		r, _ := newRunner(t, dir, c.commit, 5)
		r.again = c.again
		r.run(t.Context(), []*stage{s}, 1)
		assert.Len(t, runs(t, dir), c.runs, "%+v", c)
		assert.Zero(t, r.verdict(t.Context(), []*stage{s}))
	}
}

func TestFinding(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := script("bad", some+"; echo 'the wrong answer'; test -e mended", false)
	good := script("good", some, false)
	all := []*stage{bad, good}
	r, out := newRunner(t, dir, "one", 5)
	r.run(t.Context(), all, 1)
	assert.Equal(t, exitFound, r.verdict(t.Context(), all))
	rec, _ := r.book.get("bad")
	require.Len(t, rec.Findings, 1)
	assert.Contains(t, rec.Findings[0], "exit status 1")
	assert.Contains(t, rec.Findings[0], "the wrong answer")
	assert.EqualValues(t, 12345, rec.Executions)
	assert.Contains(t, out.String(), "FOUND")
	rec, _ = r.book.get("good")
	assert.True(t, rec.Complete, "the others are run all the same")

	r, _ = newRunner(t, dir, "one", 5)
	r.run(t.Context(), all, 1)
	assert.Len(t, runs(t, dir), 2, "nothing has changed")
	assert.Equal(t, exitFound, r.verdict(t.Context(), all), "what was found stays")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "mended"), nil, 0o600))
	r, _ = newRunner(t, dir, "two", 5)
	r.run(t.Context(), all, 1)
	assert.Len(t, runs(t, dir), 3, "that with the finding")
	assert.Zero(t, r.verdict(t.Context(), all))
}

// until waits for something that another process or goroutine does.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for !f() {
		if t.Context().Err() != nil {
			t.Fatal(what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// What was interrupted is not complete, keeps what it did, and goes on for the time that it lacks.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The first sitting goes on for ever and leaves a process behind; a second ends.
	hangs := "if test -e second; then " + some + "; else " + some + "; sleep 10000 & echo $! >child; touch up; wait; fi"
	timed, whole, never := script("timed", hangs, true), script("whole", "echo once", false), script("never", "echo twice", false)
	all := []*stage{timed, whole, never}
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := newRunner(t, dir, "one", 1000)
	go func() {
		until(t, "the stage does not begin", func() bool {
			_, err := os.Stat(filepath.Join(dir, "up"))
			return err == nil
		})
		cancel()
	}()
	r.run(ctx, all, 1)
	assert.Equal(t, exitInterrupted, r.verdict(ctx, all))
	rec, ok := r.book.get("timed")
	require.True(t, ok)
	assert.False(t, rec.Complete)
	assert.Empty(t, rec.Findings)
	assert.Positive(t, rec.Seconds)
	assert.EqualValues(t, 12345, rec.Executions)
	_, ok = r.book.get("never")
	assert.False(t, ok)
	child, err := os.ReadFile(filepath.Join(dir, "child"))
	require.NoError(t, err)
	until(t, "a process was left behind", func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})

	require.NoError(t, os.WriteFile(filepath.Join(dir, "second"), nil, 0o600))
	// As if it had run for most of its time.
	rec.Seconds = 990
	require.NoError(t, r.book.put("timed", rec))
	r, _ = newRunner(t, dir, "one", 1000)
	r.run(t.Context(), all, 1)
	assert.Zero(t, r.verdict(t.Context(), all))
	assert.Equal(t, []string{"1000.0", "10.0", "1000.0", "1000.0"}, runs(t, dir))
	rec, _ = r.book.get("timed")
	assert.EqualValues(t, 24690, rec.Executions)
	assert.True(t, rec.Complete)
}

// Who is killed has written down what it did until then.
func TestWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := script("timed", "for i in 1 2 3 4; do "+some+"; done; until test -e enough; do "+some+"; sleep 0.01; done", true)
	r, _ := newRunner(t, dir, "one", 1000)
	r.saves = 0
	done := make(chan struct{})
	go func() { defer close(done); r.run(t.Context(), []*stage{s}, 1) }()
	until(t, "nothing is written", func() bool {
		b, err := openBook(filepath.Join(dir, "record.json"))
		require.NoError(t, err)
		rec, ok := b.get("timed")
		if !ok {
			return false
		}
		assert.False(t, rec.Complete)
		return rec.Seconds > 0 && rec.Executions == 12345
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "enough"), nil, 0o600))
	<-done
}

func TestWhatIsLeft(t *testing.T) {
	t.Parallel()
	found := []string{"x"}
	for _, c := range []struct {
		name    string
		rec     record
		unknown bool
		timed   bool
		again   bool
		left    float64
		from    float64 // seconds that it goes on from
	}{
		{name: "unknown", unknown: true, left: 100},
		{name: "complete", rec: record{Commit: "one", Seconds: 100, Complete: true}, timed: true},
		{name: "complete at another commit", rec: record{Commit: "old", Seconds: 100, Complete: true}, timed: true},
		{name: "the same, again", rec: record{Commit: "old", Seconds: 100, Complete: true}, timed: true, again: true, left: 100},
		{name: "complete, again", rec: record{Commit: "one", Seconds: 100, Complete: true}, timed: true, again: true},
		{name: "complete for a shorter time", rec: record{Commit: "one", Seconds: 60, Complete: true}, timed: true, left: 40, from: 60},
		{name: "the same at another commit", rec: record{Commit: "old", Seconds: 60, Complete: true}, timed: true, left: 100},
		{name: "one without a time", rec: record{Commit: "old", Seconds: 3, Complete: true}},
		{name: "interrupted", rec: record{Commit: "one", Seconds: 30}, timed: true, left: 70, from: 30},
		{name: "interrupted at another commit", rec: record{Commit: "old", Seconds: 30}, timed: true, left: 100},
		{name: "interrupted without a time", rec: record{Commit: "one", Seconds: 30}, left: 100},
		{name: "found", rec: record{Commit: "one", Seconds: 3, Complete: true, Findings: found}, timed: true},
		{name: "found, again", rec: record{Commit: "one", Seconds: 3, Complete: true, Findings: found}, again: true},
		{name: "found at another commit", rec: record{Commit: "old", Seconds: 3, Complete: true, Findings: found}, left: 100},
	} {
		s := &stage{Timed: c.timed}
		left, from := s.left(c.rec, !c.unknown, "one", 100, c.again)
		assert.InDelta(t, c.left, left, 1e-9, c.name)
		if left > 0 {
			assert.InDelta(t, c.from, from.Seconds, 1e-9, c.name)
			assert.Equal(t, "one", from.Commit, c.name)
			assert.False(t, from.Complete, c.name)
		}
	}
}

// Go 1.26's coordinator may take the end of -fuzztime for a failure: once, it is run again.
func TestCoordinatorsDeadline(t *testing.T) {
	t.Parallel()
	const (
		fine     = "fuzz: elapsed: 5s, execs: 9 (1/sec)\nPASS\n"
		deadline = "--- FAIL: FuzzIt (6.06s)\n    context deadline exceeded\nFAIL\n"
		finding  = "--- FAIL: FuzzIt (1.00s)\n    --- FAIL: FuzzIt (0.00s)\n        it_test.go:1: wrong\n    Failing input written to testdata/fuzz/FuzzIt/1\nFAIL\n"
		ofItsOwn = "--- FAIL: FuzzIt (1.00s)\n    --- FAIL: FuzzIt (0.00s)\n        it_test.go:1: context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzIt/1\nFAIL\n"
	)
	for _, c := range []struct {
		name  string
		runs  []string
		count int
		found string
	}{
		{"passes", []string{fine, finding}, 1, ""},
		{"the deadline, then passes", []string{deadline, fine, finding}, 2, ""},
		{"the deadline twice", []string{deadline, deadline, finding}, 2, "twice"},
		{"an input that fails", []string{finding, finding}, 1, "Failing input written"},
		{"an input that fails with a deadline", []string{ofItsOwn, finding}, 1, "Failing input written"},
		{"the deadline, then an input", []string{deadline, finding, fine}, 2, "Failing input written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for i, text := range c.runs {
				require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("out", i+1)), []byte(text), 0o600))
			}
			s := script("go it", `n=out$(wc -l <runs); cat $n; ! grep -q FAIL $n`, true)
			s.Coordinator = true
			r, _ := newRunner(t, dir, "one", 5)
			r.run(t.Context(), []*stage{s}, 1)
			assert.Len(t, runs(t, dir), c.count)
			rec, _ := r.book.get("go it")
			assert.Equal(t, c.count == 2, len(rec.Notes) == 1)
			if c.found == "" {
				assert.Empty(t, rec.Findings)
				assert.Zero(t, r.verdict(t.Context(), []*stage{s}))
				return
			}
			require.Len(t, rec.Findings, 1)
			assert.Contains(t, rec.Findings[0], c.found)
		})
	}
}

func TestHuntsOutput(t *testing.T) {
	t.Parallel()
	var p progress
	for _, line := range []string{
		"seed 7, results in /x",
		"views                       1500 executions   0 findings      10 s",
		"views: finding in /x/views-1.txt: AssertionError: strides",
		"views                       4500 executions   1 findings      20 s",
	} {
		readHunt(line, &p)
	}
	assert.EqualValues(t, 4500, p.executions)
	assert.Equal(t, []string{"/x/views-1.txt: AssertionError: strides"}, p.findings)
	p = progress{}
	for _, line := range []string{"12 passed, 1 skipped in 3.00s", "--- PASS: TestA", "3 passed in 1.00s"} {
		counting(pythonsTest)(line, &p)
	}
	assert.EqualValues(t, 15, p.executions)
}

// A line of shell runs what is built for it, with the seconds in its environment; the runner is
// nobody's but ours.
func TestCommand(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t, t.TempDir(), "one", 5)
	s := command("long x", "cd . && echo "+byHand+" $HUNT && false | cat", "")
	assert.Same(t, plainHost, s.Build)
	s.Build = nil // it takes a minute
	args := s.Args(r, 5)
	assert.Equal(t, []string{"bash", "-o", "pipefail", "-c"}, args[:4])
	assert.Equal(t, "cd . && echo "+r.built(plainHost)+" $HUNT && false | cat", args[4])
	r.env = append(r.env, "HUNT=5")
	r.run(t.Context(), []*stage{s}, 1)
	rec, _ := r.book.get("long x")
	require.Len(t, rec.Findings, 1, "the first of a pipe's commands failed")
	assert.Contains(t, rec.Findings[0], r.built(plainHost)+" 5")
	var p progress
	counting(soaked)("    soak_test.go:224: out: 10000123 exchanges of 9 kinds in 3 s, resident 1 KiB", &p)
	assert.EqualValues(t, 10000123, p.executions)
}

// Only one run writes into a record.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(path)
	require.NoError(t, err)
	_, err = lock(path)
	require.ErrorContains(t, err, "another run")
	unlock()
	unlock, err = lock(path)
	require.NoError(t, err)
	unlock()
}

func TestRecordThatIsNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "record.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err := openBook(path)
	require.ErrorContains(t, err, "move it away")
}

func TestTable(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t, t.TempDir(), "abc", 5)
	stages := []*stage{{Name: "go dlpack FuzzCheck"}, {Name: "py dlpack"}, {Name: "py texts"}, {Name: "tests race"}, {Name: "nobody's", Command: "a | b"}}
	day := time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)
	var out bytes.Buffer
	writeTable(&out, stages, r.book, false)
	assert.Equal(t, "Nothing has been run yet.\n", out.String())
	for name, rec := range map[string]record{
		"go dlpack FuzzCheck": {Commit: "abc", Date: day, Seconds: 1200, Executions: 12_345_678, Complete: true},
		"py dlpack":           {Commit: "abc", Date: day.AddDate(0, 0, -1), Seconds: 300, Executions: 1000},
		"py texts":            {Commit: "def", Date: day, Seconds: 12, Executions: 999, Complete: true, Findings: []string{"x", "y"}},
		"nobody's":            {Commit: "abc", Date: day, Seconds: 1200, Executions: 1_234_567, Complete: true},
	} {
		require.NoError(t, r.book.put(name, rec))
	}
	out.Reset()
	writeTable(&out, stages, r.book, false)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 8)
	assert.Equal(t, "21 November 2026 to 22 November 2026, commit abc, def:", lines[0])
	assert.Contains(t, lines[4], "| 2 of 5 min to 20 min; 1 not complete | 12 million | nothing; mended before: ")
	assert.Contains(t, lines[4], "| `make check-long ONLY=tensors` |")
	assert.Contains(t, lines[5], "| 1 of 12 s; 1 not complete | 999 | **2**; mended before: ")
	assert.Contains(t, lines[6], "| 1, not run | 0 | mended before: ")
	assert.Equal(t, "| `nobody's` | 1 of 20 min | 1.2 million | nothing | `a \\| b` |", lines[7])
	out.Reset()
	writeList(&out, stages, r.book)
	assert.Contains(t, out.String(), "py texts: FOUND 2, 999 executions in 12 s at def, 2026-11-22 01:02:03\n")
	assert.Contains(t, out.String(), "py dlpack: not complete, ")
	assert.Contains(t, out.String(), "tests race: not run\n")
}

// Every stage of the tree can be chosen, is in one row, and no row names what is not there.
func TestStagesOfTheTree(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skipf("%s builds other targets", runtime.GOOS)
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	treetest.NeedNestedModules(t, root)
	stages, err := allStages(t.Context(), root)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, s := range stages {
		require.False(t, names[s.Name], "%s twice", s.Name)
		names[s.Name] = true
		require.NotEmpty(t, s.Command)
		require.Less(t, surfaceOf(s), len(surfaces), "%s is in no row of surfaces.go", s.Name)
	}
	for _, name := range []string{"go dlpack FuzzCheck", "go interop/flight/codec FuzzPacked", "py dlpack", "py+san meanwhile_beside", "tests UBSan"} {
		require.True(t, names[name], name)
	}
	for i, f := range surfaces {
		for _, pattern := range f.stages {
			used := false
			for _, s := range stages {
				if k := surfaceOf(s); k == i && matches(pattern, s) {
					used = true
				}
			}
			require.True(t, used, "the pattern %q of %q has no stage", pattern, f.word)
		}
	}
	words := map[string]bool{}
	for _, f := range surfaces {
		require.False(t, words[f.word], f.word)
		words[f.word] = true
	}
	require.Len(t, chosen(append([]*stage(nil), stages...), ""), len(stages))
	some := chosen(append([]*stage(nil), stages...), "cute, FuzzHeap")
	require.NotEmpty(t, some)
	for _, s := range some {
		require.True(t, surfaces[surfaceOf(s)].word == "cute" || s.Name == "go memmgr/internal/tlsf FuzzHeap", s.Name)
	}
	require.Empty(t, chosen(append([]*stage(nil), stages...), "no such thing"))
}

// A target from its source to its finding: built once, run, recorded, the input in the tree.
func TestRealTarget(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skipf("%s is not asked", runtime.GOOS)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("nested/go.mod", "module example.com/n\n\ngo 1.26\n")
	write("nested/deep/deep_test.go", "package deep\n\nimport \"testing\"\n\nfunc FuzzFine(f *testing.F) {\n\tf.Fuzz(func(t *testing.T, b byte) {})\n}\n")
	write("p/p_test.go", "package p\n\nimport \"testing\"\n\nfunc FuzzBad(f *testing.F) {\n\tf.Fuzz(func(t *testing.T, b byte) {\n\t\tif b > 3 {\n\t\t\tt.Fatal(\"more than three\")\n\t\t}\n\t})\n}\n")
	write("p/other_test.go", "//go:build plan9\n\npackage p\n\nimport \"testing\"\n\nfunc FuzzElsewhere(f *testing.F) {}\n")
	write("q/q_test.go", "package q\n\nimport \"testing\"\n\nfunc FuzzBroken(f *testing.F) { no such thing }\n")
	write("bin/long/go.mod", "module example.com/not\n")
	stages, err := goTargets(t.Context(), dir)
	require.NoError(t, err)
	var names []string
	for _, s := range stages {
		names = append(names, s.Name)
	}
	require.ElementsMatch(t, []string{"go p FuzzBad", "go q FuzzBroken", "go nested/deep FuzzFine"}, names)
	r, _ := newRunner(t, dir, "one", 5) // the fuzzer's workers take their time to start on a busy machine
	r.run(t.Context(), stages, 2)
	require.Equal(t, exitFound, r.verdict(t.Context(), stages))
	rec, _ := r.book.get("go p FuzzBad")
	require.Len(t, rec.Findings, 1, "%+v", rec)
	require.Contains(t, rec.Findings[0], "more than three")
	inputs, err := filepath.Glob(filepath.Join(dir, "p/testdata/fuzz/FuzzBad/*"))
	require.NoError(t, err)
	require.Len(t, inputs, 1)
	rec, _ = r.book.get("go q FuzzBroken")
	require.Len(t, rec.Findings, 1)
	require.Contains(t, rec.Findings[0], "cannot be built")
	rec, _ = r.book.get("go nested/deep FuzzFine")
	require.True(t, rec.Complete)
	require.Empty(t, rec.Findings)
	require.Positive(t, rec.Executions)
}

// The commit says so when the files are others; inputs that fail change nothing.
func TestCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	_, err := commit(t.Context(), dir)
	require.ErrorContains(t, err, "git does not say")
	git("init", "-q")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	git("add", "a")
	git("commit", "-q", "-m", "a")
	first, err := commit(t.Context(), dir)
	require.NoError(t, err)
	require.Regexp(t, "^[0-9a-f]{10}$", first)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "p/testdata/fuzz/FuzzIt"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p/testdata/fuzz/FuzzIt/1"), []byte("x"), 0o600))
	again, err := commit(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600))
	changed, err := commit(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, first+"+", changed)
}
