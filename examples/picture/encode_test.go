package main

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// names lists the entries of a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	list := testenv.Must(os.ReadDir(dir))(t)
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestWritePNG(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.png")
	require.NoError(t, checkWritable(path))
	require.Empty(t, names(t, dir), "the check leaves no file")
	pixels := []uint8{0, 1, 2, 253, 254, 255}
	require.NoError(t, writePNG(path, pixels, 3, 2))
	require.NoError(t, writePNG(path, pixels, 3, 2), "over an older result")
	require.Equal(t, []string{"out.png"}, names(t, dir))
	data := testenv.Must(os.ReadFile(path))(t)
	p := testenv.Must(png.Decode(bytes.NewReader(data)))(t)
	require.Equal(t, pixels, p.(*image.Gray).Pix)
}

func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("kept"), 0o644))
	tests := []struct{ name, path, want string }{
		{"a directory", dir, "is a directory"},
		{"no such directory", filepath.Join(dir, "none", "out.png"), "no such file or directory"},
		{"below a file", filepath.Join(file, "out.png"), "not a directory"},
		{"a device", os.DevNull, "not a regular file"},
		{"no name", "", "is empty"},
		{"a name too long", filepath.Join(dir, strings.Repeat("x", 300)), "name too long"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := checkWritable(test.path)
			require.ErrorContains(t, err, "OUT ")
			require.ErrorContains(t, err, test.path)
			require.ErrorContains(t, err, test.want)
		})
	}
	require.Equal(t, []string{"file"}, names(t, dir))
	require.Error(t, writePNG(filepath.Join(dir, "none", "out.png"), []uint8{1}, 1, 1))

	// A directory with the name of the result appears after the check.
	blocked := filepath.Join(dir, "blocked")
	require.NoError(t, os.Mkdir(blocked, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(blocked, "x"), nil, 0o644))
	require.Error(t, writePNG(blocked, []uint8{1}, 1, 1))
	require.Equal(t, []string{"blocked", "file"}, names(t, dir), "no partial file remains")
}

func TestTableShowsCopies(t *testing.T) {
	var b bytes.Buffer
	printTable(&b, []handover{
		{"picture", "SUAI", "Go", "dpctl", 0x1000, 0x1000, 24, 1500 * time.Nanosecond},
		{"grey", "DLPack", "Numba", "Go", 0x1000, 0x2000, 8, 2 * time.Millisecond},
	})
	text := b.String()
	require.Contains(t, text, "0 of 24")
	require.Contains(t, text, "8 of 8")
	require.Contains(t, text, "1.5 us")
	require.Contains(t, text, "Go -> dpctl")
	require.Contains(t, text, "0x2000")
}
