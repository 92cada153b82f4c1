package main

import (
	"archive/zip"
	"encoding/csv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
)

func TestGlibcVersion(t *testing.T) {
	for text, want := range map[string][2]int{"GLIBC_2.34": {2, 34}, "GLIBC_2.2.5": {2, 2}, "GLIBC_2.117": {2, 117}} {
		major, minor, ok := glibcVersion(text)
		require.True(t, ok, text)
		require.Equal(t, want, [2]int{major, minor})
	}
	for _, text := range []string{"", "GLIBC_PRIVATE", "GLIBC_", "GLIBCXX_3.4", "OPENSSL_3.0.0"} {
		_, _, ok := glibcVersion(text)
		require.False(t, ok, text)
	}
}

// environment finds a Python with pytest: the active one or the repository's.
func environment(t *testing.T) string {
	t.Helper()
	var tried []string
	candidates := []string{}
	if env, err := python.Find(); err == nil {
		candidates = append(candidates, env.Executable)
	}
	if venv, err := filepath.Abs("../../.venv/bin/python"); err == nil {
		candidates = append(candidates, venv)
	}
	for _, exe := range candidates {
		out, err := exec.Command(exe, "-c", "import pytest, numpy").CombinedOutput()
		if err == nil {
			return exe
		}
		tried = append(tried, exe+": "+strings.TrimSpace(string(out)))
	}
	reason := "no Python with pytest and numpy: " + strings.Join(tried, "; ")
	if os.Getenv("USMBRIDGE_REQUIRE_PEERS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

// TestWheel builds the wheel, checks what is in it, and runs the module's Python
// tests with it in a plain Python.
func TestWheel(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getenv("CGO_ENABLED") == "0" {
		t.Skip("the module needs Linux and cgo")
	}
	dist, site := t.TempDir(), t.TempDir()
	path, err := build(dist, "../../LICENSE")
	require.NoError(t, err)
	require.Regexp(t, `/usmbridge-[0-9.]+-cp311-abi3-(manylinux_2_\d+|linux)_(x86_64|aarch64)\.whl$`, path)
	unpack(t, path, site)

	exe := environment(t)
	tests, err := filepath.Abs("../pymodule/tests")
	require.NoError(t, err)
	cmd := exec.Command(exe, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
	cmd.Dir = dist
	// Without VIRTUAL_ENV: the module finds what the running Python has.
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "VIRTUAL_ENV=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "PYTHONPATH="+site, "USMBRIDGE_TEST_HOST="+exe, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
}

// unpack does what an installer does, after checking the record.
func unpack(t *testing.T, path, site string) {
	t.Helper()
	z, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer z.Close()
	names := map[string]bool{}
	for _, f := range z.File {
		names[f.Name] = true
		r, err := f.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		dst := filepath.Join(site, filepath.FromSlash(f.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(dst), 0o755))
		require.NoError(t, os.WriteFile(dst, data, f.Mode()))
		if !strings.HasSuffix(f.Name, "RECORD") {
			continue
		}
		rows, err := csv.NewReader(strings.NewReader(string(data))).ReadAll()
		require.NoError(t, err)
		listed := map[string]bool{}
		for _, row := range rows {
			listed[row[0]] = true
		}
		require.Equal(t, names, listed, "RECORD lists every member")
	}
}
