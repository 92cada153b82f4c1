package main

import (
	"errors"
	"image"
	"image/png"
	"os"
)

func writePNG(path string, pixels []uint8, width, height int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(f, &image.Gray{Pix: pixels, Stride: width, Rect: image.Rect(0, 0, width, height)}), f.Close())
}
