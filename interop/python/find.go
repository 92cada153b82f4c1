package python

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/internal/childenv"
)

// EnvVar is the environment variable that selects the interpreter. Its value is the
// path of a python3 or of an environment's directory, the name of a program on PATH,
// or "off".
const EnvVar = "USMBRIDGE_PYTHON"

// queryTimeout bounds one run of a candidate interpreter.
const queryTimeout = 30 * time.Second

//go:embed query.py
var queryProgram string

// Environment describes one Python installation or virtual environment.
type Environment struct {
	Executable   string  // sys.executable: the environment's own python
	Version      Version // of the interpreter
	Library      string  // libpython to load; empty when the process is Python already
	Prefix       string  // sys.prefix, the environment
	BasePrefix   string  // sys.base_prefix, the installation of a virtual environment
	SitePackages string  // the directory of its packages (sysconfig's purelib)
	Source       string  // "USMBRIDGE_PYTHON", "VIRTUAL_ENV", "PATH", "process", or "" from Inspect
	Soname       string  // INSTSONAME, the file name of the library according to the build
}

// Version is a CPython release number, the first three parts of sys.version_info.
type Version struct {
	Major, Minor, Micro int
}

// MinVersion is the oldest supported CPython, the first with the buffer protocol in its
// stable ABI.
var MinVersion = Version{3, 11, 0}

// String returns the version as "3.11.7".
func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
}

// less reports whether v is older than w.
func (v Version) less(w Version) bool {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Micro, w.Micro)) < 0
}

// versionFromHex decodes CPython's Py_Version: 0x030b07f0 is 3.11.7 final.
func versionFromHex(x uint32) Version {
	return Version{int(x >> 24), int(x >> 16 & 0xff), int(x >> 8 & 0xff)}
}

// answer is the output of query.py.
type answer struct {
	Executable     string   `json:"executable"`
	Version        [3]int   `json:"version"`
	Implementation string   `json:"implementation"`
	Prefix         string   `json:"prefix"`
	BasePrefix     string   `json:"base_prefix"`
	SitePackages   string   `json:"purelib"`
	Soname         string   `json:"instsoname"`
	FreeThreaded   bool     `json:"free_threaded"`
	Mapped         []string `json:"mapped"`
	Libraries      []string `json:"libraries"`
}

// Find returns a Python that can be embedded. It tries USMBRIDGE_PYTHON, the active
// virtual environment (VIRTUAL_ENV) and each python3 on PATH, in this order. The first
// two are explicit choices: if one is set but unusable, Find returns an error and tries
// nothing else. Find runs each candidate once to read its version and its library. The
// error is a *NotFoundError, or errors.ErrUnsupported on systems other than Linux.
func Find() (*Environment, error) {
	env, tried, err := find()
	if err != nil {
		return nil, err
	}
	if env == nil {
		return nil, &NotFoundError{Tried: tried, Off: os.Getenv(EnvVar) == "off"}
	}
	return env, nil
}

// Attempts is Find that also returns every interpreter examined. The chosen one is the
// last and has a nil Err. The Environment is nil if none is usable.
func Attempts() (*Environment, []Attempt) {
	env, tried, err := find()
	if err != nil {
		return nil, []Attempt{{Source: runtime.GOOS, Err: err}}
	}
	return env, tried
}

func find() (*Environment, []Attempt, error) {
	if runtime.GOOS != "linux" {
		return nil, nil, fmt.Errorf("python: embedding on %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
	var tried []Attempt
	for _, c := range candidates() {
		env, err := inspect(c.Executable)
		if err == nil {
			env.Source = c.Source
		}
		tried = append(tried, Attempt{Source: c.Source, Executable: c.Executable, Err: err})
		if err == nil {
			return env, tried, nil
		}
	}
	return nil, tried, nil
}

// candidates lists the interpreters in the order of Find.
func candidates() []Attempt {
	switch v := os.Getenv(EnvVar); v {
	case "":
	case "off":
		return nil
	default:
		return []Attempt{{Source: EnvVar, Executable: executableOf(v)}}
	}
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		return []Attempt{{Source: "VIRTUAL_ENV", Executable: executableOf(v)}}
	}
	var list []Attempt
	seen := map[string]bool{}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		p := filepath.Join(dir, "python3")
		real, err := filepath.EvalSymlinks(p)
		if !filepath.IsAbs(p) || err != nil || seen[real] || !isExecutable(p) {
			continue
		}
		seen[real] = true
		list = append(list, Attempt{Source: "PATH", Executable: p})
	}
	return list
}

