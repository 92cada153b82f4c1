package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
)

// needPython is the program, built, where there is a Python with Numba; without one the
// test is skipped, unless it was promised.
func needPython(t *testing.T) string {
	t.Helper()
	env, err := python.Find()
	if err == nil {
		var out []byte
		out, err = exec.Command(env.Executable, "-c", "import numba").CombinedOutput()
		if err != nil {
			t.Logf("%s: %s", env.Executable, out)
		}
	}
	if err != nil && os.Getenv("USMBRIDGE_REQUIRE_PEERS") == "" {
		t.Skip("no Python with Numba: ", err)
	}
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "flight")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	return program
}

// Three processes: two shards compute what one process computes, the loss of one is told
// with its rows, and what was put twice survives it.
func TestCluster(t *testing.T) {
	program := needPython(t)
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	text := string(out)
	require.NoErrorf(t, err, "%s", text)
	require.Regexp(t, `put: +\[103 150 3\] of float32`, text)
	require.Regexp(t, `computed: +rows +0 to +50 by \d+ in `, text)
	require.Regexp(t, `computed: +rows +51 to +102 by \d+ in `, text)
	require.Contains(t, text, "[103 150] in ")
	require.Contains(t, text, "equal to one process's")
	require.Regexp(t, `reported: +rows +51 to +102 of "luminance" are nowhere any more`, text)
	require.Contains(t, text, `"picture-twice", which was put twice, is there in full`)
}

// Shards that run already are used, and kept: the second client finds them empty again.
func TestShardsThatRun(t *testing.T) {
	program := needPython(t)
	p, err := start(t.Context(), []string{program}, 3)
	require.NoError(t, err)
	defer p.stop()
	for range 2 {
		out, err := exec.CommandContext(t.Context(), program, "-shards", strings.Join(p.locations, ",")).CombinedOutput()
		require.NoErrorf(t, err, "%s", out)
		require.Equal(t, 3, strings.Count(string(out), "computed:"))
		require.Contains(t, string(out), "equal to one process's")
		require.NotContains(t, string(out), "killed")
	}
	require.NoError(t, p.kill(2))
	out, err := exec.CommandContext(t.Context(), program, "-shards", strings.Join(p.locations, ",")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), filepath.Base(p.locations[2]), "the error names the shard")
}

func TestPicture(t *testing.T) {
	memory := memmgr.NewPool(memmgr.Host())
	defer func() { require.NoError(t, memory.Close()) }()
	a, err := readPicture("", memory)
	require.NoError(t, err)
	require.Equal(t, []int{103, 150, 3}, a.Shape())
	a.Release()
	_, err = readPicture("main.go", memory)
	require.ErrorContains(t, err, "no PNG or JPEG")
	_, err = readPicture(filepath.Join(t.TempDir(), "none"), memory)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What does not become a shard says why.
func TestNoShard(t *testing.T) {
	_, err := start(context.Background(), []string{"false"}, 1)
	require.ErrorContains(t, err, "did not start")
	require.ErrorContains(t, serve(context.Background(), "nowhere", false, nil, nil), "grpc+")
}
