package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

// fakePython writes a program that prints a configuration as query.py does.
func fakePython(t *testing.T, name, answer string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("embedding is for Linux")
	}
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+answer+"\n"), 0o755))
	return path
}

func TestFindRefusals(t *testing.T) {
	noLibrary := `echo '{"executable":"/x/python3","version":[3,11,2],"implementation":"cpython","base_prefix":"/usr",` +
		`"prefix":"/usr","libraries":["/nonexistent/libpython3.11.so.1.0"]}'`
	for _, c := range []struct {
		name, answer string
		reason       error
		says         string
	}{
		{"static", noLibrary, python.ErrNoLibrary, "apt install libpython3.11"},
		{"old", `echo '{"executable":"/x/python3","version":[3,10,13],"implementation":"cpython"}'`, python.ErrTooOld, "need 3.11"},
		{"ancient", `echo '{"executable":"/x/python3","version":[2,7,18],"implementation":"unknown"}'`, python.ErrTooOld, "2.7.18"},
		{"free threads", `echo '{"executable":"/x/python3","version":[3,13,1],"implementation":"cpython","free_threaded":true}'`,
			python.ErrFreeThreaded, "ordinary build of Python 3.13"},
		{"pypy", `echo '{"executable":"/x/pypy3","version":[3,11,9],"implementation":"pypy"}'`, python.ErrNotCPython, "pypy"},
		{"broken", `echo "bad interpreter" >&2; exit 3`, nil, "bad interpreter"},
		{"chatty", `echo hello`, nil, `answered "hello"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := fakePython(t, "python3", c.answer)
			_, err := python.Inspect(path)
			unusable := testenv.As[*python.OpError](t, err)
			require.ErrorContains(t, err, c.says)
			require.NotEmpty(t, unusable.Hint)
			if c.reason != nil {
				require.ErrorIs(t, err, c.reason)
			}

			t.Setenv(python.EnvVar, path)
			_, err = python.Find()
			none := testenv.As[*python.NotFoundError](t, err)
			testenv.Failed(t, err, python.ErrNotFound, c.says)
			require.Len(t, none.Tried, 1, "another Python was tried after an explicit choice")
			require.Equal(t, python.EnvVar, none.Tried[0].Source)
		})
	}
}

func TestFindOrder(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libpython3.12.so.1.0")
	require.NoError(t, os.WriteFile(lib, nil, 0o644))
	good := func(prefix string) string {
		return `echo "sitecustomize says hello"; echo '{"executable":"` + prefix + `/bin/python3","version":[3,12,4],"implementation":"cpython",` +
			`"prefix":"` + prefix + `","base_prefix":"/base","libraries":["/nonexistent","` + lib + `"]}'`
	}
	fromVar := fakePython(t, "python3", good("/var"))
	venv := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(venv, "bin"), 0o755))
	require.NoError(t, os.Rename(fakePython(t, "python3", good("/venv")), filepath.Join(venv, "bin", "python3")))
	tooOld := fakePython(t, "python3", `echo '{"version":[3,8,1],"implementation":"cpython"}'`)
	onPath := fakePython(t, "python3", good("/path"))
	path := os.Getenv("PATH")

	find := func() *python.Environment {
		env := testenv.Must(python.Find())(t)
		require.Equal(t, lib, env.Library)
		require.Equal(t, python.Version{Major: 3, Minor: 12, Micro: 4}, env.Version)
		return env
	}
	// The scripts use only built-in commands of the shell, so PATH needs no other directories.
	t.Setenv("PATH", filepath.Dir(tooOld)+":"+filepath.Dir(onPath))
	t.Setenv("VIRTUAL_ENV", venv)
	t.Setenv(python.EnvVar, fromVar)
	require.Equal(t, "/var", find().Prefix)
	t.Setenv(python.EnvVar, "")
	require.Equal(t, "/venv", find().Prefix)
	t.Setenv("VIRTUAL_ENV", "")
	env := find()
	require.Equal(t, "/path", env.Prefix)
	require.Equal(t, "PATH", env.Source)
	_, tried := python.Attempts()
	require.Len(t, tried, 2)
	require.ErrorIs(t, tried[0].Err, python.ErrTooOld)
	require.NoError(t, tried[1].Err)

	t.Setenv("PATH", t.TempDir())
	testenv.Failed(t, testenv.ErrorOf(python.Find()), python.ErrNotFound, "no python3 on PATH")
	t.Setenv(python.EnvVar, "off")
	require.ErrorContains(t, testenv.ErrorOf(python.Find()), `"off"`)
	t.Setenv("PATH", path)
}

