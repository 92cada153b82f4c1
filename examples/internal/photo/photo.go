// Package photo reads the pictures of the examples: PNG and JPEG files, as red, green and blue. It refuses
// a file that is too short for its dimensions. It may be used from any goroutine.
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

// maxPixels is the maximum size of a picture: the first buffer alone takes 12 bytes per pixel.
const maxPixels = 1 << 28

// pixelsPerByte is the maximum number of pixels for each byte of a file: deflate expands a byte to at most
// 1032 bytes, and a byte holds at most 8 pixels. JPEG compresses less, except for empty pictures. A file
// whose header has larger dimensions is truncated or malicious.
const pixelsPerByte = 8 * 1032

// leastBits returns the minimum number of bits of a pixel before deflate. Grey with an alpha channel is
// decoded to colours too.
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

// OfGo returns the path of a photograph in Go's sources. The error contains a remedy.
func OfGo() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("no picture given, and the go command is needed to find a default (%w); give the path of a picture", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", "image", "testdata", "video-001.jpeg")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no picture given, and this Go installation does not contain the default (%w); give the path of a picture", err)
	}
	return path, nil
}

// Read decodes the picture at path, or the photograph of OfGo if path is empty. name is the path that was
// read.
func Read(path string) (picture image.Image, name string, err error) {
	if path == "" {
		if path, err = OfGo(); err != nil {
			return nil, "", err
		}
	}
	picture, err = Decode(path)
	return picture, path, err
}

// Decode reads a PNG or JPEG file of 1 to 2^28 pixels. It compares the dimensions in the header with the
// length of the file before it allocates memory. Errors contain the path and the problem.
func Decode(path string) (image.Image, error) {
	st, err := os.Stat(path) // before Open, which blocks on a pipe without a writer
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
			err = errors.New("it is not a PNG or JPEG file")
		}
		return nil, fmt.Errorf("the picture %s cannot be read: %w", path, err)
	}
	config, format, err := image.DecodeConfig(f)
	if err != nil {
		return fail(err)
	}
	if config.Width <= 0 || config.Height <= 0 || config.Width > maxPixels/config.Height {
		return fail(fmt.Errorf("it has %d x %d pixels, and this program accepts 1 to %d pixels", config.Width, config.Height, maxPixels))
	}
	if held := st.Size() * pixelsPerByte / leastBits(format, config.ColorModel); int64(config.Width)*int64(config.Height) > held {
		return fail(fmt.Errorf("its header has %d x %d pixels, and its %d bytes cannot hold them", config.Width, config.Height, st.Size()))
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

// Fill writes the picture into pixels, row by row: red, green and blue from 0 to 255 for each pixel. It
// ignores transparency, as conversions to RGB do. The length of pixels is three times the number of pixels.
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

// straight copies a row of a picture whose colours are not multiplied by the alpha channel, and reports
// whether the picture is of such a type. draw.Draw multiplies them, which loses colours of transparent
// pixels.
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
