package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// stamp writes the stamp of an environment.
func stamp(t *testing.T, v *venv, hashes map[string]string) {
	text, err := json.Marshal(hashes)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(v.stampFile(), text, 0o600))
}

// TestSetUpInstallsOnlyWhenNeeded uses scripts instead of interpreters. create refuses them, so that nothing is
// installed.
func TestSetUpInstallsOnlyWhenNeeded(t *testing.T) {
	t.Setenv("USMBRIDGE_PYTHON", filepath.Join(t.TempDir(), "python3")) // does not exist
	lists := t.TempDir()
	list := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(lists, name), []byte(text), 0o600))
	}
	list("requirements-run.txt", "a==1\n")
	list("requirements-test.txt", "-r requirements-run.txt\nb==1\n")
	list("requirements-wheel.txt", "c==1\n")
	v := &venv{dir: filepath.Join(t.TempDir(), ".venv"), out: &bytes.Buffer{}}
	environment := func(script string, hashes map[string]string) { // set-up removes those that it cannot use
		require.NoError(t, os.MkdirAll(filepath.Dir(v.python()), 0o755))
		require.NoError(t, os.WriteFile(v.python(), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		stamp(t, v, hashes)
	}
	current := func(set string) bool { return setUp(v, lists, set) == nil }

	environment("exit 0", nil)
	require.False(t, current("run"), "the environment has no stamp")
	hashes, err := hashesOf(lists, "test")
	require.NoError(t, err)
	environment("exit 0", hashes)
	require.True(t, current("test"))
	require.True(t, current("run"), "test includes run")
	require.False(t, current("wheel"), "test does not include wheel")
	environment("exit 0", map[string]string{"run": hashes["run"]})
	require.True(t, current("run"))
	require.False(t, current("test"), "run does not include test")

	environment("exit 0", hashes)
	list("requirements-run.txt", "a==2\n")
	require.False(t, current("test"), "the list of packages has changed")
	list("requirements-run.txt", "a==1\n")
	environment("exit 1", hashes)
	require.False(t, current("test"), "the interpreter does not find pip")
}

func TestUnusableEnvironments(t *testing.T) {
	t.Setenv("USMBRIDGE_PYTHON", filepath.Join(t.TempDir(), "python3"))
	v := &venv{dir: t.TempDir(), out: &bytes.Buffer{}}
	require.ErrorContains(t, v.create(), "USMBRIDGE_PYTHON names an unsuitable Python")

	require.NoError(t, os.Mkdir(filepath.Dir(v.python()), 0o755))
	require.NoError(t, os.Symlink("/nonexistent/python3", v.python()))
	require.ErrorContains(t, v.create(), "remove it (make clean)", "set-up did not make it")
	stamp(t, v, map[string]string{"run": "0"})
	require.ErrorContains(t, v.create(), "USMBRIDGE_PYTHON names", "set-up makes its own environments again")
	require.NoDirExists(t, v.dir)
}

func TestSetUpRunsInTheRoot(t *testing.T) {
	v := &venv{dir: t.TempDir(), out: &bytes.Buffer{}}
	require.ErrorContains(t, setUp(v, t.TempDir(), "run"), "run set-up in the root of the repository")
}
