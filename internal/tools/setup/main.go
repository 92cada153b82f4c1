// Command setup makes a Python environment with packages that are pinned by version and hash. Run it in the root
// of the repository.
//
//	go run ./internal/tools/setup [-dir .venv] run|test|wheel
//
// "run" installs requirements-run.txt, which the main job needs. "test" also installs requirements-test.txt. "wheel"
// installs requirements-wheel.txt only. If the packages are installed already, the program checks this in a few
// milliseconds and prints nothing.
//
// The environment uses USMBRIDGE_PYTHON, or the first suitable interpreter of python3, python3.14, ... python3.11
// on PATH. Suitable are CPython 3.11 to 3.14 with a shared libpython. Without one, set-up uses the CPython
// 3.14 of a Go module (interop/embedpython).
package main

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/usmbridge/usmbridge/interop/python"
)

// newest is the last minor version of Python for which the pinned packages have wheels.
const newest = 14

// sets has the sets of packages. Each lists itself and, before it, the sets whose requirements files
// requirements-SET.txt includes.
var sets = map[string][]string{"run": {"run"}, "test": {"run", "test"}, "wheel": {"wheel"}}

func main() {
	dir := flag.String("dir", ".venv", "the `directory` of the environment")
	flag.Parse()
	if flag.NArg() != 1 || sets[flag.Arg(0)] == nil {
		fmt.Fprintln(os.Stderr, "usage: setup [-dir .venv] run|test|wheel")
		os.Exit(2)
	}
	path, err := filepath.Abs(*dir)
	if err == nil {
		err = setUp(&venv{dir: path, out: os.Stdout}, filepath.Join("internal", "tools", "setup"), flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}

// setUp installs the packages of a set, whose requirements files are in the directory lists, unless v has them.
func setUp(v *venv, lists, set string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("SYCL and an embedded Python need Linux, and this is %s; "+
			"`go run ./examples/quickstart` works on every system", runtime.GOOS)
	}
	hashes, err := hashesOf(lists, set)
	if err != nil {
		return err
	}
	if v.installed()[set] == hashes[set] && v.hasPip() {
		return nil
	}
	if err := v.create(); err != nil {
		return err
	}
	list := filepath.Join(lists, "requirements-"+set+".txt")
	v.say("installing the packages of %s into %s", list, v.dir)
	if err := v.install(list); err != nil {
		return err
	}
	text, err := json.Marshal(hashes)
	if err != nil {
		return err
	}
	return os.WriteFile(v.stampFile(), text, 0o644)
}

// hashesOf returns a hash for the set, and for each set that it includes, of the requirements files.
func hashesOf(lists, set string) (map[string]string, error) {
	hashes := map[string]string{}
	sum := sha256.New()
	for _, name := range sets[set] {
		text, err := os.ReadFile(filepath.Join(lists, "requirements-"+name+".txt"))
		if err != nil {
			return nil, fmt.Errorf("reading the list of packages: %w; run set-up in the root of the repository", err)
		}
		sum.Write(text)
		hashes[name] = fmt.Sprintf("%x", sum.Sum(nil))
	}
	return hashes, nil
}

// venv is a virtual environment.
type venv struct {
	dir     string    // absolute
	out     io.Writer // receives progress and pip's output
	fetched embedded  // the result of fetch
}

func (v *venv) say(format string, args ...any) {
	fmt.Fprintf(v.out, "setup: "+format+"\n", args...)
}

func (v *venv) python() string    { return filepath.Join(v.dir, "bin", "python") }
func (v *venv) stampFile() string { return filepath.Join(v.dir, "usmbridge.json") }

// installed returns the hashes of the installed sets, or nil if the environment has no stamp.
func (v *venv) installed() (hashes map[string]string) {
	text, _ := os.ReadFile(v.stampFile())
	_ = json.Unmarshal(text, &hashes)
	return hashes
}

// hasPip reports whether the interpreter of the environment runs and finds pip. After a change of the
// system's Python to another minor version it does not.
func (v *venv) hasPip() bool {
	return v.run(io.Discard, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('pip'))") == nil
}

// run runs the interpreter of the environment. -I ignores PYTHONPATH and other variables for Python.
func (v *venv) run(out io.Writer, args ...string) error {
	cmd := exec.Command(v.python(), append([]string{"-I"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}

// create makes the environment with pip, if there is none that can be used. It replaces an environment only
// if it has the stamp.
func (v *venv) create() error {
	_, unusable := python.Inspect(v.python())
	if unusable != nil {
		if v.installed() != nil {
			v.say("the Python of %s cannot be used any more; making the environment again", v.dir)
			if err := os.RemoveAll(v.dir); err != nil {
				return err
			}
		} else if _, err := os.Lstat(v.python()); err == nil {
			return fmt.Errorf("the environment in %s cannot be used: %w; remove it (make clean) and try again", v.dir, unusable)
		}
		exe, err := v.choose()
		if err != nil {
			return err
		}
		v.say("making %s with %s", v.dir, exe)
		if out, err := exec.Command(exe, "-I", "-m", "venv", "--without-pip", v.dir).CombinedOutput(); err != nil {
			return fmt.Errorf("%s -m venv %s: %w: %s", exe, v.dir, err, out)
		}
	}
	if v.hasPip() || v.run(io.Discard, "-m", "ensurepip") == nil {
		return nil
	}
	return v.usePip()
}

// choose returns the interpreter for a new environment.
func (v *venv) choose() (string, error) {
	if named := os.Getenv(python.EnvVar); named != "" {
		exe, err := suitable(named)
		if err != nil {
			return "", fmt.Errorf("%s names an unsuitable Python: %w", python.EnvVar, err)
		}
		return exe, nil
	}
	names := []string{"python3"}
	for minor := newest; minor >= python.MinVersion.Minor; minor-- {
		names = append(names, fmt.Sprintf("python3.%d", minor))
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		exe, err := suitable(path)
		if err == nil {
			return exe, nil
		}
		v.say("not using %s: %s", path, strings.TrimPrefix(err.Error(), "python: "))
	}
	found, err := v.fetch()
	return found.Python, err
}

// suitable returns the path of the interpreter that exe runs, if usmbridge can embed it, the pinned packages
// have wheels for it, and it has the modules that set-up and the packages need.
func suitable(exe string) (string, error) {
	env, err := python.Inspect(exe)
	if err != nil {
		return "", err
	}
	if env.Version.Major != 3 || env.Version.Minor > newest {
		return "", fmt.Errorf("it is Python %s; the pinned packages have wheels for 3.%d to 3.%d only",
			env.Version, python.MinVersion.Minor, newest)
	}
	if out, err := exec.Command(env.Executable, "-I", "-c", "import ctypes, ssl, venv").CombinedOutput(); err != nil {
		return "", fmt.Errorf("it cannot make environments: %w: %s", err, out)
	}
	return env.Executable, nil
}

// embedded is the answer of interop/embedpython.
type embedded struct{ Python, Pip string }

// fetch writes the Python of a Go module, and a pip for it, into the directory base of the environment.
func (v *venv) fetch() (embedded, error) {
	if v.fetched.Pip != "" {
		return v.fetched, nil
	}
	v.say("fetching CPython 3.%d and pip as a Go module (80 MB, once)", newest)
	cmd := exec.Command("go", "run", ".", filepath.Join(v.dir, "base"))
	cmd.Dir = filepath.Join("interop", "embedpython")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = v.out
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &v.fetched)
	}
	if err != nil {
		return embedded{}, fmt.Errorf("fetching Python: %w; check the network and GOPROXY, or install Python 3.%d or newer with "+
			"its shared library", err, python.MinVersion.Minor)
	}
	return v.fetched, nil
}

// usePip adds the pip of the Go module to the environment, for a Python without ensurepip: the Python of that
// module, and those of some distributions.
func (v *venv) usePip() error {
	env, err := python.Inspect(v.python())
	if err != nil {
		return err
	}
	found, err := v.fetch()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.SitePackages, "pip.pth"), []byte(found.Pip+"\n"), 0o644)
}

// install installs the packages of a requirements file. pip refuses each file whose hash is not in the list.
func (v *venv) install(list string) error {
	err := v.run(v.out, "-m", "pip", "install", "--require-hashes", "--no-deps", "--only-binary=:all:", "--no-input",
		"--disable-pip-version-check", "--requirement", list)
	if err != nil {
		return fmt.Errorf("pip install: %w, see above; set-up downloads from PyPI, and the tests need 4 GB of disk: "+
			"check the network, the disk, and pip's configuration (PIP_INDEX_URL, HTTPS_PROXY)", err)
	}
	if err := v.run(v.out, "-m", "pip", "check"); err != nil {
		return fmt.Errorf("pip check: the installed packages do not fit together: %w", err)
	}
	return nil
}
