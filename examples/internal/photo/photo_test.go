package photo

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/examples/internal/photo/phototest"
)

func TestFillIgnoresTransparency(t *testing.T) {
	want := phototest.Pattern(13, 5)
	faint := phototest.Pattern(13, 5)
	for i := 3; i < len(faint.Pix); i += 4 {
		faint.Pix[i] = 3
	}
	deep := image.NewNRGBA64(want.Rect)
	opaque := image.NewRGBA(want.Rect)
	for y := range 5 {
		for x := range 13 {
			deep.Set(x, y, want.At(x, y))
			opaque.Set(x, y, want.At(x, y))
		}
	}
	shifted := image.NewNRGBA(image.Rect(4, 9, 17, 14))
	copy(shifted.Pix, want.Pix)
	for name, p := range map[string]image.Image{
		"NRGBA": want, "almost transparent": faint, "16 bit": deep, "RGBA": opaque, "elsewhere": shifted,
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]float32, 13*5*3)
			Fill(got, p)
			for i := range 13 * 5 {
				for c := range 3 {
					require.Equal(t, float32(want.Pix[i*4+c]), got[i*3+c], "pixel %d, channel %d", i, c)
				}
			}
		})
	}
}

func TestFillOtherColourModels(t *testing.T) {
	grey := image.NewGray(image.Rect(0, 0, 2, 1))
	grey.Pix = []byte{7, 200}
	got := make([]float32, 6)
	Fill(got, grey)
	require.Equal(t, []float32{7, 7, 7, 200, 200, 200}, got)

	pal := image.NewPaletted(image.Rect(0, 0, 2, 1), color.Palette{
		color.NRGBA{10, 20, 30, 255}, color.NRGBA{200, 100, 50, 255},
	})
	pal.Pix = []byte{1, 0}
	Fill(got, pal)
	require.Equal(t, []float32{200, 100, 50, 10, 20, 30}, got)
}

func TestDecode(t *testing.T) {
	p := phototest.Pattern(16, 8)
	var jpg bytes.Buffer
	require.NoError(t, jpeg.Encode(&jpg, p, nil))
	whole := phototest.PNG(t, p)
	for _, path := range []string{phototest.Write(t, "a.png", whole), phototest.Write(t, "a.jpg", jpg.Bytes())} {
		got, err := Decode(path)
		require.NoError(t, err)
		require.Equal(t, image.Pt(16, 8), got.Bounds().Size())
	}
	pipe := filepath.Join(t.TempDir(), "p.png")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	one := image.Rect(0, 0, 1, 1)
	tests := []struct{ name, path, want string }{
		{"absent", filepath.Join(t.TempDir(), "none.png"), "no such file"},
		{"a directory", t.TempDir(), "is a directory"},
		{"empty", phototest.Write(t, "e.png", nil), "not a PNG or JPEG"},
		{"text", phototest.Write(t, "t.png", []byte("hello")), "not a PNG or JPEG"},
		{"cut short", phototest.Write(t, "c.png", whole[:len(whole)/2]), "png: "},
		{"too large", phototest.Write(t, "l.png", claiming(t, image.NewGray(one), 1000000, 1000000)), "pixels, and this program accepts"},
		{"larger than its data", phototest.Write(t, "m.png", claiming(t, image.NewGray(one), 16384, 16384)), "its 71 bytes cannot hold them"},
		{"deeper than its data", phototest.Write(t, "d.png", claiming(t, image.NewNRGBA64(one), 512, 512)), "bytes cannot hold them"},
		{"as deep as its data allows", phototest.Write(t, "h.png", claiming(t, image.NewNRGBA64(one), 128, 128)), "png: "},
		{"a pipe", pipe, "a pipe or a device, not a file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Decode(test.path)
			require.ErrorContains(t, err, "the picture")
			require.ErrorContains(t, err, test.want)
		})
	}
}

// claiming returns a PNG of one pixel whose header has other dimensions.
func claiming(t *testing.T, pixel image.Image, width, height uint32) []byte {
	t.Helper()
	data := bytes.Clone(phototest.PNG(t, pixel))
	binary.BigEndian.PutUint32(data[16:], width)
	binary.BigEndian.PutUint32(data[20:], height)
	return phototest.WithCRC(data)
}
