package main

import (
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// readPicture decodes a picture into an array of rows: float32, height x width x 3, 0 to
// 255. The caller releases it.
func readPicture(path string, memory memmgr.Resource) (*usmarray.Array, error) {
	if path == "" {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("the Go installation's photograph: %w; name a picture with -in", err)
		}
		path = filepath.Join(strings.TrimSpace(string(root)), "src/image/testdata/video-001.jpeg")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, _, err := image.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; PNG and JPEG are read", path, err)
	}
	b := img.Bounds()
	a, err := usmarray.New(memory, usmarray.Float32, []int{b.Dy(), b.Dx(), 3})
	if err != nil {
		return nil, err
	}
	values, err := usmarray.Slice[float32](a)
	if err != nil {
		a.Release()
		return nil, err
	}
	at := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			red, green, blue, _ := img.At(x, y).RGBA()
			values[at], values[at+1], values[at+2] = float32(red>>8), float32(green>>8), float32(blue>>8)
			at += 3
		}
	}
	return a, nil
}
