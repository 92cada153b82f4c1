// Command cluster finds the edges of a picture with a Dask cluster: each of two worker processes
// holds half of the rows in shared USM, and a client gathers the results.
//
//	make build python
//	VIRTUAL_ENV=.venv go run ./examples/cluster [-in picture.jpg]
//
// Go reads the picture and starts bin/usmpython with shards.py, which starts the workers. One worker
// is killed after it read its rows. Dask has them read and computed again, and the program compares
// the result with that of one process.
//
// docs/dask.md describes the same job on several machines.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/examples/internal/photo"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/usmarray"
)

//go:embed shards.py
var shards []byte

func main() {
	in := flag.String("in", "", "a PNG or JPEG; without it a photograph of the Go installation")
	host := flag.String("python", "bin/usmpython", "usmpython: make build")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *in, *host, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run starts the cluster for one picture and copies its report to out.
func run(ctx context.Context, in, host string, out io.Writer) error {
	host, err := exec.LookPath(host)
	if err != nil {
		return fmt.Errorf("%w; make build python, or name usmpython with -python", err)
	}
	dir, err := os.MkdirTemp("", "usmbridge-cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	picture, program := filepath.Join(dir, "picture.npy"), filepath.Join(dir, "shards.py")
	if err := luminance(ctx, in, picture); err != nil {
		return err
	}
	if err := os.WriteFile(program, shards, 0o600); err != nil {
		return err
	}
	fmt.Fprintln(out, "picture:  ", in)
	cmd := exec.CommandContext(ctx, host, program, picture)
	// On an interrupt the Python program stops its workers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the cluster: %w\n%s", err, stderr.String())
	}
	return nil
}

// luminance writes the luminance of a picture to a .npy file: float32, height x width.
func luminance(ctx context.Context, in, to string) error {
	img, _, err := photo.Read(in)
	if err != nil {
		return err
	}
	b := img.Bounds()
	values := make([]float32, 0, b.Dx()*b.Dy())
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			red, green, blue, _ := img.At(x, y).RGBA()
			values = append(values, 0.299*float32(red>>8)+0.587*float32(green>>8)+0.114*float32(blue>>8))
		}
	}
	grey, err := usmarray.FromPinnedSlice(values, []int{b.Dy(), b.Dx()})
	if err != nil {
		return err
	}
	defer grey.Release()
	return npy.Save(ctx, to, grey, npy.WriteOptions{InPlace: true})
}
