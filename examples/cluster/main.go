// Command cluster finds the edges of a picture with several processes: two workers of a
// Dask cluster, with a shard of its rows each, and a client that gathers them.
//
//	make build python
//	VIRTUAL_ENV=.venv go run ./examples/cluster [-in picture.jpg]
//
// One worker is killed in the middle; what it had is read and computed again, and the
// result compared with that of one process. Go reads the picture and starts bin/usmpython,
// in which the client runs and which the workers are copies of; shards.py is the rest.
//
// Directory flight has the same job over Arrow Flight, in Go, without Dask.
//
// On several machines the workers are `bin/usmpython -m distributed.cli.dask_worker
// tcp://SCHEDULER:8786`, with the picture at a path that all of them have, and Client takes
// the scheduler's address. What each endpoint then moves is its own shard once: of S bytes
// on N machines each sends S/N, at the same time as the others, so that the time is S/N
// over the bandwidth of one machine until N times that is what the client can take in,
// and S over the client's bandwidth from there on.
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

// run has the cluster work on a picture, and copies what it says to out.
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
	// Interrupted, it ends its workers itself.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = out, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the cluster: %w\n%s", err, said.String())
	}
	return nil
}

// luminance writes a picture's luminance as float32 rows in NumPy's format.
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