// executableOf returns the python of an environment's directory, and other paths as
// they are. Paths are made absolute. A name without a separator is a program on PATH,
// or a directory if there is no such program.
func executableOf(path string) string {
	if !strings.ContainsRune(path, filepath.Separator) {
		if _, err := exec.LookPath(path); err == nil {
			return path
		}
		if st, err := os.Stat(path); err != nil || !st.IsDir() {
			return path
		}
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		for _, name := range []string{"python3", "python"} {
			if p := filepath.Join(path, "bin", name); isExecutable(p) {
				return p
			}
		}
		return filepath.Join(path, "bin", "python3")
	}
	return path
}

func isExecutable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// Inspect runs one interpreter as Find does and returns its Environment. executable is
// a path, a name on PATH, or an environment's directory. The error is an *OpError, or
// errors.ErrUnsupported on systems other than Linux.
func Inspect(executable string) (*Environment, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("python: embedding on %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
	return inspect(executableOf(executable))
}

func inspect(executable string) (*Environment, error) {
	fail := func(path string, kind, err error, hint string) (*Environment, error) {
		return nil, &OpError{Op: "Inspect", Path: path, Kind: kind, Err: err, Hint: hint}
	}
	a, err := query(executable)
	if err != nil {
		return fail(executable, nil, err, "name a working Python 3.11 or newer in "+EnvVar)
	}
	v := Version{a.Version[0], a.Version[1], a.Version[2]}
	switch {
	case v.less(MinVersion):
		return fail(a.Executable, ErrTooOld, fmt.Errorf("it is %s, need %d.%d or newer", v, MinVersion.Major, MinVersion.Minor),
			"install a newer Python, or name one in "+EnvVar)
	case a.Implementation != "cpython":
		return fail(a.Executable, ErrNotCPython, fmt.Errorf("it is %s", a.Implementation), "install CPython 3.11 or newer")
	case a.FreeThreaded:
		return fail(a.Executable, ErrFreeThreaded, nil, fmt.Sprintf("use the ordinary build of Python %d.%d", v.Major, v.Minor))
	}
	lib := findLibrary(a)
	if lib == "" {
		return fail(a.Executable, ErrNoLibrary, nil, fmt.Sprintf("install it (Debian, Ubuntu: apt install libpython%d.%d; "+
			"Fedora: dnf install python3-libs; pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared), or name another Python in %s",
			v.Major, v.Minor, EnvVar))
	}
	return &Environment{
		Executable: a.Executable, Version: v, Library: lib, Prefix: a.Prefix,
		BasePrefix: a.BasePrefix, SitePackages: a.SitePackages, Soname: a.Soname,
	}, nil
}

// query runs query.py in the interpreter.
func query(executable string) (*answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, executable, "-c", queryProgram)
	cmd.Env = childenv.Absolute(os.Environ())
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("no answer in %v: %w", queryTimeout, ctx.Err())
		}
		if line := lastLine(stderr.String()); line != "" {
			return nil, fmt.Errorf("cannot be run: %w: %s", err, line)
		}
		return nil, fmt.Errorf("cannot be run: %w", err)
	}
	// Start-up files may print before the line of query.py.
	var a answer
	line := lastLine(stdout.String())
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return nil, fmt.Errorf("answered %q instead of its configuration: %w", line, err)
	}
	if a.Executable == "" {
		a.Executable = executable
	}
	return &a, nil
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// findLibrary returns the first existing file among the libraries that the interpreter
// had mapped, then among those that its build configuration names.
func findLibrary(a *answer) string {
	for _, p := range append(a.Mapped, a.Libraries...) {
		if st, err := os.Stat(p); filepath.IsAbs(p) && err == nil && st.Mode().IsRegular() {
			return p
		}
	}
	return ""
}
