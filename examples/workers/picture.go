package main

import (
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // formats that decode understands
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// decode reads a PNG or JPEG; "" is a photograph that comes with Go's sources.
func decode(path string) (picture image.Image, name string, err error) {
	if path == "" {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return nil, "", fmt.Errorf("no picture named, and asking go for one of its own failed (%w): name one with -in", err)
		}
		path = filepath.Join(strings.TrimSpace(string(root)), "src", "image", "testdata", "video-001.jpeg")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	picture, _, err = image.Decode(f)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	if picture.Bounds().Empty() {
		return nil, "", fmt.Errorf("%s has no pixels", path)
	}
	return picture, path, nil
}

// fill writes red, green and blue from 0 to 255, row by row.
func fill(pixels []float32, picture image.Image) {
	b := picture.Bounds()
	at := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			red, green, blue, _ := picture.At(x, y).RGBA()
			pixels[at], pixels[at+1], pixels[at+2] = float32(red>>8), float32(green>>8), float32(blue>>8)
			at += 3
		}
	}
}

func writePNG(path string, pixels []uint8, width, height int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(f, &image.Gray{Pix: pixels, Stride: width, Rect: image.Rect(0, 0, width, height)}), f.Close())
}
