//go:build linux && cgo

package syclobj

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/internal/childenv"
)

const (
	adviceInstall = "run `pip install dpctl intel-opencl-rt`, or name the library in " + EnvLibrary
	adviceReplace = "run `pip install --force-reinstall dpctl intel-opencl-rt`, or name another file in " + EnvLibrary
	adviceUpgrade = "run `pip install --upgrade dpctl intel-opencl-rt`"
)

// Time limits for python3 to print its search path, and for its children to close
// the pipe: 5 seconds together. Tests shorten them.
var pythonTimeout, pythonPipeDelay = 4 * time.Second, time.Second

// inDirectory replaces a directory by the library in it. A name without a slash is left to the dynamic
// loader, even if the working directory has such a file.
func inDirectory(path string) string {
	if !strings.Contains(path, "/") {
		return path
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, libraryName)
	}
	return path
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// candidates lists the files to try, in order. Entries with an error are places without the library.
func candidates(ctx context.Context) []Attempt {
	return []Attempt{
		inVirtualEnv(os.Getenv("VIRTUAL_ENV")),
		onPath(ctx),
		{Source: sourceLoader, Path: libraryName},
	}
}

func inVirtualEnv(root string) Attempt {
	a := Attempt{Source: "VIRTUAL_ENV"}
	if root == "" {
		a.Err = errors.New("not set")
		return a
	}
	return inPrefix(a, root)
}

// inPrefix searches dpctl below an environment's root.
func inPrefix(a Attempt, root string) Attempt {
	for _, lib := range []string{"lib", "lib64"} {
		found, err := filepath.Glob(filepath.Join(globEscape(root), lib, "python3*", "site-packages", "dpctl", libraryName))
		if err == nil && len(found) > 0 {
			a.Path = found[0]
			return a
		}
	}
	a.Path = root
	a.Err = errors.New("dpctl is not installed there")
	return a
}

// environmentLib returns the lib directory of the environment whose site-packages contain the library;
// empty for a library elsewhere, whose neighbours must not be loaded.
func environmentLib(path string) string {
	packages := filepath.Dir(filepath.Dir(path))
	if !filepath.IsAbs(path) || filepath.Base(packages) != "site-packages" {
		return ""
	}
	return filepath.Dir(filepath.Dir(packages))
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// onPath searches the environment of the python3 on PATH. A virtual environment is inspected by its files;
// other interpreters are run to print their search path.
func onPath(ctx context.Context) Attempt {
	a := Attempt{Source: "python3 on PATH"}
	python, err := exec.LookPath("python3")
	if err != nil {
		a.Err = err
		return a
	}
	root := filepath.Dir(filepath.Dir(python))
	if _, err := os.Stat(filepath.Join(root, "pyvenv.cfg")); err == nil {
		if in := inPrefix(a, root); in.Err == nil {
			return in
		}
	}
	paths, err := pythonPaths(ctx, python)
	if err != nil {
		a.Path, a.Err = python, err
		return a
	}
	for _, dir := range paths {
		file := filepath.Join(dir, "dpctl", libraryName)
		if _, err := os.Stat(file); filepath.IsAbs(dir) && err == nil {
			a.Path = file
			return a
		}
	}
	a.Path, a.Err = python, errors.New("dpctl is not installed for it")
	return a
}

// pythonPaths runs the interpreter and returns its search path.
func pythonPaths(ctx context.Context, python string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", `import sys; print("\n".join(p for p in sys.path if p))`)
	cmd.Env = childenv.Absolute(os.Environ())
	cmd.WaitDelay = pythonPipeDelay
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("it did not print its search path in time: %w", ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

// dpctlVersion reads the version from the metadata beside the package that the
// library lies in; empty when there is none.
func dpctlVersion(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	found, err := filepath.Glob(filepath.Join(globEscape(filepath.Dir(filepath.Dir(path))), "dpctl-*.dist-info", "METADATA"))
	if err != nil || len(found) == 0 {
		return ""
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		if v, ok := bytes.CutPrefix(line, []byte("Version:")); ok {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}

// tooOld reports whether a known version is below 0.17.
func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(strings.TrimRight(parts[1], "abcdefghijklmnopqrstuvwxyz+-"))
	return err == nil && major == 0 && minor < 17
}
