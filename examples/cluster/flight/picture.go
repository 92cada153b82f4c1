package main

import (
	"github.com/usmbridge/usmbridge/examples/internal/photo"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// readPicture decodes a picture into an array of rows: float32, height x width x 3, 0 to
// 255. The caller releases it.
func readPicture(path string, memory memmgr.Resource) (*usmarray.Array, error) {
	img, _, err := photo.Read(path)
	if err != nil {
		return nil, err
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
	photo.Fill(values, img)
	return a, nil
}
