// Package phototest provides pictures and picture files for the tests of the examples.
package phototest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pattern draws a picture with a different colour in each pixel.
func Pattern(w, h int) *image.NRGBA {
	p := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			p.SetNRGBA(x, y, color.NRGBA{uint8(x*7 + y), uint8(x ^ y*3), uint8(255 - x - 2*y), 255})
		}
	}
	return p
}

// Write creates a file in a temporary directory of the test and returns its path.
func Write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// PNG encodes a picture.
func PNG(t testing.TB, p image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, p))
	return b.Bytes()
}

// WithCRC corrects the checksum of a PNG's header chunk, in place.
func WithCRC(data []byte) []byte {
	binary.BigEndian.PutUint32(data[29:], crc32.ChecksumIEEE(data[12:29]))
	return data
}
