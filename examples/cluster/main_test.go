package main

import (
	"context"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
)

// needCluster builds usmpython and returns its path. It ends the test without a Python that has distributed
// and Numba.
func needCluster(t *testing.T) string {
	t.Helper()
	testpython.Need(t, "distributed", "numba")
	return testenv.Build(t, "../../interop/cmd/usmpython")
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

	require.ErrorContains(t, luminance(context.Background(), to, to), "not a PNG or JPEG")
	require.Error(t, luminance(context.Background(), filepath.Join(dir, "none"), to))
	require.ErrorContains(t, run(context.Background(), "", filepath.Join(dir, "usmpython"), os.Stdout), "make build python")
}
