//go:build cgo

package syclobj_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/linkage/linkagetest"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// A statically linked program cannot load the SYCL library. Open reports that: with
// the host backend alone, or as its error if a library was named.
func TestStaticProgram(t *testing.T) {
	program := linkagetest.Build(t)
	run := func(env ...string) (string, error) {
		cmd := exec.Command(program)
		cmd.Env = append(append(os.Environ(), syclobj.EnvLibrary+"="), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run()
	require.NoError(t, err, out)
	require.Contains(t, out, "linked statically")
	out, err = run(syclobj.EnvLibrary + "=" + sycltest.Library(t))
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	require.Equal(t, 1, exit.ExitCode(), out)
	require.Contains(t, out, "without -static")
}
