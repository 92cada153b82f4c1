package main

import (
	"context"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
)

// needCluster builds usmpython and returns its path. Without a Python that has distributed and
// Numba, it skips the test, or fails it if USMBRIDGE_REQUIRE_PEERS is set.
func needCluster(t *testing.T) string {
	t.Helper()
	env, err := python.Find()
	if err == nil {
		var out []byte
		out, err = exec.Command(env.Executable, "-c", "import distributed, numba").CombinedOutput()
		if err != nil {
			t.Logf("%s: %s", env.Executable, out)
		}
	}
	if err != nil && os.Getenv("USMBRIDGE_REQUIRE_PEERS") == "" {
		t.Skip("no Python with distributed and Numba: ", err)
	}
	require.NoError(t, err)
	host := filepath.Join(t.TempDir(), "usmpython")
	out, err := exec.Command("go", "build", "-o", host, "../../interop/cmd/usmpython").CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	return host
}

// TestKilledWorker: the rows of a killed worker, and only those, are read and computed again, and
// the result equals that of one process.
func TestKilledWorker(t *testing.T) {
	host := needCluster(t)
	var out strings.Builder
	require.NoError(t, run(context.Background(), "", host, &out))
	text := out.String()
	require.Contains(t, text, "equal to one process's")
	require.Regexp(t, `read: +rows +0 to +50 by \d+\n`, text)
	require.Regexp(t, `read: +rows +51 to +102 by \d+, again by \d+\n`, text)
	require.Regexp(t, `compute: +rows +51 to +102 by \d+`, text)
}

func TestLuminance(t *testing.T) {
	dir := t.TempDir()
	img := image.NewRGBA(image.Rect(0, 0, 3, 2))
	img.Set(2, 1, color.RGBA{R: 255, G: 255, B: 255, A: 255})
	f, err := os.Create(filepath.Join(dir, "in.png"))
	require.NoError(t, err)
	require.NoError(t, png.Encode(f, img))
	require.NoError(t, f.Close())
	to := filepath.Join(dir, "out.npy")
	require.NoError(t, luminance(context.Background(), f.Name(), to))
	data, err := os.ReadFile(to)
	require.NoError(t, err)
	require.Len(t, data, 128+3*2*4, "a header to a multiple of 64 bytes, and the rows")
	require.Contains(t, string(data[:128]), "'shape': (2, 3)")
	require.EqualValues(t, '\n', data[127])
	require.Equal(t, []byte{0, 0, 0, 0}, data[128:132])
	require.Equal(t, []byte{0, 0, 0x7f, 0x43}, data[128+20:], "255 as float32")

	require.ErrorContains(t, luminance(context.Background(), to, to), "no PNG or JPEG")
	require.Error(t, luminance(context.Background(), filepath.Join(dir, "none"), to))
	require.ErrorContains(t, run(context.Background(), "", filepath.Join(dir, "usmpython"), os.Stdout), "make build python")
}
