// Command embedpython writes a complete CPython 3.14 with its shared library, and pip, into a directory. The files
// come from a Go module, so a machine that can build the project needs no other Python.
//
//	embedpython DIR
//
// It writes DIR/python (bin, lib) and DIR/pip-…, and prints the absolute paths as one line of JSON:
//
//	{"python": "/…/DIR/python/bin/python3.14", "pip": "/…/DIR/pip-…"}
//
// The path of pip is a directory for PYTHONPATH or a .pth file; python3.14 -m pip then finds it. Running the command
// again restores missing files. The command has its own module because it embeds 70 MB.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kluctl/go-embed-python/pip"
	"github.com/kluctl/go-embed-python/python"
)

// layout has the paths of the written files.
type layout struct {
	Python string `json:"python"`
	Pip    string `json:"pip"`
}

func main() {
	if len(os.Args) != 2 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: embedpython DIR")
		os.Exit(2)
	}
	found, err := extract(os.Args[1])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "embedpython:", err)
		os.Exit(1)
	}
}

// extract writes Python and pip into dir.
func extract(dir string) (layout, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return layout{}, fmt.Errorf("creating the directory for Python: %w", err)
	}
	py, err := python.NewEmbeddedPythonWithTmpDir(filepath.Join(dir, "python"), false)
	if err != nil {
		return layout{}, fmt.Errorf("writing Python into %s: %w", dir, err)
	}
	exe, err := executable(py.GetExtractedPath())
	if err != nil {
		return layout{}, err
	}
	// NewPipLib writes into the directory for temporary files.
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return layout{}, err
	}
	lib, err := pip.NewPipLib("usmbridge")
	if err != nil {
		return layout{}, fmt.Errorf("writing pip into %s: %w", dir, err)
	}
	return layout{Python: exe, Pip: lib.GetExtractedPath()}, nil
}

// executable returns the interpreter of a distribution by its name with the version: python3.N -m venv creates
// a link of the same name in the environment.
func executable(home string) (string, error) {
	names, err := filepath.Glob(filepath.Join(home, "bin", "python3.[0-9]*"))
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "-config") {
			return name, nil
		}
	}
	return "", errors.New("the distribution in " + home + " has no bin/python3.N; it does not support this operating system")
}
