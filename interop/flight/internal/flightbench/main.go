// Command flightbench sends one array over a Unix socket in several ways, in turn: with package flight, with a
// plain copy through a socket, and with arrow-go. It prints medians, and ratios with their bounds. Client and
// server are in this process, so its processor time includes both.
//
//	flightbench [-size 67108864] [-rounds 7]
//
// Then pyarrow.py compares package flight with a Flight server in Python. The Python of
// VIRTUAL_ENV, or /usr/bin/python3, must have pyarrow.
package main

import (
	"cmp"
	"context"
	_ "embed" // for the Python program
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/usmbridge/usmbridge/interop/flight"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// way is one way to send the array.
type way struct {
	name string
	once func() error
	wall []time.Duration
	cpu  []time.Duration
}

func main() {
	size := flag.Int("size", 64<<20, "bytes of the array")
	rounds := flag.Int("rounds", 7, "measured rounds, after two rounds of warm-up")
	flag.Parse()
	if err := run(*size, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "flightbench:", err)
		os.Exit(1)
	}
}

func run(size, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "flightbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithDecay(0)) // keeps its pages, like the other ways
	defer func() { err = errors.Join(err, pool.Close()) }()
	a, err := usmarray.Full(pool, usmarray.Float32, []int{size / 4096, 1024}, float32(1.5))
	if err != nil {
		return err
	}
	defer a.Release()
	server, err := flight.NewServer(flight.ServerOptions{Memory: pool})
	if err != nil {
		return err
	}
	defer server.Close()
	l, at, err := server.Listen(flight.Location{Scheme: "grpc+unix", Address: filepath.Join(dir, "ours")})
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(l) }()
	return errors.Join(golang(dir, at, a, pool, rounds), pyarrow(dir, at, size, rounds))
}

//go:embed pyarrow.py
var program string

func pyarrow(dir string, at flight.Location, size, rounds int) error {
	exe := filepath.Join(cmp.Or(os.Getenv("VIRTUAL_ENV"), "/usr"), "bin", "python3")
	cmd := exec.Command(exe, "-c", program, at.String(), "grpc+unix://"+filepath.Join(dir, "python"), strconv.Itoa(size), strconv.Itoa(rounds))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// golang compares the ways in Go.
func golang(dir string, at flight.Location, a *usmarray.Array, pool memmgr.Resource, rounds int) error {
	c, err := flight.Dial(at.String(), flight.ClientOptions{})
	if err != nil {
		return err
	}
	defer c.Close()
	plain, err := newPlain(filepath.Join(dir, "plain"), a, pool)
	if err != nil {
		return err
	}
	defer plain.close()
	stock, err := newStock(filepath.Join(dir, "stock"), a, pool)
	if err != nil {
		return err
	}
	defer stock.close()
	ways := []*way{
		{name: "plain socket", once: plain.put},
		{name: "flight put", once: func() error { return c.Put(context.Background(), "x", a) }},
		{name: "flight get", once: func() error {
			got, err := c.Get(context.Background(), "x", pool)
			if err == nil {
				got.Release()
			}
			return err
		}},
		{name: "arrow-go put", once: stock.put},
		{name: "arrow-go get", once: stock.get},
	}
	if err := measure(ways, rounds); err != nil {
		return err
	}
	fmt.Printf("%d MiB over a unix socket, both ends in one process, medians of %d\n\n", a.NBytes()>>20, rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, x := range ways {
		fmt.Fprintf(w, "%s\t%.1f ms\tCPU %.1f ms\n", x.name, 1e3*median(x.wall), 1e3*median(x.cpu))
	}
	fmt.Fprintln(w)
	for i := 1; i <= 2; i++ {
		cpu, name := median(ways[i].cpu), ways[i].name
		bound(w, name+", speed of the plain socket's", median(ways[0].wall)/median(ways[i].wall), ">=", 0.5)
		bound(w, name+", CPU of the plain socket's", cpu/median(ways[0].cpu), "<=", 2.2)
		bound(w, name+", CPU of arrow-go's", cpu/median(ways[i+2].cpu), "<=", 0.5)
	}
	return w.Flush()
}

func bound(w *tabwriter.Writer, name string, ratio float64, sign string, limit float64) {
	verdict := "met"
	if sign == ">=" && ratio < limit || sign == "<=" && ratio > limit {
		verdict = "MISSED"
	}
	fmt.Fprintf(w, "%s\t%.2f\tbound %s %.2f\t%s\n", name, ratio, sign, limit, verdict)
}

// measure runs the ways in turn.
func measure(ways []*way, rounds int) error {
	for round := -2; round < rounds; round++ {
		for _, x := range ways {
			cpu, start := processorTime(), time.Now()
			if err := x.once(); err != nil {
				return errors.Join(errors.New(x.name), err)
			}
			if round >= 0 {
				x.wall = append(x.wall, time.Since(start))
				x.cpu = append(x.cpu, processorTime()-cpu)
			}
		}
	}
	return nil
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// median returns a number of seconds.
func median(d []time.Duration) float64 {
	return slices.Sorted(slices.Values(d))[len(d)/2].Seconds()
}
