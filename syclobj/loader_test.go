package syclobj_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// opening is the result of a process that opened SYCL in an artificial environment.
type opening struct {
	Path, Source, Version, Drivers string
	Queues                         string // Library.CPUQueues
	Attempts                       []string
	Error                          string
	NoSYCL                         bool
	Symbol                         string
	ICD                            string // OCL_ICD_FILENAMES afterwards
	Second                         string // error of opening again with EnvSecond
}

const (
	envOpening = "USMBRIDGE_TEST_OPENING" // set in a process that calls report
	envOption  = "USMBRIDGE_TEST_OPTION"  // the path for WithLibrary
	envSecond  = "USMBRIDGE_TEST_SECOND"  // the path of a second Open
	envTimeout = "USMBRIDGE_TEST_TIMEOUT" // a duration for OpenContext
	envPython  = "USMBRIDGE_TEST_PYTHON"  // a duration for python3
)

// attemptLine formats an attempt for comparison.
func attemptLine(a syclobj.Attempt) string {
	switch {
	case a.Err == nil:
		return fmt.Sprintf("%s: %s: taken", a.Source, a.Path)
	case a.Path == "":
		return fmt.Sprintf("%s: %v", a.Source, a.Err)
	}
	return fmt.Sprintf("%s: %s: %v", a.Source, a.Path, a.Err)
}

// report runs in the processes that openIn starts, instead of tests.
func report(file string) error {
	var opts []syclobj.Option
	if path := os.Getenv(envOption); path != "" {
		opts = append(opts, syclobj.WithLibrary(path))
	}
	ctx, cancel := context.WithCancel(context.Background())
	if timeout, err := time.ParseDuration(os.Getenv(envTimeout)); err == nil {
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	if timeout, err := time.ParseDuration(os.Getenv(envPython)); err == nil {
		syclobj.SetPythonTimeouts(timeout)
	}
	rt, err := syclobj.OpenContext(ctx, opts...)
	o := opening{}
	if err == nil {
		defer rt.Close()
		if lib := rt.Library(); lib != nil {
			o.Path, o.Source, o.Version, o.Drivers = lib.Path, lib.Source, lib.DPCTLVersion, lib.OpenCLDrivers
			o.Queues = lib.CPUQueues
		}
		for _, a := range rt.Attempts() {
			o.Attempts = append(o.Attempts, attemptLine(a))
		}
		err = rt.SYCLError()
	}
	if err != nil {
		o.Error, o.NoSYCL = err.Error(), errors.Is(err, syclobj.ErrNoSYCL)
		var le *syclobj.LibraryError
		if errors.As(err, &le) {
			o.Symbol = le.Symbol
		}
	}
	if second := os.Getenv(envSecond); second != "" {
		if again, err := syclobj.Open(syclobj.WithLibrary(second)); err != nil {
			o.Second = err.Error()
		} else {
			o.Second = again.Library().Source
			defer again.Close()
		}
	}
	o.ICD = os.Getenv("OCL_ICD_FILENAMES")
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// openIn starts a process with this environment and no other SYCL settings.
func openIn(t *testing.T, env ...string) opening {
	t.Helper()
	return openFrom(t, "", env...)
}

// openFrom is openIn with a working directory, unless it is empty.
func openFrom(t *testing.T, dir string, env ...string) opening {
	t.Helper()
	file := filepath.Join(t.TempDir(), "opening.json")
	// A process that blocks must be reported as a failure.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	self := testenv.Must(os.Executable())(t)
	cmd := exec.CommandContext(ctx, self)
	cmd.Dir = dir
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "VIRTUAL_ENV", "PATH", syclobj.EnvLibrary, "LD_LIBRARY_PATH", "OCL_ICD_FILENAMES", "OCL_ICD_VENDORS":
		default:
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(append(cmd.Env, envOpening+"="+file, "PATH=/nonexistent", "GORACE=atexit_sleep_ms=0",
		"ASAN_OPTIONS=verify_asan_link_order=0"), env...) // for those that preload
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(file)
	require.NoError(t, err, "%s", out)
	var o opening
	require.NoError(t, json.Unmarshal(text, &o))
	return o
}

// install installs the fake library in pip's layout, with a version.
func install(t *testing.T, root, version string) string {
	t.Helper()
	site := filepath.Join(root, "lib", "python3.11", "site-packages")
	require.NoError(t, os.MkdirAll(filepath.Join(site, "dpctl"), 0o755))
	if version != "" {
		info := filepath.Join(site, "dpctl-"+version+".dist-info")
		require.NoError(t, os.MkdirAll(info, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(info, "METADATA"), []byte("Name: dpctl\nVersion: "+version+"\n"), 0o600))
	}
	path := filepath.Join(site, "dpctl", "libDPCTLSyclInterface.so")
	copyFile(t, sycltest.Library(t), path)
	return path
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.WriteFile(to, testenv.Must(os.ReadFile(from))(t), 0o700))
}

// python writes a python3 that prints these lines as its search path.
func python(t *testing.T, dir string, lines ...string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	script := "#!/bin/sh\n" + strings.Join(lines, "\n") + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o700))
	return dir
}

