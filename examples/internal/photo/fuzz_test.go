package photo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/examples/internal/photo/phototest"
)

// allocated returns the number of bytes that the program has allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// claimed returns the dimensions in the header of a PNG or JPEG file, and zeros for other files.
func claimed(data []byte) (width, height int64) {
	if bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")) && len(data) >= 24 {
		return int64(binary.BigEndian.Uint32(data[16:])), int64(binary.BigEndian.Uint32(data[20:]))
	}
	for at := 2; at+9 <= len(data) && bytes.HasPrefix(data, []byte("\xff\xd8")); {
		switch marker := data[at+1]; {
		case data[at] != 0xff || marker == 0xff:
			at++
		case marker >= 0xc0 && marker <= 0xc2:
			return int64(binary.BigEndian.Uint16(data[at+7:])), int64(binary.BigEndian.Uint16(data[at+5:]))
		case marker == 0 || marker >= 0xd0 && marker <= 0xd8:
			at += 2
		default:
			at += 2 + int(binary.BigEndian.Uint16(data[at+2:]))
		}
	}
	return 0, 0
}

// FuzzDecode decodes arbitrary files, and PNGs with arbitrary dimensions and a valid checksum. Decode
// returns a picture of the header's dimensions or an error that names the file, and never allocates more
// memory than the pixels of a file of that length need.
func FuzzDecode(f *testing.F) {
	paletted := image.NewPaletted(image.Rect(0, 0, 9, 3), color.Palette{color.NRGBA{1, 2, 3, 255}, color.NRGBA{9, 8, 7, 6}})
	deep := image.NewNRGBA64(image.Rect(0, 0, 4, 4))
	for _, p := range []image.Image{phototest.Pattern(16, 8), paletted, deep, image.NewGray(image.Rect(0, 0, 1, 1)), image.NewGray16(image.Rect(0, 0, 3, 2))} {
		var b, j bytes.Buffer
		require.NoError(f, png.Encode(&b, p))
		require.NoError(f, jpeg.Encode(&j, p, nil))
		f.Add(b.Bytes(), uint32(0), uint32(0))
		f.Add(b.Bytes(), uint32(16384), uint32(16384))
		f.Add(b.Bytes(), uint32(1<<31), uint32(1<<31-1))
		f.Add(b.Bytes(), uint32(1), uint32(100_000))
		f.Add(j.Bytes(), uint32(0), uint32(0))
	}
	f.Add([]byte("GIF89a"), uint32(0), uint32(0))
	path := filepath.Join(f.TempDir(), "picture")
	f.Fuzz(func(t *testing.T, data []byte, width, height uint32) {
		if len(data) > 1<<10 { // a byte can hold 8000 pixels
			return
		}
		if width > 0 && len(data) >= 33 && bytes.HasPrefix(data, []byte("\x89PNG")) {
			data = bytes.Clone(data)
			binary.BigEndian.PutUint32(data[16:], width)
			binary.BigEndian.PutUint32(data[20:], height)
			data = phototest.WithCRC(data)
		}
		require.NoError(t, os.WriteFile(path, data, 0o600))
		before := allocated()
		picture, err := Decode(path)
		taken := allocated() - before
		w, h := claimed(data)
		room := int64(len(data)) * pixelsPerByte
		if h > 0 && w > room/h {
			w, h = 0, 0 // refused before memory is allocated
			require.Error(t, err)
		}
		// A JPEG takes at most 12 bytes per pixel for coefficients and 3 for colours, and rounds each
		// side up to a multiple of 32. A PNG takes 8, and its passes are pictures too.
		require.LessOrEqual(t, taken, uint64(1<<20+32*(w+32)*(h+32)), "%d x %d pixels", w, h)
		if err != nil {
			require.ErrorContains(t, err, "the picture")
			return
		}
		size := picture.Bounds().Size()
		require.Equal(t, [2]int64{w, h}, [2]int64{int64(size.X), int64(size.Y)})
		require.True(t, w > 0 && h > 0)
		if w*h > 1<<12 {
			return
		}
		pixels := make([]float32, w*h*3)
		Fill(pixels, picture)
		for i, v := range pixels {
			if v < 0 || v > 255 || v != float32(uint8(v)) {
				require.NoError(t, errors.New("invalid colour"), "%v at %d", v, i)
			}
		}
	})
}
