//go:build cgo && linux

package pymodule_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Release everything in the reverse order of its creation: Python's views of the arrays, the interpreter, the
// arrays, the pool, the Runtime. Interpreter.Close runs Python's atexit functions. Call it before the arrays are
// released, because it drops the last references that Python owns. Pool.Close reports buffers that are still in
// use.
func Example_shutdown() {
	rt, err := syclobj.Open()
	if err != nil {
		log.Fatal(err)
	}
	if err := pymodule.Register(pymodule.SetRuntime(rt)); err != nil {
		log.Fatal(err)
	}
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	pool := memmgr.NewPool(memmgr.Host())
	array, err := usmarray.New(pool, usmarray.Float32, []int{4})
	if err != nil {
		log.Fatal(err)
	}
	shown, err := pymodule.ToPython(array)
	if err != nil {
		log.Fatal(err)
	}
	out, err := py.Run("shape = list(a.shape)", python.Vars{"a": shown}, "shape")
	fmt.Println(out["shape"], err)

	shown.Release()
	err = py.Close()
	array.Release()
	err = errors.Join(err, pool.Close(), rt.Close())
	fmt.Println("closed:", err)
}

// TestShutdownExample runs the example in a child process, because it ends Python.
func TestShutdownExample(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		Example_shutdown()
		return
	}
	require.Contains(t, inProcess(t, "shutdown"), "[4] <nil>\nclosed: <nil>\n")
}