// where is a case of a search: the environment and the result. Fields of the result that are empty are not compared.
type where struct {
	name     string
	env      []string
	want     opening  // Error and Second are parts of the texts
	attempts []string // parts of the texts of all attempts
}

func (c *where) check(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		o := openIn(t, c.env...)
		require.Equal(t, c.want.Path, o.Path)
		require.Equal(t, c.want.Path == "", o.NoSYCL)
		require.Equal(t, c.want.Symbol, o.Symbol)
		if c.want.Source != "" {
			require.Equal(t, []string{c.want.Source, c.want.Version}, []string{o.Source, o.Version})
		}
		require.Contains(t, o.Error, c.want.Error)
		require.Contains(t, o.Second, c.want.Second)
		if c.attempts != nil {
			require.Len(t, o.Attempts, len(c.attempts))
			for i, text := range c.attempts {
				require.Contains(t, o.Attempts[i], text)
			}
		}
	})
}

func TestSearchOrder(t *testing.T) {
	sycltest.Library(t)
	env, other, bare := t.TempDir(), t.TempDir(), t.TempDir()
	inEnv, inOther, inBare := install(t, env, "0.22.1"), install(t, other, "0.17.0"), install(t, bare, "")
	require.NoError(t, os.WriteFile(filepath.Join(bare, "pyvenv.cfg"), nil, 0o600))
	pythonThat := func(line string) string { return "PATH=" + python(t, t.TempDir(), line) }
	bin := pythonThat("echo '" + filepath.Dir(filepath.Dir(inOther)) + "'")
	const option, variable, venv, loader = envOption + "=", syclobj.EnvLibrary + "=", "VIRTUAL_ENV=", "LD_LIBRARY_PATH="
	found := func(path, source, version string) opening {
		return opening{Path: path, Source: source, Version: version}
	}
	for _, c := range []where{
		{"option first", []string{option + inOther, variable + inEnv, venv + env}, found(inOther, "option", "0.17.0"), nil},
		{"option before off", []string{option + inOther, variable + "off"}, found(inOther, "option", "0.17.0"), nil},
		{"a directory stands for the library in it", []string{option + filepath.Dir(inOther)}, found(inOther, "option", "0.17.0"), nil},
		{"variable", []string{variable + inOther, venv + env}, found(inOther, syclobj.EnvLibrary, "0.17.0"), nil},
		{"off", []string{variable + "off", venv + env}, opening{Error: "switched off"}, nil},
		{"virtual environment before PATH", []string{venv + env, bin}, found(inEnv, "VIRTUAL_ENV", "0.22.1"), []string{inEnv}},
		{"python3 on PATH, asked", []string{bin}, found(inOther, "python3 on PATH", "0.17.0"), []string{"VIRTUAL_ENV", inOther}},
		{"python3 of a virtual environment, not run", []string{"PATH=" + python(t, filepath.Join(bare, "bin"), "exit 3")}, found(inBare, "python3 on PATH", ""), nil},
		{"loader's path", []string{loader + filepath.Dir(inOther)}, found(inOther, "loader", "0.17.0"), nil},
		{"nowhere", nil, opening{Error: "pip install dpctl"}, []string{"VIRTUAL_ENV", "python3 on PATH", "loader: libDPCTLSyclInterface.so"}},
		{"a python3 that fails", []string{pythonThat("exit 3")}, opening{}, []string{"", "exit status 3", ""}},
		// The pipe is held by a child of python3 too, which is not killed. The search goes on behind it.
		{"a python3 that does not end", []string{envPython + "=100ms", pythonThat("/bin/sleep 20 & exec /bin/sleep 3600")}, opening{}, []string{"", "did not print its search path in time", ""}},
		{"a python3 without dpctl", []string{pythonThat("echo /nonexistent")}, opening{}, []string{"", "dpctl is not installed for it", ""}},
		{"the same file again", []string{option + inOther, envSecond + "=" + inOther}, opening{Path: inOther, Second: "option"}, nil},
		{"another file when one is loaded", []string{option + inOther, envSecond + "=" + inEnv}, opening{Path: inOther, Second: "the process has loaded " + inOther}, nil},
	} {
		c.check(t)
	}
	t.Run("not the working directory", func(t *testing.T) {
		dir := filepath.Dir(inOther)
		for _, path := range []string{".", ":/nonexistent", "/nonexistent:", "./."} {
			o := openFrom(t, dir, "LD_LIBRARY_PATH="+path)
			require.True(t, o.NoSYCL, "LD_LIBRARY_PATH=%s: %s", path, o.Path)
			require.Contains(t, o.Attempts[len(o.Attempts)-1], "working directory")
		}
		o := openFrom(t, dir, "LD_LIBRARY_PATH=:"+dir)
		require.Equal(t, inOther, o.Path, "where it is named in full")
		o = openFrom(t, filepath.Dir(dir), "PATH=.")
		require.True(t, o.NoSYCL)

		// Python takes an empty part of PYTHONPATH for the working directory, and names that in full.
		bin := python(t, t.TempDir(), `IFS=:; for p in $PYTHONPATH; do echo "${p:-$PWD}"; done; echo relative`)
		for _, path := range []string{":/nonexistent", ".:/nonexistent", "lib"} {
			o = openFrom(t, filepath.Dir(dir), "PATH="+bin, "PYTHONPATH="+path)
			require.True(t, o.NoSYCL, "PYTHONPATH=%s: %s", path, o.Path)
		}
		o = openFrom(t, filepath.Dir(dir), "PATH="+bin, "PYTHONPATH=:"+filepath.Dir(dir))
		require.Equal(t, inOther, o.Path)

		// A name without a slash is left to the dynamic loader, even if a directory has that name.
		named := t.TempDir()
		require.NoError(t, os.Rename(filepath.Dir(install(t, named, "")), filepath.Join(named, "libDPCTLSyclInterface.so")))
		o = openFrom(t, named, syclobj.EnvLibrary+"=libDPCTLSyclInterface.so")
		require.True(t, o.NoSYCL, o.Path)
		o = openFrom(t, named, syclobj.EnvLibrary+"=./libDPCTLSyclInterface.so")
		require.False(t, o.NoSYCL, o.Error)
	})
	t.Run("no driver of the working directory", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "libintelocl.so"), nil, 0o600))
		t.Chdir(dir)
		for _, name := range []string{"OCL_ICD_FILENAMES", "OCL_ICD_VENDORS"} {
			t.Setenv(name, "")
		}
		for _, where := range []string{"", ".", "../" + filepath.Base(dir)} {
			require.Empty(t, os.Getenv("OCL_ICD_FILENAMES"), "%q: %s", where, testenv.Must(syclobj.ConfigureOpenCL(where))(t))
		}
	})
	t.Run("a context that ends", func(t *testing.T) {
		o := openIn(t, envTimeout+"=10ms", "PATH="+python(t, t.TempDir(), "exec /bin/sleep 3600"))
		require.Equal(t, "syclobj: OpenContext: the search for the SYCL library: context deadline exceeded", o.Error)
		require.Empty(t, o.Attempts)
		o = openIn(t, envTimeout+"=10ms", "LD_LIBRARY_PATH="+filepath.Dir(inOther), "PATH="+python(t, t.TempDir(), "exec /bin/sleep 3600"))
		require.Contains(t, o.Error, "deadline exceeded", "%s was loaded instead", o.Path)
		o = openIn(t, envTimeout+"=1ns", envOption+"="+inOther, bin)
		require.Equal(t, inOther, o.Path, "nothing is searched for")
	})
}