func TestVersion(t *testing.T) {
	a, b := python.Version{Major: 3, Minor: 11, Micro: 7}, python.Version{Major: 3, Minor: 12}
	require.Equal(t, "3.11.7", a.String())
	require.True(t, python.Less(a, b))
	require.False(t, python.Less(b, a))
	require.False(t, python.Less(a, a))
	require.True(t, python.Less(a, python.Version{Major: 3, Minor: 11, Micro: 8}))
}

// TestFindNothingInTheWorkingDirectory checks that Find runs no interpreter and imports no
// module from the working directory unless a path names it.
func TestFindNothingInTheWorkingDirectory(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	here := t.TempDir()
	for _, module := range []string{"sitecustomize.py", "usercustomize.py", "json.py", "os.py", "sysconfig.py"} {
		require.NoError(t, os.WriteFile(filepath.Join(here, module), []byte("open("+strconv.Quote(ran)+", 'w')\n"), 0o644))
	}
	lib := filepath.Join(here, "libpython3.12.so.1.0")
	require.NoError(t, os.WriteFile(lib, nil, 0o644))
	answer := `echo '{"executable":"/x","version":[3,12,4],"implementation":"cpython","libraries":["libpython3.12.so.1.0","` + lib + `"]}'`
	require.NoError(t, os.MkdirAll(filepath.Join(here, "python3", "bin"), 0o755))
	require.NoError(t, os.Rename(fakePython(t, "python3", ": >'"+ran+"'; "+answer), filepath.Join(here, "python3", "bin", "python3")))
	pythons := pythons(t)
	t.Chdir(here)

	for i, env := range pythons {
		for k, path := range []string{".", "", ":/nonexistent", "/nonexistent:", "./."} {
			if i > 0 && k > 0 {
				break // Go removes the relative parts, for each Python alike
			}
			t.Setenv("PYTHONPATH", path)
			require.Equal(t, env.Library, testenv.Must(python.Inspect(env.Executable))(t).Library)
			require.NoFileExists(t, ran, "%s, PYTHONPATH=%s", env.Executable, path)
		}
	}
	t.Setenv("VIRTUAL_ENV", "")
	elsewhere := fakePython(t, "python3", answer)
	for _, c := range []struct{ variable, path string }{
		{"", ":.:python3/bin:" + filepath.Dir(elsewhere)},
		{"python3", filepath.Dir(elsewhere)}, // the program on PATH, not the directory
	} {
		t.Setenv(python.EnvVar, c.variable)
		t.Setenv("PATH", c.path)
		require.Equal(t, lib, testenv.Must(python.Find())(t).Library, "a relative path was used")
		require.NoFileExists(t, ran)
	}
	t.Setenv("PATH", "python3/bin")
	t.Setenv(python.EnvVar, "")
	require.ErrorIs(t, testenv.ErrorOf(python.Find()), python.ErrNotFound)
	t.Setenv(python.EnvVar, "./python3")
	require.NoError(t, testenv.ErrorOf(python.Find()))
	require.FileExists(t, ran, "the interpreter in the working directory was not run")
}

// TestCAPI compares the project's declarations with Python.h.
func TestCAPI(t *testing.T) {
	if os.Getenv(embedEnv) != "" {
		t.Skip("this process is a child for embedding")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		testenv.Missing(t, "there is no C compiler named cc: the C declarations were not compared", testenv.Python)
	}
	compared := 0
	ours := layout(t, cc)
	for _, env := range pythons(t) {
		out := testenv.Must(exec.Command(env.Executable, "-c", "import sysconfig; print(sysconfig.get_path('include'), end='')").Output())(t)
		include := string(out)
		if _, err := os.Stat(filepath.Join(include, "Python.h")); err != nil {
			t.Logf("%s %s has no headers", env.Executable, env.Version)
			continue
		}
		t.Run(env.Version.String(), func(t *testing.T) {
			require.Equal(t, layout(t, cc, "-DREAL", "-w", "-I"+include), ours)
			out, err := exec.Command(cc, "-Wall", "-Werror", "-Wno-deprecated-declarations", "-fsyntax-only",
				"-I.", "-I"+include, "testdata/prototypes.c").CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
		compared++
	}
	if compared == 0 {
		// The Python installed by internal/tools/setup has no headers.
		t.Skip("no Python with a Python.h: the C declarations were not compared")
	}
}

// layout compiles and runs testdata/layout.c.
func layout(t *testing.T, cc string, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "layout")
	args := append(flags, "-I.", "-o", bin, "testdata/layout.c")
	out, err := exec.Command(cc, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out = testenv.Must(exec.Command(bin).Output())(t)
	return string(out)
}
