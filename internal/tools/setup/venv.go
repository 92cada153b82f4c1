package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/interop/python"
)

// stampName is the file in the environment that says what set-up has done.
const stampName = "usmbridge.json"

// stamp is the content of stampName, written when set-up has finished.
type stamp struct {
	Set    string            `json:"set"`    // the last set installed
	Hashes map[string]string `json:"hashes"` // set -> hash of its requirements
	Python string            `json:"python"` // version of the environment's Python
	// Verified reports that pip verified the hash of each package of the sets in Hashes. Stamps
	// from before packages were pinned by hash lack it.
	Verified bool `json:"verified"`
}

// venv is the environment's directory.
type venv struct {
	dir string // absolute
	pip string // directory of a pip to copy in, or ""
}

// openVenv names the directory; it need not exist.
func openVenv(dir string) (*venv, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(abs); err == nil && !st.IsDir() {
		return nil, fmt.Errorf("%s is a file; the environment needs that name for its directory", abs)
	}
	return &venv{dir: abs}, nil
}

func (v *venv) python() string { return filepath.Join(v.dir, "bin", "python") }

// version runs the environment's Python: "3.11.7".
func (v *venv) version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, v.python(), "-I", "-S", "-c",
		"import sys; print('%d.%d.%d' % sys.version_info[:3])").Output()
	return strings.TrimSpace(string(out)), err
}

func (v *venv) readStamp() (stamp, bool) {
	var s stamp
	text, err := os.ReadFile(filepath.Join(v.dir, stampName))
	if err != nil || json.Unmarshal(text, &s) != nil {
		return stamp{}, false
	}
	return s, true
}

// current tells whether the set is installed: the stamp names its hash (or
// that of a set which includes it), and the Python still runs and is the same.
func (v *venv) current(ctx context.Context, want packageSet) bool {
	s, ok := v.readStamp()
	if !ok || s.Hashes[want.name] != want.hash {
		return false
	}
	version, err := v.version(ctx)
	return err == nil && version == s.Python
}

// ensure makes the environment unless a usable one is there. One that set-up
// made, or left unfinished, it makes anew; somebody else's it leaves alone.
func (v *venv) ensure(ctx context.Context, root string) error {
	if _, err := os.Stat(v.python()); err == nil {
		if _, err := python.Inspect(v.python()); err == nil {
			return v.ensurePip(ctx, root)
		} else if ctx.Err() != nil {
			return ctx.Err()
		} else if _, ours := v.readStamp(); !ours {
			return fmt.Errorf("the environment in %s cannot be used: %w\nRemove it (make clean) and try again", v.dir, err)
		}
		say("the Python behind %s is gone or unusable; making the environment anew", v.dir)
		if err := os.RemoveAll(v.dir); err != nil {
			return fmt.Errorf("removing the old environment: %w", err)
		}
	}
	py, err := choosePython(ctx, root, v.dir)
	if err != nil {
		return err
	}
	v.pip = py.pip
	say("making %s with %s (from %s)", v.dir, py.exe, py.source)
	args := []string{"-m", "venv", v.dir}
	if py.pip != "" {
		args = []string{"-m", "venv", "--without-pip", v.dir}
	}
	cmd := exec.CommandContext(ctx, py.exe, args...)
	cmd.Env = cleanPythonEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", py.exe, strings.Join(args, " "), err, lastLine(out))
	}
	return v.ensurePip(ctx, root)
}

// ensurePip gives the environment a pip: its own, ensurepip's, or a copy of
// the one that came with the fetched Python (which has no ensurepip).
func (v *venv) ensurePip(ctx context.Context, root string) error {
	if v.run(ctx, "-m", "pip", "--version") == nil {
		return nil
	}
	if v.run(ctx, "-m", "ensurepip") == nil {
		return nil
	}
	if v.pip == "" {
		at, err := fetchPython(ctx, root, v.dir)
		if err != nil {
			return err
		}
		v.pip = at.pip
	}
	env, err := python.Inspect(v.python())
	if err != nil {
		return err
	}
	if err := copyPackage(env.SitePackages, v.pip); err != nil {
		return fmt.Errorf("installing pip: %w", err)
	}
	return v.run(ctx, "-m", "pip", "--version")
}

// copyPackage copies pip and its metadata; both are plain files.
func copyPackage(site, from string) error {
	names, err := filepath.Glob(filepath.Join(from, "pip*"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("no pip in " + from)
	}
	for _, name := range names {
		to := filepath.Join(site, filepath.Base(name))
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.CopyFS(to, os.DirFS(name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// run runs the environment's Python and reports a failure with its last line.
func (v *venv) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, v.python(), args...)
	cmd.Env = cleanPythonEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("python %s: %w: %s", strings.Join(args, " "), err, lastLine(out))
	}
	return nil
}

// cleanPythonEnv is the process environment without what would lead Python to
// another installation's files.
func cleanPythonEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER",
			"PIP_REQUIRE_VIRTUALENV":
		default:
			env = append(env, e)
		}
	}
	return env
}
