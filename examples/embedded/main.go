// Command embedded is one file that carries its Python: CPython 3.14 is in the program
// (from the Go module go-embed-python), is laid out below the user's cache when it first
// runs, and is then embedded, with usmbridge built in. Neither Python nor SYCL has to be
// installed where it runs.
//
//	embedded [-dir DIRECTORY]
//
// Go allocates an array, a script of the program's own works on the same memory in
// Python, and Go prints what it finds there. The program is a module of its own so that
// the 70 MB of Python are in nobody's build list but its own.
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

	carried "github.com/kluctl/go-embed-python/python"

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
			return fmt.Errorf("no place for Python's files (name one with -dir): %w", err)
		}
		dir = filepath.Join(cache, "usmbridge-embedded")
	}
	env, err := layOut(dir)
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
	fmt.Fprintf(w, "Python %s, carried in this program\nsmoothed by Python: %v\nsum: %g\n", env.Version, values, sum)
	return py.Close()
}

// layOut writes the carried Python below dir, where it is not there yet, and describes
// it. Several processes may do so at once.
func layOut(dir string) (*python.Environment, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	py, err := carried.NewEmbeddedPythonWithTmpDir(filepath.Join(dir, "python"), true)
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
	return nil, errors.New("the carried Python is not one for this operating system")
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
