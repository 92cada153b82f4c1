package main

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
)

// checkWritable returns an error if the file cannot be written, so that the program fails before the
// computation. It leaves no file.
func checkWritable(path string) error {
	st, err := os.Stat(path)
	switch {
	case path == "":
		return errors.New("OUT is empty: name a file for the result, OUT=edges.png")
	case err == nil && st.IsDir():
		return fmt.Errorf("OUT %s is a directory: name a file in it", path)
	case err == nil && !st.Mode().IsRegular():
		return fmt.Errorf("OUT %s is not a regular file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("OUT cannot be written: %w", err)
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".edges-*")
	if err != nil {
		var reason *fs.PathError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return fmt.Errorf("OUT %s cannot be written: in %s: %w", path, dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writePNG writes grey values, one byte per pixel, as a PNG. It writes a temporary file and renames it, so
// that an error leaves no partial file.
func writePNG(path string, pixels []uint8, width, height int) (err error) {
	var encoded bytes.Buffer
	grey := &image.Gray{Pix: pixels, Stride: width, Rect: image.Rect(0, 0, width, height)}
	if err := png.Encode(&encoded, grey); err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".edges-*")
	if err != nil {
		return fmt.Errorf("OUT %s cannot be written: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("OUT %s cannot be written: %w", path, err)
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(encoded.Bytes()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Chmod(0o644); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
