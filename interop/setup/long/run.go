//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// How often the record of a stage that is running is written.
	saveEach = 10 * time.Second
	// How much longer than its time a stage may take to start and to end.
	grace = 15 * time.Minute
	// Of what runs to its own end.
	longest = 8 * time.Hour
	// How long a stage that was told to end may take for it.
	farewell = 20 * time.Second
	// For the second try of a target whose first ended with the coordinator's deadline.
	secondTry = 10.0
)

// A runner runs stages and writes down what they did.
type runner struct {
	root, dir, commit string
	env               []string
	time              time.Duration
	again             bool
	parallel          int
	saves             time.Duration
	book              *book

	mu     sync.Mutex // of out and builds
	out    io.Writer
	builds map[*build]func(context.Context) error
}

func (r *runner) built(b *build) string { return filepath.Join(r.dir, "build", b.name) }

func (r *runner) lookup(key string) string {
	for _, e := range slices.Backward(r.env) {
		if v, ok := strings.CutPrefix(e, key+"="); ok {
			return v
		}
	}
	return ""
}

func (r *runner) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// run runs what is not complete: jobs stages at a time, those that want to be alone afterwards.
func (r *runner) run(ctx context.Context, stages []*stage, jobs int) {
	r.builds = map[*build]func(context.Context) error{}
	var together, alone []*stage
	for _, s := range stages {
		if s.Alone {
			alone = append(alone, s)
		} else {
			together = append(together, s)
		}
	}
	r.parallel = parallelFor(jobs)
	queue := make(chan *stage)
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			for s := range queue {
				r.stage(ctx, s)
			}
		})
	}
	for _, s := range together {
		select {
		case queue <- s:
		case <-ctx.Done():
		}
	}
	close(queue)
	wg.Wait()
	r.parallel = parallelFor(1)
	for _, s := range alone {
		r.stage(ctx, s)
	}
}

// prepare builds what several stages share, once.
func (r *runner) prepare(ctx context.Context, b *build) error {
	r.mu.Lock()
	once, ok := r.builds[b]
	if !ok {
		var mu sync.Mutex
		var done bool
		var err error
		once = func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if !done {
				err = b.make(ctx, r)
				done = ctx.Err() == nil
			}
			return err
		}
		r.builds[b] = once
	}
	r.mu.Unlock()
	return once(ctx)
}

// stage runs one stage for as long as it lacks.
func (r *runner) stage(ctx context.Context, s *stage) {
	if ctx.Err() != nil {
		return
	}
	old, known := r.book.get(s.Name)
	left, rec := s.left(old, known, r.commit, r.time.Seconds(), r.again)
	if left <= 0 {
		return
	}
	if s.Build != nil {
		if err := r.prepare(ctx, s.Build); err != nil {
			if ctx.Err() == nil {
				r.end(s, rec, []string{err.Error()}, true)
			}
			return
		}
	}
	if rec.Seconds > 0 {
		r.say("%s goes on for %.0f s", s.Name, left)
	} else {
		r.say("%s", s.Name)
	}
	sitting := r.sit(ctx, s, &rec, left)
	if sitting.deadline {
		note := fmt.Sprintf("the coordinator took its own deadline for a failure after %.0f s (go.dev/issue/75804)", sitting.seconds)
		rec.Notes = append(rec.Notes, note)
		r.say("%s: %s; once more", s.Name, note)
		sitting = r.sit(ctx, s, &rec, min(secondTry, left))
		if sitting.deadline {
			sitting.findings = []string{"context deadline exceeded, twice"}
		}
	}
	r.end(s, rec, sitting.findings, ctx.Err() == nil || sitting.ended)
}

// end writes down how a stage ended; one that was interrupted is not complete.
func (r *runner) end(s *stage, rec record, findings []string, complete bool) {
	if complete {
		rec.Complete, rec.Findings = true, findings
	}
	r.write(s, rec)
	switch {
	case len(rec.Findings) > 0:
		r.say("%s: FOUND: %s", s.Name, strings.Join(rec.Findings, "\n"))
	case !complete:
		r.say("%s: interrupted after %.0f s", s.Name, rec.Seconds)
	default:
		r.say("%s: %d executions in %.0f s, nothing found", s.Name, rec.Executions, rec.Seconds)
	}
}