func TestBadLibraries(t *testing.T) {
	lib := sycltest.Library(t)
	text, partial := filepath.Join(t.TempDir(), "text.so"), filepath.Join(t.TempDir(), "partial.so")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o600))
	copyFile(t, compile(t, "libDPCTLSyclInterface.so", "const char *DPCTLService_GetDPCPPVersion(void) { return 0; }\nvoid DPCTLCString_Delete(const char *s) { (void)s; }\n"), partial)
	for _, c := range []struct {
		name, path, symbol string
		want               []string
	}{
		{"missing", filepath.Join(t.TempDir(), "none.so"), "", []string{"none.so", "no such file", "pip install dpctl"}},
		{"a function is missing", partial, "DPCTLDeviceMgr_GetDevices", []string{partial, "has no function DPCTLDeviceMgr_GetDevices", "pip install --upgrade"}},
		{"too old", install(t, t.TempDir(), "0.16.2"), "", []string{"too old: dpctl 0.17", "0.16.2", "pip install --upgrade"}},
	} {
		for _, how := range []string{envOption, syclobj.EnvLibrary} {
			t.Run(c.name+" by "+how, func(t *testing.T) {
				o := openIn(t, how+"="+c.path)
				require.True(t, o.NoSYCL)
				require.Equal(t, c.symbol, o.Symbol)
				for _, w := range c.want {
					require.Contains(t, o.Error, w)
				}
			})
		}
	}
	environment := func(version string, content string) string {
		root := t.TempDir()
		if path := install(t, root, version); content != "" {
			copyFile(t, content, path)
		}
		return "VIRTUAL_ENV=" + root
	}
	behind, second := "LD_LIBRARY_PATH="+filepath.Dir(lib), envSecond+"="+lib
	for _, c := range []where{
		{"a broken library is in the error", []string{environment("0.16.2", "")}, opening{Error: "too old"}, nil},
		{"a library that cannot be loaded is in the error", []string{environment("", text)}, opening{Error: "of its 10 bytes the ELF headers cannot be read"}, nil},
		{"a valid library after a broken one", []string{environment("0.15.0", ""), behind}, opening{Path: lib}, nil},
		// A file that lacks functions is unloaded: it does not become the process's instance.
		{"a valid library after a partial one", []string{environment("", partial), behind, second}, opening{Path: lib, Second: "loader"}, nil},
		{"a good one can still be loaded", []string{environment("", partial), second}, opening{Error: "has no function", Second: "option", Symbol: "DPCTLDeviceMgr_GetDevices"}, nil},
	} {
		c.check(t)
	}
}

