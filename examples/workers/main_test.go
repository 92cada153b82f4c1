//go:build cgo && linux

package main

import (
	"context"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/workers"
)

func TestMain(m *testing.M) {
	workers.Main()
	os.Exit(m.Run())
}

// sobel returns the expected result of one pixel before rounding.
func sobel(grey func(x, y int) float64, width, height, x, y int) float64 {
	at := func(dx, dy int) float64 { return grey(min(max(x+dx, 0), width-1), min(max(y+dy, 0), height-1)) }
	gx := at(1, -1) + 2*at(1, 0) + at(1, 1) - at(-1, -1) - 2*at(-1, 0) - at(-1, 1)
	gy := at(-1, 1) + 2*at(0, 1) + at(1, 1) - at(-1, -1) - 2*at(0, -1) - at(1, -1)
	return min(255, math.Sqrt(gx*gx+gy*gy))
}

// TestEdges: two processes find the edges without a copy, with SYCL if it is available and without.
func TestEdges(t *testing.T) {
	testpython.Need(t, "numpy")
	dir := t.TempDir()
	const width, height = 40, 30
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			img.Set(x, y, color.NRGBA{uint8(x * y), uint8(3 * x), uint8(5 * y), 255})
		}
	}
	in, out := filepath.Join(dir, "in.png"), filepath.Join(dir, "out.png")
	f, err := os.Create(in)
	require.NoError(t, err)
	require.NoError(t, png.Encode(f, img))
	require.NoError(t, f.Close())
	grey := func(x, y int) float64 {
		c := img.NRGBAAt(x, y)
		return 0.299*float64(c.R) + 0.587*float64(c.G) + 0.114*float64(c.B)
	}
	for _, off := range []bool{false, true} {
		name := "default"
		if off {
			name = "without SYCL"
		}
		t.Run(name, func(t *testing.T) {
			if off {
				t.Setenv("USMBRIDGE_SYCL", "off")
			}
			var text strings.Builder
			require.NoError(t, run(context.Background(), &text, in, out))
			t.Log(text.String())
			if off {
				require.Contains(t, text.String(), "host memory (no USM: ")
			}
			for _, bytes := range []string{"0 of 14400", "0 of 4800", "0 of 1200"} {
				require.Contains(t, text.String(), bytes)
			}
			f, err := os.Open(out)
			require.NoError(t, err)
			defer f.Close()
			result, err := png.Decode(f)
			require.NoError(t, err)
			for y := range height {
				for x := range width {
					require.InDelta(t, sobel(grey, width, height, x, y), float64(result.(*image.Gray).GrayAt(x, y).Y), 1.01, "%d, %d", x, y)
				}
			}
		})
	}
}

func TestNoPicture(t *testing.T) {
	require.Error(t, run(context.Background(), &strings.Builder{}, filepath.Join(t.TempDir(), "absent.png"), ""))
}