func (r *runner) write(s *stage, rec record) {
	rec.Date = time.Now().UTC().Truncate(time.Second)
	if err := r.book.put(s.Name, rec); err != nil {
		r.say("%s: its record cannot be written: %v", s.Name, err)
	}
}

// A sitting is one process of a stage.
type sitting struct {
	seconds  float64
	findings []string
	ended    bool // by itself
	deadline bool // the coordinator's own, and nothing else
}

// sit runs a stage's command once and adds to its record as it goes.
func (r *runner) sit(ctx context.Context, s *stage, rec *record, seconds float64) sitting {
	bound := longest
	if s.Timed {
		bound = time.Duration(seconds*float64(time.Second)) + grace
	}
	limited, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	args := s.Args(r, seconds)
	cmd := exec.CommandContext(limited, args[0], args[1:]...) //nolint:gosec // A stage's own.
	cmd.Dir, cmd.Env = filepath.Join(r.root, s.Dir), slices.Clone(r.env)
	if s.Env != nil {
		cmd.Env = append(cmd.Env, s.Env(r)...)
	}
	// A group of its own: what it started ends with it, and a Ctrl-C comes from here alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = farewell
	log, err := r.log(s)
	if err != nil {
		return sitting{findings: []string{err.Error()}, ended: true}
	}
	defer log.Close()
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	base := *rec
	start := time.Now()
	var p progress
	var last tail
	note := func() {
		rec.Seconds, rec.Executions = base.Seconds+time.Since(start).Seconds(), base.Executions+p.executions
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		saved := start
		lines(bufio.NewReader(read), func(line string) {
			fmt.Fprintln(log, line)
			last.add(line)
			if s.Read != nil {
				s.Read(line, &p)
			}
			if time.Since(saved) > r.saves {
				saved = time.Now()
				note()
				if s.Timed { // what is not timed starts anew anyway
					r.write(s, *rec)
				}
			}
		})
	}()
	err = cmd.Start()
	if err == nil {
		err = cmd.Wait()
		// Whoever outlives the command, a worker of a fuzzer that was killed, ends here.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	write.Close()
	<-done
	note()
	return r.judge(ctx, limited, s, err, sitting{seconds: time.Since(start).Seconds(), findings: p.findings}, &last)
}

func (r *runner) log(s *stage) (*os.File, error) {
	name := regexp.MustCompile(`[^A-Za-z0-9+]+`).ReplaceAllString(s.Name, "_")
	dir := filepath.Join(r.dir, "log")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, name+".txt")) //nolint:gosec // In bin.
}

// judge says what the end of a command means.
func (r *runner) judge(ctx, limited context.Context, s *stage, err error, t sitting, last *tail) sitting {
	switch {
	case ctx.Err() != nil: // interrupted; a command that ends well now may have been cut short
		if t.findings == nil && !strings.Contains(last.String(), "Failing input written") {
			return t
		}
	case limited.Err() != nil:
		t.findings = append(t.findings, "it did not end by itself:\n"+last.String())
	case err == nil:
	case s.Coordinator && deadlineAlone(last.lines):
		t.deadline = true
	case len(t.findings) == 0:
		t.findings = []string{strings.TrimSpace(err.Error() + "\n" + last.String())}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && len(t.findings) == 0 {
		t.findings = []string{err.Error()}
	}
	t.ended = true
	return t
}

var blame = regexp.MustCompile(`^panic:|Failing input written|fuzzing process (hung|terminated)`)

// deadlineAlone says whether the output holds one failure, whose only words are the deadline's.
func deadlineAlone(lines []string) bool {
	if slices.ContainsFunc(lines, blame.MatchString) {
		return false
	}
	fails := 0
	for i, line := range lines {
		if !strings.HasPrefix(line, "--- FAIL: ") {
			continue
		}
		if fails++; i+1 == len(lines) || strings.TrimSpace(lines[i+1]) != "context deadline exceeded" {
			return false
		}
	}
	return fails == 1
}

// verdict is the exit status after a run.
func (r *runner) verdict(ctx context.Context, stages []*stage) int {
	status := 0
	for _, s := range stages {
		rec, _ := r.book.get(s.Name)
		switch {
		case len(rec.Findings) > 0:
			return exitFound
		case !rec.Complete || ctx.Err() != nil:
			status = exitInterrupted
		}
	}
	return status
}
