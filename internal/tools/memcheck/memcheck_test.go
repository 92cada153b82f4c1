//go:build linux && cgo

package memcheck

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// machine describes two GPUs with tiles and a CPU to the fake library of sycltest.
const machine = `platform 131072 Fake Level Zero
device 16 1073741824 8 2 14 Fake GPU A
device 16 1073741824 8 2 14 Fake GPU B
platform 262144 Fake OpenCL
device 4 1073741824 8 0 14 Fake CPU
`

// sources are the C parts that need neither Go nor Python.
var sources = []string{"dlpack/*.c", "internal/owner/owner_linux.c", "syclobj/*.c", "internal/tools/memcheck/testdata/drive/*.c"}

// build compiles the driver and returns its path.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	compiler := strings.Fields(cmp.Or(os.Getenv("CC"), "cc"))
	if _, err := exec.LookPath(compiler[0]); err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	out := filepath.Join(t.TempDir(), "drive")
	args := append(compiler[1:], "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-o", out)
	args = append(args, flags...)
	for _, dir := range []string{"dlpack", "internal/owner", "syclobj"} {
		args = append(args, "-I"+filepath.Join(root, dir))
	}
	for _, pattern := range sources {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		args = append(args, files...)
	}
	args = append(args, "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup", "-ldl", "-lpthread")
	text, err := exec.CommandContext(t.Context(), compiler[0], args...).CombinedOutput() //nolint:gosec // The compiler.
	if err != nil && strings.Contains(string(text), "cannot find -lasan") || strings.Contains(string(text), "libclang_rt") {
		t.Skipf("the compiler has no sanitizers: %s", text)
	}
	require.NoError(t, err, "%s", text)
	return out
}

// drive runs the program under a command and returns its output.
func drive(t *testing.T, under []string, program string, args ...string) (string, error) {
	t.Helper()
	command := append(append(append([]string{}, under...), program), args...)
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...) //nolint:gosec // Built above.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LD_") && !strings.HasPrefix(v, "ASAN_") { // variables for the sanitizer of this test process
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "USMBRIDGE_FAKE_MACHINE="+machine)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// rounds returns the arguments of the driver: the number of rounds of tensors and cells, and the step
// between the calls and allocations that fail. With USMBRIDGE_HUNT each of them fails.
func rounds(short, step string) []string {
	if os.Getenv("USMBRIDGE_HUNT") != "" {
		return []string{"300000", "1"}
	}
	return []string{short, step}
}

// holds runs the driver, and checks that the tool that it runs under finds deliberate mistakes.
func holds(t *testing.T, under []string, program string, mistakes []string, args ...string) {
	t.Helper()
	out, err := drive(t, under, program, append([]string{sycltest.Library(t)}, args...)...)
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "checks held")
	t.Log(strings.TrimSpace(out))
	for _, mistake := range mistakes {
		out, err := drive(t, under, program, "wrong", mistake)
		assert.Error(t, err, "%s was not found: %s", mistake, out)
	}
}

func TestDrive(t *testing.T) {
	holds(t, nil, build(t), []string{"check"}, rounds("20000", "1")...)
}

func TestSanitized(t *testing.T) {
	program := build(t, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	holds(t, nil, program, []string{"read", "freed", "twice", "leak", "overflow"}, rounds("5000", "3")...)
}

// Valgrind finds branches on uninitialized memory, which these sanitizers do not. No suppressions for the
// C library were necessary on the systems that were tried.
func TestMemcheck(t *testing.T) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		t.Skipf("no valgrind: %v", err)
	}
	under := []string{
		valgrind, "--quiet", "--error-exitcode=9", "--leak-check=full",
		"--show-leak-kinds=definite,indirect,possible", "--errors-for-leak-kinds=definite,indirect,possible",
	}
	holds(t, under, build(t), []string{"leak", "unwritten"}, rounds("500", "18")...)
}
