//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A stage is one thing that is run and recorded.
type stage struct {
	Name    string
	Command string // how to do the same by hand, for the table
	Dir     string // where it runs, under the root
	Timed   bool   // runs for the time that it is given, and can go on later; others run to their end
	Alone   bool   // nothing of ours beside it
	Build   *build // what has to be there first
	// Args is the command line for some seconds.
	Args func(r *runner, seconds float64) []string
	Env  func(r *runner) []string
	// Read takes the executions of this sitting, and what was found, from a line of output.
	Read func(line string, p *progress)
	// Coordinator says that it is Go's fuzzing, whose own deadline may look like a failure.
	Coordinator bool
}

// progress is what the output of a stage says.
type progress struct {
	executions int64
	findings   []string
}

// allStages are those of the tree, what is most at risk first.
func allStages(ctx context.Context, root string) ([]*stage, error) {
	fuzz, err := goTargets(ctx, root)
	if err != nil {
		return nil, err
	}
	hunts, err := hunts(root)
	if err != nil {
		return nil, err
	}
	stages := slices.Concat(fuzz, hunts, commands())
	slices.SortStableFunc(stages, func(a, b *stage) int { return surfaceOf(a) - surfaceOf(b) })
	return stages, nil
}

// modules are the directories with a go.mod, the root first.
func modules(root string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
			return fs.SkipDir
		}
		if name == "go.mod" {
			found = append(found, filepath.Dir(path))
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// goTargets are the fuzz targets of the files that Go builds on this machine.
func goTargets(ctx context.Context, root string) ([]*stage, error) {
	dirs, err := modules(root)
	if err != nil {
		return nil, err
	}
	var stages []*stage
	for _, module := range dirs {
		cmd := exec.CommandContext(ctx, goCommand(), "list", "-f",
			`{{.Dir}}{{range .TestGoFiles}}{{"\t"}}{{.}}{{end}}{{range .XTestGoFiles}}{{"\t"}}{{.}}{{end}}`, "./...")
		cmd.Dir = module
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w: %s", module, err, errs.Bytes())
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			more, err := packageTargets(root, module, fields[0], fields[1:])
			if err != nil {
				return nil, err
			}
			stages = append(stages, more...)
		}
	}
	return stages, nil
}

func packageTargets(root, module, dir string, files []string) ([]*stage, error) {
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, err
	}
	inModule, err := filepath.Rel(module, dir)
	if err != nil {
		return nil, err
	}
	enter := ""
	if module != root {
		m, err := filepath.Rel(root, module)
		if err != nil {
			return nil, err
		}
		enter = "cd " + m + " && "
	}
	flat := strings.ReplaceAll(rel, string(filepath.Separator), "_")
	b := &build{name: flat + ".test", dir: rel, args: []string{"test", "-c", "-fuzz=Fuzz"}, target: "."}
	var stages []*stage
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // Of the tree.
		if err != nil {
			return nil, err
		}
		for _, m := range fuzzTarget.FindAllSubmatch(text, -1) {
			name := string(m[1])
			stages = append(stages, &stage{
				Name: "go " + rel + " " + name, Dir: rel, Timed: true, Build: b, Read: readFuzz, Coordinator: true,
				Command: fmt.Sprintf("%sgo test ./%s -run '^$' -fuzz '^%s$'", enter, inModule, name),
				Args: func(r *runner, seconds float64) []string {
					return []string{
						r.built(b), "-test.run=^$", "-test.fuzz=^" + name + "$", fmt.Sprintf("-test.fuzztime=%.0fs", max(1, seconds)),
						"-test.fuzzcachedir=" + filepath.Join(r.dir, "corpus", flat), "-test.parallel=" + strconv.Itoa(r.parallel), "-test.timeout=0",
						"-test.fuzzminimizetime=200x", // by default a minute for each input that reaches something new
					}
				},
			})
		}
	}
	return stages, nil
}

var fuzzLine = regexp.MustCompile(`^fuzz: elapsed: .*, execs: (\d+) `)

func readFuzz(line string, p *progress) {
	if m := fuzzLine.FindStringSubmatch(line); m != nil {
		p.executions, _ = strconv.ParseInt(m[1], 10, 64)
	}
}

const pythonTests = "interop/pymodule/tests"

var huntTarget = regexp.MustCompile(`(?m)^@target\(.*\)\ndef test_(\w+)\(`)

