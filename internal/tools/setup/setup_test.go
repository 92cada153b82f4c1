package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	v := &venv{dir: filepath.Join(t.TempDir(), ".venv"), out: &bytes.Buffer{}}
	interpreter := func(script string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(v.python()), 0o755))
		require.NoError(t, os.WriteFile(v.python(), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	current := func(set string) bool { return setUp(v, lists, set) == nil }

	interpreter("exit 0")
	require.False(t, current("run"), "the environment has no stamp")
	hashes := map[string]string{}
	for _, set := range []string{"run", "test"} {
		sums, err := hashesOf(lists, set)
		require.NoError(t, err)
		hashes[set] = sums[set]
	}
	require.NotEqual(t, hashes["run"], hashes["test"])
	require.NoError(t, v.record(hashes))
	require.True(t, current("test"))
	require.True(t, current("run"), "test includes run")
	require.NoError(t, v.record(map[string]string{"run": hashes["run"]}))
	require.True(t, current("run"))
	require.False(t, current("test"), "run does not include test")

	interpreter("exit 0")
	require.NoError(t, v.record(hashes))
	list("requirements-run.txt", "a==2\n")
	require.False(t, current("run"), "the list of packages has changed")
	list("requirements-run.txt", "a==1\n")
	interpreter("exit 1")
	require.NoError(t, v.record(hashes))
	require.False(t, current("run"), "the interpreter does not find pip")
}

func TestUnusableEnvironments(t *testing.T) {
	t.Setenv("USMBRIDGE_PYTHON", filepath.Join(t.TempDir(), "python3"))
	v := &venv{dir: t.TempDir(), out: &bytes.Buffer{}}
	require.ErrorContains(t, v.create(), "USMBRIDGE_PYTHON names an unsuitable Python")

	require.NoError(t, os.Mkdir(filepath.Dir(v.python()), 0o755))
	require.NoError(t, os.Symlink("/nonexistent/python3", v.python()))
	require.ErrorContains(t, v.create(), "remove it (make clean)", "set-up did not make it")
	require.NoError(t, v.record(map[string]string{"run": "0"}))
	require.ErrorContains(t, v.create(), "USMBRIDGE_PYTHON names", "set-up makes its own environments again")
	require.NoDirExists(t, v.dir)
}

func TestSetUpRunsInTheRoot(t *testing.T) {
	v := &venv{dir: t.TempDir(), out: &bytes.Buffer{}}
	require.ErrorContains(t, setUp(v, t.TempDir(), "run"), "run set-up in the root of the repository")
}
