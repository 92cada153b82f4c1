package main

import (
	"errors"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
)

// temporary creates a file for the result, in the directory of path. It is renamed to path when it is complete, so
// that an error leaves no partial file.
func temporary(path string) (*os.File, error) {
	st, err := os.Stat(path)
	switch {
	case path == "":
		return nil, errors.New("OUT is empty: name a file for the result, OUT=edges.png")
	case err == nil && st.IsDir():
		return nil, fmt.Errorf("OUT %s is a directory: name a file in it", path)
	case err == nil && !st.Mode().IsRegular():
		return nil, fmt.Errorf("OUT %s is not a regular file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("OUT cannot be written: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".edges-*")
	if err != nil {
		return nil, fmt.Errorf("OUT %s cannot be written: %w", path, err)
	}
	return f, nil
}

// checkWritable returns an error if the file cannot be written, so that the program fails before the
// computation. It leaves no file.
func checkWritable(path string) error {
	f, err := temporary(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writePNG writes grey values, one byte per pixel, as a PNG.
func writePNG(path string, pixels []uint8, width, height int) error {
	f, err := temporary(path)
	if err != nil {
		return err
	}
	grey := &image.Gray{Pix: pixels, Stride: width, Rect: image.Rect(0, 0, width, height)}
	err = errors.Join(png.Encode(f, grey), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("OUT %s cannot be written: %w", path, err)
	}
	return nil
}
