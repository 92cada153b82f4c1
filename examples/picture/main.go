// Command picture finds the edges of a picture: Go, dpctl and Numba pass it on in three buffers that Go
// allocated, without a copy.
//
//	picture [-in picture.png|.jpg] [-out edges.png]
//
// Go decodes the picture into shared USM (float32, height x width x 3). dpctl, on a CPython inside this
// process, imports that buffer through __sycl_usm_array_interface__ and runs an OpenCL C kernel on a SYCL
// queue, which writes the luminance Y = 0.299 R + 0.587 G + 0.114 B into a second buffer. Numba imports
// that through DLPack and writes the Sobel magnitude (3 x 3, edges replicated, rounded, at most 255) into
// a third. Go imports the result through DLPack and writes it as a grey PNG. A table shows each exchange
// of a buffer, a hand-over.
//
// Without SYCL the buffers are memory of the host backend and NumPy computes the luminance; the program
// reports that. It needs a Python with NumPy: `make run` sets one up.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/usmbridge/usmbridge/examples/internal/photo"
)

func main() {
	in := flag.String("in", "", "the `picture`, PNG or JPEG; without it a photograph of the Go installation")
	out := flag.String("out", "edges.png", "the `file` for the result, a grey PNG")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, *in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// run processes one picture. It checks the paths of picture and result before it starts Python.
func run(w io.Writer, in, out string) (err error) {
	picture, in, err := photo.Read(in)
	if err != nil {
		return err
	}
	if err := checkWritable(out); err != nil {
		return err
	}
	b, err := openBridge(w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Fprintf(w, "picture: %s, %d x %d pixels\n", in, picture.Bounds().Dx(), picture.Bounds().Dy())
	done, err := b.process(picture)
	if err != nil {
		return err
	}
	defer done.release()
	pixels, err := done.pixels()
	if err != nil {
		return err
	}
	if err := writePNG(out, pixels, done.width, done.height); err != nil {
		return err
	}
	done.print(w)
	fmt.Fprintf(w, "result:  %s\n", out)
	return nil
}
