// Command usmpython is a Python interpreter hosted by Go, with the module
// usmbridge built in. It takes the arguments of python3 and uses the environment
// in VIRTUAL_ENV (or USMBRIDGE_PYTHON, or the python3 on PATH).
//
// sys.executable is the environment's own python, so that pip, venv and other tools
// write scripts that work without this program. Children that multiprocessing spawns after an import of
// usmbridge run usmpython. Forked children share the interpreter, but cannot enter Go (RuntimeError).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Python must run on the process's first thread, to which the kernel delivers SIGINT.
func init() { runtime.LockOSThread() }

func main() {
	// Main returns only if Python cannot be started.
	fmt.Fprintln(os.Stderr, "usmpython:", run())
	os.Exit(1)
}

func run() error {
	env, err := python.Find()
	if err != nil {
		return err
	}
	// Make the CPU device visible also to a program that imports dpctl before usmbridge.
	_, _ = syclobj.ConfigureOpenCL(filepath.Join(env.Prefix, "lib")) // nothing is loaded yet
	if err := registerModules(); err != nil {
		return err
	}
	host, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program for the children of multiprocessing: %w", err)
	}
	return python.Main(env, namePackage(os.Args[1:]), host)
}
