//go:build unix

// Command long runs what takes hours: each fuzz target of every module, each hunt of the
// Python tests, plain and with sanitizers, and the tests that need a night. `make check-long`
// runs it.
//
//	go run ./interop/setup/long [-time 20m] [-jobs 2] [-only words] [-again] [-list] [-table] [-stages]
//
// What each stage did is kept in bin/long/record.json as it goes. A run that was interrupted
// goes on where it was: what is complete stays, a fuzz target or a hunt is run for the time
// that it still lacks, anything else from its start. What was complete at another commit stays
// too, with that commit in the table, until -again. A stage that found something is run again
// as soon as the commit is another one.
//
// The exit status is 0 when every stage that was asked for is complete and found nothing, 1
// when something was found, 3 when it was interrupted. At the end the table of the README is
// printed; -table prints it and runs nothing, -stages has a line for each stage.
//
// It wants what `make python` sets up and VIRTUAL_ENV to say where that is. Inputs that fail
// are in testdata/fuzz of the package, examples of hunts and all output in bin/long.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitFound       = 1
	exitUsage       = 2
	exitInterrupted = 3
)

func main() {
	o := options{}
	flag.StringVar(&o.root, "root", ".", "the `directory` of usmbridge's go.mod")
	flag.DurationVar(&o.time, "time", 20*time.Minute, "how long each fuzz target and hunt runs")
	flag.IntVar(&o.jobs, "jobs", max(1, runtime.NumCPU()/2), "how many stages run at a time")
	flag.StringVar(&o.only, "only", "", "only stages whose name has one of these `words`, or whose surface is called so; with commas between them")
	flag.BoolVar(&o.again, "again", false, "run again what is complete at another commit")
	list := flag.Bool("list", false, "list the stages and what is known of them")
	table := flag.Bool("table", false, "print the table of what was recorded")
	each := flag.Bool("stages", false, "a line of the table for each stage")
	flag.Parse()
	if flag.NArg() > 0 || o.jobs < 1 || o.time < time.Second {
		flag.Usage()
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	status, err := o.main(ctx, *list, *table, *each)
	if err != nil {
		fmt.Fprintln(os.Stderr, "long:", err)
	}
	os.Exit(status)
}

type options struct {
	root  string
	time  time.Duration
	jobs  int
	only  string
	again bool
}

func (o *options) main(ctx context.Context, list, table, each bool) (int, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return exitUsage, err
	}
	o.root = root
	stages, err := allStages(ctx, root)
	if err != nil {
		return exitUsage, err
	}
	if stages = chosen(stages, o.only); len(stages) == 0 {
		return exitUsage, fmt.Errorf("no stage has %q in its name or surface; -list shows them", o.only)
	}
	dir := filepath.Join(root, "bin", "long")
	if list || table {
		b, err := openBook(filepath.Join(dir, "record.json"))
		if err != nil {
			return exitUsage, err
		}
		if list {
			writeList(os.Stdout, stages, b)
		} else {
			writeTable(os.Stdout, stages, b, each)
		}
		return 0, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exitUsage, err
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return exitUsage, err
	}
	defer unlock()
	b, err := openBook(filepath.Join(dir, "record.json"))
	if err != nil {
		return exitUsage, err
	}
	at, err := commit(ctx, root)
	if err != nil {
		return exitUsage, err
	}
	r := runner{
		root: root, dir: dir, book: b, commit: at, time: o.time, again: o.again, saves: saveEach, out: os.Stdout,
		env: append(os.Environ(), fmt.Sprintf("HUNT=%d", int(o.time.Seconds()))),
	}
	r.run(ctx, stages, o.jobs)
	fmt.Println()
	writeTable(os.Stdout, stages, b, each)
	return r.verdict(ctx, stages), nil
}

// chosen are the stages with one of the words in their name, or of a surface of that word.
func chosen(stages []*stage, only string) []*stage {
	words := strings.FieldsFunc(strings.ToLower(only), func(r rune) bool { return r == ',' })
	if len(words) == 0 {
		return stages
	}
	return slices.DeleteFunc(stages, func(s *stage) bool {
		word := ""
		if i := surfaceOf(s); i < len(surfaces) {
			word = surfaces[i].word
		}
		return !slices.ContainsFunc(words, func(w string) bool {
			w = strings.TrimSpace(w)
			return w == word || strings.Contains(strings.ToLower(s.Name), w)
		})
	})
}

// lock keeps a second run from the same record; it ends with the process, however that ends.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // In bin.
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: another run is under way: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// commit names what is being tested: the commit, with a plus where the files are not its own.
func commit(ctx context.Context, root string) (string, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	at, err := git("rev-parse", "--short=10", "HEAD")
	if err != nil {
		return "", fmt.Errorf("git does not say which commit this is: %w", err)
	}
	// Inputs that fail are written into the tree, and make it no other program.
	changed, err := git("status", "--porcelain", "--", ".", ":(exclude,glob)**/testdata/fuzz/**")
	if err == nil && changed != "" {
		at += "+"
	}
	return at, err
}
