//go:build cgo && linux

package executor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

const unregisteredEnv = "USMBRIDGE_TEST_UNREGISTERED"

// TestUnregistered calls a function with an array in a program without pymodule.Register.
func TestUnregistered(t *testing.T) {
	if os.Getenv(unregisteredEnv) == "" {
		env := testpython.Need(t, "numpy")
		cmd := exec.Command(os.Args[0], "-test.run=^TestUnregistered$")
		cmd.Env = append(os.Environ(), unregisteredEnv+"=1", python.EnvVar+"="+env.Executable)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "result [2 4 6]")
		return
	}
	py := testenv.Must(python.Start())(t)
	testenv.Held(py.Module("models", models))(t)
	e := testenv.Must(executor.New(py, executor.Config{}))(t)
	defer func() { require.NoError(t, e.Close(context.Background())) }()
	x := testenv.Held(usmarray.FromSlice(memmgr.Host(), []int32{1, 2, 3}, []int{3}))(t)
	result := testenv.Must(e.Call(context.Background(), "models:doubled", x))(t).(map[string]any)
	fmt.Println("result", result["y"])
	result["y"].(*usmarray.Array).Release()
	result["same"].(*usmarray.Array).Release()
}
