package sycltest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/usmbridge/usmbridge/syclobj"
)

const (
	envMachine = "USMBRIDGE_FAKE_MACHINE"
	envTest    = "USMBRIDGE_FAKE_TEST"
)

// Environment returns the variables that give a process the machine, for programs that are not the
// test itself. It skips the test where Child does.
func Environment(t *testing.T, m Machine) []string {
	t.Helper()
	return []string{envMachine + "=" + m.text(), syclobj.EnvLibrary + "=" + Library(t)}
}

// Child runs the calling test again in a process that has the machine. In the
// parent it waits for that process, and fails the test if the child failed. In
// the child it calls f with the machine's controls, and at the end of the test
// it checks that the fake library holds no objects. It skips the test, with the
// reason, if there is no C compiler.
func Child(t *testing.T, m Machine, f func(*Fake)) {
	t.Helper()
	if os.Getenv(envTest) == t.Name() {
		f(inChild(t))
		return
	}
	environment := Environment(t, m)
	cmd := exec.Command(os.Args[0], childArguments(t.Name())...)
	// By default the race detector delays each exit by a second.
	race := strings.TrimSpace(os.Getenv("GORACE") + " atexit_sleep_ms=0")
	cmd.Env = append(append(os.Environ(), "GORACE="+race, envTest+"="+t.Name()), environment...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if skip := skipReason(out.String()); err == nil && skip != "" {
		t.Skip(skip)
	}
	if err != nil {
		t.Fatalf("with the fake machine: %v\n%s", err, out.String())
	}
	// A child that selected no test succeeds too.
	if !strings.Contains(out.String(), "--- PASS: "+t.Name()+" (") {
		t.Fatalf("the child process did not run this test:\n%s", out.String())
	}
	if testing.Verbose() {
		t.Log(out.String())
	}
}

// Library is Build for tests. It skips the test, with the reason, if the system cannot build the library,
// and fails it if the build fails for another reason.
func Library(t testing.TB) string {
	t.Helper()
	path, err := Build()
	switch {
	case err == nil:
	case noCompiler(err):
		t.Skipf("no fake SYCL library: %v", err)
	default:
		t.Fatalf("building the fake SYCL library: %v", err)
	}
	return path
}

// noCompiler distinguishes a system that cannot build the library from a broken library, which must not
// cause all tests to be skipped.
func noCompiler(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, errors.ErrUnsupported)
}

// childArguments returns the arguments that select exactly one test, with the limits of this process.
func childArguments(name string) []string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	args := []string{"-test.run=" + strings.Join(parts, "/"), "-test.count=1", "-test.v=true"}
	if f := flag.Lookup("test.timeout"); f != nil {
		args = append(args, "-test.timeout="+f.Value.String())
	}
	return args
}

var skipLine = regexp.MustCompile(`(?m)^\s*\S+_test\.go:\d+: (.*)\n--- SKIP:`)

func skipReason(out string) string {
	if m := skipLine.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if strings.Contains(out, "--- SKIP:") {
		return "skipped in the child process"
	}
	return ""
}

// Attach returns the controls of the machine of this process, which was started with the variables of Environment.
func Attach(t *testing.T) *Fake {
	t.Helper()
	f, err := attach(os.Getenv(syclobj.EnvLibrary))
	if err != nil {
		t.Fatalf("attaching to the fake SYCL library: %v", err)
	}
	return f
}

func inChild(t *testing.T) *Fake {
	t.Helper()
	f := Attach(t)
	t.Cleanup(func() {
		if live := f.Live(); live != (Objects{}) && !t.Failed() {
			t.Errorf("the fake SYCL library still holds %+v", live)
		}
	})
	return f
}

// Objects counts the objects of the fake library that were not deleted.
type Objects struct {
	Platforms, Devices, Contexts, Queues, Events, Selectors, Vectors, Texts, Allocations, Programs, Kernels int64
}
