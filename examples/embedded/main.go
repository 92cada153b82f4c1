// Command embedded contains its own Python: CPython 3.14 is in the program file (from the Go module
// go-embed-python), is extracted to a directory of the user's cache at the first start, and is then
// embedded, with usmbridge built in. The machine needs neither Python nor SYCL.
//
//	embedded [-dir DIRECTORY]
//
// Go allocates an array, a Python script changes the same memory, and Go prints the result. The program is
// a separate Go module, so that no other module downloads the 70 MB of Python.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	program "github.com/kluctl/go-embed-python/python"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

//go:embed smooth.py
var script string

func main() {
	dir := flag.String("dir", "", "`directory` for Python's files; without it one below the user's cache")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, dir string) error {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no directory for Python's files (give one with -dir): %w", err)
		}
		dir = filepath.Join(cache, "usmbridge-embedded")
	}
	env, err := extract(dir)
	if err != nil {
		return err
	}
	if err := pymodule.Register(); err != nil {
		return err
	}
	py, err := python.Start(python.WithEnvironment(env))
	if err != nil {
		return err
	}
	values, err := usmarray.FromSlice(memmgr.Host(), []float64{0, 8, 0, 0, 8, 8, 0, 8}, []int{8})
	if err != nil {
		return err
	}
	defer values.Release()
	sum, err := smooth(py, values)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Python %s of this program\nsmoothed by Python: %v\nsum: %g\n", env.Version, values, sum)
	return py.Close()
}

// extract writes the program's Python to dir, unless it is there already, and describes it. Several
// processes may do so at once.
func extract(dir string) (*python.Environment, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	py, err := program.NewEmbeddedPythonWithTmpDir(filepath.Join(dir, "python"), true)
	if err != nil {
		return nil, fmt.Errorf("writing Python below %s: %w", dir, err)
	}
	names, err := filepath.Glob(filepath.Join(py.GetExtractedPath(), "bin", "python3.[0-9]*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "-config") {
			return python.Inspect(name)
		}
	}
	return nil, errors.New("the Python of this program is not built for this operating system")
}

// smooth runs the script on the array's own memory.
func smooth(py *python.Interpreter, values *usmarray.Array) (float64, error) {
	x, err := pymodule.ToPython(values)
	if err != nil {
		return 0, err
	}
	defer x.Release()
	module, err := py.Module("smooth", script)
	if err != nil {
		return 0, err
	}
	defer module.Release()
	result, err := module.Method("smooth", x)
	if err != nil {
		return 0, err
	}
	defer result.Release()
	return result.Float()
}