// compile builds a shared library of this name from C.
func compile(t *testing.T, name, source string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "source.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	path := filepath.Join(dir, name)
	out, err := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", path, file}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// TestNeededLibraries: direct and indirect dependencies without a directory are found in lib of the
// library's environment.
func TestNeededLibraries(t *testing.T) {
	root := t.TempDir()
	path := install(t, root, "0.17.0")
	lib := filepath.Join(root, "lib")
	far := compile(t, "libfar.so", "int far;", "-Wl,-soname,libfar.so", "-Wl,--no-as-needed", sycltest.Library(t))
	copyFile(t, far, filepath.Join(lib, "libfar.so"))
	near := compile(t, "libnear.so", "int near;", "-Wl,-soname,libnear.so", "-Wl,--no-as-needed", "-L"+lib, "-lfar")
	copyFile(t, near, filepath.Join(lib, "libnear.so"))
	thin := compile(t, "libDPCTLSyclInterface.so", "int thin;", "-Wl,--no-as-needed", "-L"+lib, "-lnear", "-Wl,--allow-shlib-undefined")
	copyFile(t, thin, path)
	o := openIn(t, "VIRTUAL_ENV="+root)
	require.Empty(t, o.Error)
	require.Equal(t, path, o.Path)

	require.NoError(t, os.Remove(filepath.Join(lib, "libfar.so")))
	o = openIn(t, "VIRTUAL_ENV="+root)
	require.Contains(t, o.Error, "libfar.so: cannot open shared object file")
	require.Contains(t, o.Error, path)
}

// TestNeededLibrariesElsewhere: outside an environment no dependencies are loaded from the third directory
// above the library.
func TestNeededLibrariesElsewhere(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "c")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	near := compile(t, "libnear.so", "int near;", "-Wl,-soname,libnear.so", "-Wl,--no-as-needed", sycltest.Library(t))
	copyFile(t, near, filepath.Join(root, "libnear.so"))
	thin := compile(t, "libDPCTLSyclInterface.so", "int thin;", "-Wl,--no-as-needed", "-L"+root, "-lnear", "-Wl,--allow-shlib-undefined")
	copyFile(t, thin, filepath.Join(dir, "libDPCTLSyclInterface.so"))
	o := openIn(t, envOption+"="+filepath.Join(dir, "libDPCTLSyclInterface.so"))
	require.Empty(t, o.Path)
	require.Contains(t, o.Error, "libnear.so: cannot open shared object file")
}

