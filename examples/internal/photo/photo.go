// Package photo reads the pictures of the examples: PNG and JPEG files, bounded by what they
// hold, as red, green and blue. It may be used from any goroutine.
package photo

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	_ "image/jpeg" // formats that Decode understands
	_ "image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// maxPixels bounds a picture: 12 bytes a pixel go into the first buffer alone.
const maxPixels = 1 << 28

// pixelsPerByte bounds what a file may claim by what it holds: deflate makes at most
// 1032 bytes of one, and a byte is at most 8 pixels. JPEG, but for empty pictures,
// needs more. A file that claims more ends before its pixels do, or is a trap.
const pixelsPerByte = 8 * 1032

// leastBits is how many bits a pixel takes at least before deflate: grey with an alpha
// channel is decoded to colours too.
func leastBits(format string, m color.Model) int64 {
	if format != "png" {
		return 1
	}
	switch m {
	case color.RGBAModel:
		return 24
	case color.NRGBAModel, color.Gray16Model:
		return 16
	case color.RGBA64Model:
		return 48
	case color.NRGBA64Model:
		return 32
	}
	return 1 // grey and palettes
}

// OfGo is the path of a photograph that comes with Go's sources. The error says what a user
// can do instead.
func OfGo() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("no picture named, and asking go for one of its own failed (%w): name one", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", "image", "testdata", "video-001.jpeg")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no picture named, and this Go installation comes without its own (%w): name one", err)
	}
	return path, nil
}

// Read is Decode, and of "" the photograph of OfGo; name is the path that was read.
func Read(path string) (picture image.Image, name string, err error) {
	if path == "" {
		if path, err = OfGo(); err != nil {
			return nil, "", err
		}
	}
	picture, err = Decode(path)
	return picture, path, err
}

// Decode reads a PNG or JPEG file of 1 to 2^28 pixels. What a file claims is held against
// its length before memory is taken for it. Errors name the file and what is wrong.
func Decode(path string) (image.Image, error) {
	st, err := os.Stat(path) // before opening, which waits for a pipe's writer
	if err != nil {
		return nil, fmt.Errorf("the picture cannot be read: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("the picture cannot be read: %s is a directory, a pipe or a device, not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the picture cannot be read: %w", err)
	}
	defer f.Close()
	fail := func(err error) (image.Image, error) {
		if errors.Is(err, image.ErrFormat) {
			err = errors.New("it is no PNG or JPEG")
		}
		return nil, fmt.Errorf("the picture %s cannot be read: %w", path, err)
	}
	config, format, err := image.DecodeConfig(f)
	if err != nil {
		return fail(err)
	}
	if config.Width <= 0 || config.Height <= 0 || config.Width > maxPixels/config.Height {
		return fail(fmt.Errorf("it is %d x %d pixels, and this program takes 1 to %d", config.Width, config.Height, maxPixels))
	}
	if held := st.Size() * pixelsPerByte / leastBits(format, config.ColorModel); int64(config.Width)*int64(config.Height) > held {
		return fail(fmt.Errorf("it claims %d x %d pixels, and its %d bytes cannot hold them", config.Width, config.Height, st.Size()))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fail(err)
	}
	picture, _, err := image.Decode(f)
	if err != nil {
		return fail(err)
	}
	return picture, nil
}

// Fill writes the picture as red, green and blue from 0 to 255 into pixels, row
// by row, three values a pixel. Transparency is left out, as by a program that
// converts to RGB. pixels holds exactly the picture.
func Fill(pixels []float32, picture image.Image) {
	b := picture.Bounds()
	row := image.NewNRGBA(image.Rect(0, 0, b.Dx(), 1))
	for y := range b.Dy() {
		at := image.Pt(b.Min.X, b.Min.Y+y)
		if !straight(row, picture, at) {
			draw.Draw(row, row.Rect, picture, at, draw.Src)
		}
		out := pixels[y*b.Dx()*3:][:b.Dx()*3]
		for x := range b.Dx() {
			p := row.Pix[x*4 : x*4+3 : x*4+3]
			out[x*3], out[x*3+1], out[x*3+2] = float32(p[0]), float32(p[1]), float32(p[2])
		}
	}
}

// straight copies a row whose colours draw.Draw would lose where the picture
// is transparent, because it multiplies them with it on the way.
func straight(row *image.NRGBA, picture image.Image, at image.Point) bool {
	switch p := picture.(type) {
	case *image.NRGBA:
		copy(row.Pix, p.Pix[p.PixOffset(at.X, at.Y):])
	case *image.NRGBA64:
		for x := range row.Rect.Dx() {
			c := p.NRGBA64At(at.X+x, at.Y)
			row.SetNRGBA(x, 0, color.NRGBA{uint8(c.R >> 8), uint8(c.G >> 8), uint8(c.B >> 8), 255})
		}
	case *image.Paletted:
		for x := range row.Rect.Dx() {
			row.SetNRGBA(x, 0, color.NRGBAModel.Convert(p.At(at.X+x, at.Y)).(color.NRGBA))
		}
	default:
		return false
	}
	return true
}
