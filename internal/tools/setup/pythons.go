package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/interop/python"
)

// newest is the last minor version that the pinned packages have wheels for.
const newest = 14

// chosen is a Python to make the environment with.
type chosen struct {
	exe    string
	pip    string // directory of a pip for a Python without ensurepip, or ""
	source string // for the message
}

// choosePython takes the first suitable one; when none is, the pinned one,
// laid out below dir. A Python named in USMBRIDGE_PYTHON is the user's word:
// unsuitable, it is an error.
func choosePython(ctx context.Context, root, dir string) (chosen, error) {
	if named := os.Getenv(python.EnvVar); named == "off" {
		return chosen{}, errors.New(python.EnvVar + "=off asks for no Python, and this needs one: unset it")
	} else if named != "" {
		exe, err := suitable(ctx, named)
		if err != nil {
			return chosen{}, fmt.Errorf("%s names an unsuitable Python: %w", python.EnvVar, err)
		}
		return chosen{exe: exe, source: python.EnvVar}, nil
	}
	for _, c := range candidates(dir) {
		exe, err := suitable(ctx, c.exe)
		if err == nil {
			return chosen{exe: exe, source: c.source}, nil
		}
		if ctx.Err() != nil {
			return chosen{}, ctx.Err()
		}
		say("passing over %s from %s: %s", c.exe, c.source, strings.TrimPrefix(err.Error(), "python: "))
	}
	return fetchPython(ctx, root, dir)
}

// candidates lists the interpreters to look at, without those that belong to
// the environment being made.
func candidates(dir string) []chosen {
	var list []chosen
	seen := map[string]bool{}
	add := func(exe, source string) {
		if real, err := filepath.EvalSymlinks(exe); err == nil && !seen[real] && !within(dir, exe) && !within(dir, real) {
			seen[real] = true
			list = append(list, chosen{exe: exe, source: source})
		}
	}
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		add(filepath.Join(v, "bin", "python3"), "VIRTUAL_ENV")
	}
	names := []string{"python3"}
	for minor := newest; minor >= python.MinVersion.Minor; minor-- {
		names = append(names, fmt.Sprintf("python3.%d", minor))
	}
	for _, name := range names {
		if exe, err := exec.LookPath(name); err == nil {
			add(exe, "PATH")
		}
	}
	return list
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// suitable returns the real interpreter behind exe when the library can embed
// it, the pinned packages exist for it, and it can make environments.
func suitable(ctx context.Context, exe string) (string, error) {
	env, err := python.Inspect(exe)
	if err != nil {
		return "", err
	}
	if env.Version.Minor > newest || env.Version.Major != 3 {
		return "", fmt.Errorf("it is Python %s, and the pinned packages have wheels for 3.%d to 3.%d only",
			env.Version, python.MinVersion.Minor, newest)
	}
	probe := exec.CommandContext(ctx, env.Executable, "-I", "-c", "import venv, ensurepip, ctypes")
	if out, err := probe.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it cannot make virtual environments: %s (Debian, Ubuntu: apt install python3-venv)", lastLine(out))
	}
	return env.Executable, nil
}

// fetchPython lays out the Python of the embedpython module below dir/base.
func fetchPython(ctx context.Context, root, dir string) (chosen, error) {
	say("no usable Python found; fetching CPython 3.%d as a Go module (80 MB, once)", newest)
	module, err := filepath.Abs(filepath.Join(root, "interop", "embedpython"))
	if err != nil {
		return chosen{}, err
	}
	base := filepath.Join(dir, "base")
	cmd := exec.CommandContext(ctx, "go", "run", ".", base)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr tail
	cmd.Stderr = &stderr
	stop := heartbeat("fetching Python")
	out, err := cmd.Output()
	stop()
	if err != nil {
		return chosen{}, fmt.Errorf("fetching Python failed (%w):\n%s\n%s\nOr install Python 3.%d or newer with its shared library and venv, "+
			"or name one in %s", err, stderr.String(), networkHint(stderr.String()), python.MinVersion.Minor, python.EnvVar)
	}
	var at struct{ Python, Pip string }
	if err := json.Unmarshal(out, &at); err != nil {
		return chosen{}, fmt.Errorf("embedpython answered %q: %w", out, err)
	}
	return chosen{exe: at.Python, pip: at.Pip, source: "the Go module go-embed-python"}, nil
}
