package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSets(t *testing.T) {
	run, err := requirements("run")
	require.NoError(t, err)
	test, err := requirements("test")
	require.NoError(t, err)
	require.NotEqual(t, run.hash, test.hash)
	require.True(t, test.includes("run"))
	require.False(t, run.includes("test"))
	_, err = requirements("all")
	require.ErrorContains(t, err, "run or test")

	path, err := test.write(t.TempDir())
	require.NoError(t, err)
	require.FileExists(t, path)
	require.FileExists(t, filepath.Join(filepath.Dir(path), "requirements-run.txt"), "which it includes")
}

func TestShortWheel(t *testing.T) {
	tests := []struct{ line, want string }{
		{"dpctl-0.22.1-0-cp311-cp311-manylinux_2_28_x86_64.whl (1.3 MB)", "dpctl 0.22.1 (1.3 MB)"},
		{"https://example.org/a/b/numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16.9 MB)", "numpy 2.4.6 (16.9 MB)"},
		{"something-else.tar.gz (3 kB)", "something-else.tar.gz (3 kB)"},
		{"https://example.org/x-1.0-py3-none-any.whl", "x 1.0"},
	}
	for _, test := range tests {
		require.Equal(t, test.want, shortWheel(test.line))
	}
}

func TestHints(t *testing.T) {
	require.Contains(t, networkHint("Temporary failure in name resolution"), "no connection")
	require.Contains(t, networkHint("dial tcp: lookup proxy: no such host"), "GOPROXY")
	require.Contains(t, networkHint("OSError: [Errno 28] No space left on device"), "disk is full")
	require.Empty(t, networkHint("SyntaxError"))
}

func TestTailKeepsTheEnd(t *testing.T) {
	var end tail
	for range 1000 {
		_, err := end.Write([]byte("WARNING: Retrying (…)\nline\n"))
		require.NoError(t, err)
	}
	_, err := end.Write([]byte("the last\n"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(end.text), 4096)
	require.True(t, strings.HasSuffix(end.String(), "line\nthe last"), end.String())
	require.NotContains(t, end.String(), "Retrying")
}

func TestWithin(t *testing.T) {
	tests := []struct {
		path string
		want bool
	}{
		{"/a/b", true}, {"/a/b/c", true}, {"/a/b/../b/c", true}, {"/a", false}, {"/a/bc", false}, {"/a/..b", false},
	}
	for _, test := range tests {
		require.Equal(t, test.want, within("/a/b", test.path), test.path)
	}
}

func TestDownloadsAreShownWithoutBlocking(t *testing.T) {
	long := strings.Repeat("x", 3<<20) // no line that a scanner takes
	showDownloads(strings.NewReader("Collecting a\n" + long + "\nDownloading b\n"))
}

func TestStampDecides(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), ".venv")
	v, err := openVenv(dir)
	require.NoError(t, err)
	want, err := requirements("run")
	require.NoError(t, err)
	require.False(t, v.current(ctx, want), "nothing is there")

	// A stand-in for the interpreter: it only has to name its version.
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	fake := func(version string) {
		require.NoError(t, os.WriteFile(v.python(), []byte("#!/bin/sh\necho "+version+"\n"), 0o755))
	}
	fake("3.12.1")
	require.False(t, v.current(ctx, want), "no stamp yet")
	test, err := requirements("test")
	require.NoError(t, err)
	require.NoError(t, v.writeStamp(ctx, test))
	require.True(t, v.current(ctx, want), "test includes run")
	require.True(t, v.current(ctx, test))
	require.NoError(t, v.writeStamp(ctx, want))
	require.False(t, v.current(ctx, test), "run does not include test")

	fake("3.13.0")
	require.False(t, v.current(ctx, want), "another Python took the place")
	fake("3.12.1")
	want.hash = "changed"
	require.False(t, v.current(ctx, want), "other requirements")
	require.NoError(t, os.Remove(v.python()))
	require.False(t, v.current(ctx, want), "Python is gone")
}

func TestPlaceTakenByAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".venv")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	_, err := openVenv(path)
	require.ErrorContains(t, err, "is a file")
}

func TestNamedPythonMustSuit(t *testing.T) {
	t.Setenv("USMBRIDGE_PYTHON", "off")
	_, err := choosePython(context.Background(), ".", t.TempDir())
	require.ErrorContains(t, err, "unset it")
	t.Setenv("USMBRIDGE_PYTHON", filepath.Join(t.TempDir(), "python3"))
	_, err = choosePython(context.Background(), ".", t.TempDir())
	require.ErrorContains(t, err, "USMBRIDGE_PYTHON names an unsuitable Python")
}