// hunts are the targets of the Python tests, as they are and with sanitizers.
func hunts(root string) ([]*stage, error) {
	files, err := filepath.Glob(filepath.Join(root, pythonTests, "robust", "test_*.py"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("there are no hunts in " + pythonTests)
	}
	var stages []*stage
	for _, h := range []*host{{name: "py", build: plainHost}, {name: "py+san", build: sanitizedHost, env: sanitizerEnv}} {
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // Of the tree.
			if err != nil {
				return nil, err
			}
			for _, m := range huntTarget.FindAllSubmatch(text, -1) {
				stages = append(stages, h.hunt(string(m[1])))
			}
		}
	}
	return stages, nil
}

// A host is a build of usmpython.
type host struct {
	name  string
	build *build
	env   func(r *runner) []string
}

var (
	plainHost = &build{name: "usmpython", args: []string{"build"}, target: "./interop/cmd/usmpython"}
	// Undefined behaviour of C ends the program, as a bad access does.
	sanitizedHost = &build{
		name: "usmpython-san", args: []string{"build", "-asan"}, target: "./interop/cmd/usmpython",
		env: []string{"CGO_CFLAGS=-g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined", "CGO_LDFLAGS=-fsanitize=undefined"},
	}
)

func (h *host) hunt(name string) *stage {
	s := &stage{Name: h.name + " " + name, Dir: pythonTests, Timed: true, Build: h.build, Read: readHunt, Env: h.env}
	s.Command = "cd " + pythonTests + " && " + byHand + " -m robust " + name
	s.Args = func(r *runner, seconds float64) []string {
		return []string{
			r.built(h.build), "-m", "robust", "--fresh", "--seconds", fmt.Sprintf("%.1f", seconds),
			"--results", filepath.Join(r.dir, "robust", h.name), name,
		}
	}
	return s
}

// sanitizerEnv is what a process of both sanitizers needs: the C++ library from the start and
// OpenCL's loader on the path, because its dlopen hides who asks. PYTHONMALLOC shows it
// Python's small blocks too.
func sanitizerEnv(r *runner) []string {
	library := "libstdc++.so.6"
	if out, err := exec.Command("cc", "-print-file-name="+library).Output(); err == nil {
		if path, err := filepath.EvalSymlinks(strings.TrimSpace(string(out))); err == nil {
			library = path
		}
	}
	return []string{
		"PYTHONMALLOC=malloc", "UBSAN_OPTIONS=print_stacktrace=1", "LD_PRELOAD=" + library,
		"ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1",
		"LD_LIBRARY_PATH=" + filepath.Join(r.lookup("VIRTUAL_ENV"), "lib"),
	}
}

var (
	huntCount   = regexp.MustCompile(`^\w+ +(\d+) executions `)
	huntFinding = regexp.MustCompile(`^\w+: finding in (.*)`)
)

func readHunt(line string, p *progress) {
	if m := huntCount.FindStringSubmatch(line); m != nil {
		p.executions, _ = strconv.ParseInt(m[1], 10, 64)
	}
	if m := huntFinding.FindStringSubmatch(line); m != nil {
		p.findings = append(p.findings, m[1])
	}
}

// counting sums what the expression's group says, or counts the lines that it matches.
func counting(expression string) func(string, *progress) {
	re := regexp.MustCompile(expression)
	return func(line string, p *progress) {
		m := re.FindStringSubmatch(line)
		switch {
		case m == nil:
		case len(m) == 1:
			p.executions++
		default:
			n, _ := strconv.ParseInt(m[1], 10, 64)
			p.executions += n
		}
	}
}

func goCommand() string {
	if g := os.Getenv("GO"); g != "" {
		return g
	}
	return "go"
}

// A build makes one program that several stages run.
type build struct {
	name   string
	dir    string
	args   []string // of the go command, before -o
	target string
	env    []string
}

func (b *build) make(ctx context.Context, r *runner) error {
	args := append(slices.Clone(b.args), "-o", r.built(b), b.target)
	cmd := exec.CommandContext(ctx, goCommand(), args...)
	cmd.Dir = filepath.Join(r.root, b.dir)
	cmd.Env = append(slices.Clone(r.env), b.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot be built: go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// tail keeps the last lines of an output.
type tail struct{ lines []string }

func (t *tail) add(line string) {
	const most = 60
	if t.lines = append(t.lines, line); len(t.lines) > most {
		t.lines = slices.Delete(t.lines, 0, len(t.lines)-most)
	}
}

func (t *tail) String() string { return strings.Join(t.lines, "\n") }

// lines calls f with each line, however long.
func lines(in *bufio.Reader, f func(string)) {
	for {
		line, err := in.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" || err == nil {
			f(line)
		}
		if err != nil {
			return
		}
	}
}

// parallelFor shares the processors between jobs.
func parallelFor(jobs int) int { return max(1, runtime.NumCPU()/jobs) }
