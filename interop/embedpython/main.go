// Command embedpython lays out a complete CPython 3.14 with its shared
// library, and the matching pip, in a directory. The set-up program of
// usmbridge calls it on machines that have no Python it could use: the files
// come with a Go module, so whoever can build the project can have them.
//
//	embedpython DIR
//
// It writes DIR/python (bin, lib) and DIR/pip, and prints one line of JSON
// with the absolute paths of both:
//
//	{"python": "/…/DIR/python/bin/python3.14", "pip": "/…/DIR/pip-…"}
//
// pip is a plain package directory: put it on PYTHONPATH and run
// `python3.14 -m pip`. Running the command again on the same directory only
// repairs what is missing. The program is a module of its own so that the
// 70 MB it embeds are in nobody's build list but its own.
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

// layout says where the two things were put.
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

// extract writes Python and pip below dir.
func extract(dir string) (layout, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return layout{}, fmt.Errorf("making the directory for Python: %w", err)
	}
	py, err := python.NewEmbeddedPythonWithTmpDir(filepath.Join(dir, "python"), false)
	if err != nil {
		return layout{}, fmt.Errorf("writing Python below %s: %w", dir, err)
	}
	exe, err := executable(py.GetExtractedPath())
	if err != nil {
		return layout{}, err
	}
	// NewPipLib has no way to name a directory: it takes the one for
	// temporary files, so that is pointed here.
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return layout{}, err
	}
	lib, err := pip.NewPipLib("usmbridge")
	if err != nil {
		return layout{}, fmt.Errorf("writing pip below %s: %w", dir, err)
	}
	return layout{Python: exe, Pip: lib.GetExtractedPath()}, nil
}

// executable names the interpreter of an extracted distribution: the one
// whose name carries the version, because `python3.N -m venv` then links the
// same name into the environment.
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
	return "", errors.New("the distribution below " + home + " holds no bin/python3.N: this operating system is not one it was made for")
}