// TestOpenCLDriver: a driver in the directory of libsycl becomes visible if nothing else is configured.
func TestOpenCLDriver(t *testing.T) {
	if found, err := filepath.Glob("/etc/OpenCL/vendors/*.icd"); err == nil && len(found) > 0 {
		t.Skipf("this machine configures OpenCL drivers: %v", found)
	}
	lib := sycltest.Library(t)
	sycl := compile(t, "libsycl.so.8", "int nothing;", "-Wl,-soname,libsycl.so.8")
	dir := filepath.Dir(sycl)
	// A process that holds a libsycl, as one that loaded the real library does.
	open := func(env ...string) opening {
		return openIn(t, append([]string{envOption + "=" + lib, "LD_PRELOAD=" + sycl}, env...)...)
	}
	t.Run("no driver", func(t *testing.T) {
		o := open()
		require.Contains(t, o.Drivers, "no libintelocl.so in "+dir)
		require.Contains(t, o.Drivers, "pip install intel-opencl-rt")
		require.Empty(t, o.ICD)
	})
	driver := filepath.Join(dir, "libintelocl.so")
	require.NoError(t, os.WriteFile(driver, nil, 0o600))
	t.Run("beside libsycl", func(t *testing.T) {
		o := open()
		require.Equal(t, driver, o.ICD)
		require.Contains(t, o.Drivers, "set here")
	})
	for _, name := range []string{"OCL_ICD_FILENAMES", "OCL_ICD_VENDORS"} {
		t.Run(name, func(t *testing.T) {
			o := open(name + "=/elsewhere")
			require.Equal(t, name+"=/elsewhere", o.Drivers)
			require.NotEqual(t, driver, o.ICD)
		})
	}
	t.Run("no libsycl", func(t *testing.T) {
		require.Equal(t, "none configured", openIn(t, envOption+"="+lib).Drivers)
	})
}

// TestAdoption: an instance that other code loaded is used.
func TestAdoption(t *testing.T) {
	lib := sycltest.Library(t)
	o := openIn(t, "LD_PRELOAD="+lib)
	require.Equal(t, "already loaded", o.Source)
	require.Equal(t, lib, o.Path)
	o = openIn(t, "LD_PRELOAD="+lib, syclobj.EnvLibrary+"="+lib)
	require.Equal(t, "already loaded", o.Source, "the same file asked for")
	copied := filepath.Join(t.TempDir(), "libDPCTLSyclInterface.so")
	copyFile(t, lib, copied)
	o = openIn(t, "LD_PRELOAD="+lib, syclobj.EnvLibrary+"="+copied)
	require.True(t, o.NoSYCL)
	require.Contains(t, o.Error, "can have one only")
	require.Contains(t, o.Error, fmt.Sprintf("%s requests this file", syclobj.EnvLibrary))
	o = openIn(t, "LD_PRELOAD="+lib, syclobj.EnvLibrary+"=off")
	require.Contains(t, o.Error, "switched off")
}
