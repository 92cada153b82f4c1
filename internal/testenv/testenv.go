// Package testenv describes the machine to tests: the tree of the project, a Python with given packages, and
// whether a missing requirement skips a test or fails it. Must and ErrorOf are for the results of calls. Only tests
// import it.
//
// Package testsycl below it opens the SYCL device of the tests, and package testpython finds the Python that
// they embed. Both import packages of the module. This package does not, so that the tests of every package
// can use it.
package testenv

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A Requirement is something that a machine may lack. Its value is the environment variable which, set to
// 1, declares that this machine has it. `make test` sets the variables.
type Requirement string

// The requirements of the tests.
const (
	Python Requirement = "USMBRIDGE_REQUIRE_PYTHON" // a Python that can be embedded
	SYCL   Requirement = "USMBRIDGE_REQUIRE_SYCL"   // a SYCL runtime with a device
	Peers  Requirement = "USMBRIDGE_REQUIRE_PEERS"  // the pinned Python packages: NumPy, dpctl, dpnp, …
)

// Declared reports whether the environment declares one of the requirements.
func Declared(requirements ...Requirement) bool {
	for _, r := range requirements {
		if os.Getenv(string(r)) == "1" {
			return true
		}
	}
	return false
}

// Missing ends the test because a requirement is missing. It skips the test, or fails it if the environment
// declares one of the requirements.
func Missing(t testing.TB, reason any, requirements ...Requirement) {
	t.Helper()
	for _, r := range requirements {
		if Declared(r) {
			t.Fatalf("%s=1, but: %v", r, reason)
		}
	}
	t.Skip(reason)
}

// Together calls f(0) to f(n-1), each on a goroutine of its own, and ends the test if some of them return errors.
func Together(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Printed returns the text that f, such as an example without an Output comment, writes to standard output.
// f must write less than the buffer of a pipe, which has at least 4 KiB.
func Printed(t testing.TB, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	f()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Root returns the directory of the root module.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Environments returns the directories of the Python environments to look into: the active one, and the one
// that `make python` makes.
func Environments() []string {
	var all []string
	if active := os.Getenv("VIRTUAL_ENV"); active != "" {
		all = append(all, active)
	}
	return append(all, filepath.Join(Root(), ".venv"))
}

// Interpreter returns the path of a Python that runs the statements, such as imports, without an error.
// If there is none, the test ends as [Missing] describes for [Peers].
func Interpreter(t testing.TB, statements string) string {
	t.Helper()
	var candidates, tried []string
	for _, e := range Environments() {
		candidates = append(candidates, filepath.Join(e, "bin", "python3"))
	}
	for _, p := range append(candidates, "python3") {
		text, err := exec.Command(p, "-c", statements).CombinedOutput()
		if err == nil {
			return p
		}
		tried = append(tried, p+": "+err.Error()+": "+strings.TrimSpace(string(text)))
	}
	Missing(t, "no Python can run "+statements+": "+strings.Join(tried, "; "), Peers)
	return ""
}

// Build compiles a main package, or a main.go, and returns the path of the program. flags are further flags of
// go build. Relative paths count from the directory of the test.
func Build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	if len(flags) == 0 { // no sanitizer, which names lines by the tables for debuggers: linking takes half as long without
		flags = []string{"-ldflags=-w"}
	}
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, flags...)
	out, err := exec.Command("go", append(args, source)...).CombinedOutput()
	if err != nil {
		t.Fatalf("go build %s: %v\n%s", source, err, out)
	}
	programs, err := os.ReadDir(dir)
	if err != nil || len(programs) != 1 {
		t.Fatalf("go build %s: got %d programs (%v), want 1", source, len(programs), err)
	}
	return filepath.Join(dir, programs[0].Name())
}

// Must returns the value of a call, or ends the test with its error: a := testenv.Must(f())(t).
func Must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Held is Must for a value that is released at the end of the test.
func Held[T interface{ Release() }](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(v, err)(t)
		t.Cleanup(v.Release)
		return v
	}
}

// Opened is Must for a value that is closed at the end of the test, which fails if Close does.
func Opened[T io.Closer](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(v, err)(t)
		t.Cleanup(func() { Must(v, v.Close())(t) })
		return v
	}
}

// As returns the error of type T that err is or wraps, or ends the test.
func As[T error](t testing.TB, err error) T {
	t.Helper()
	found, ok := errors.AsType[T](err)
	if !ok {
		t.Fatalf("got error %v of type %T, want one of type %T", err, err, found)
	}
	return found
}

// Failed checks that err is or wraps kind, and that its text contains text.
func Failed(t testing.TB, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Fatalf("got error %v, want %v with the text %q", err, kind, text)
	}
}

// ErrorOf returns the error of a call that returns a value too.
func ErrorOf[T any](_ T, err error) error { return err }
