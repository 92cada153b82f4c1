// Command flight computes on a picture in several processes by Arrow Flight: two shards
// with half of its rows each, and a client that gathers what they found.
//
//	make build python
//	cd examples/cluster/flight && VIRTUAL_ENV=../../../.venv go run . [-in picture.jpg]
//
// The client puts the picture by rows. Each shard receives its rows into shared USM (the
// host's memory where there is no SYCL), and is then asked (DoAction) to take their
// luminance with a function that Numba compiled, in the Python that it hosts, on the
// array where it lies. The client gathers the results, both shards at a time and each into
// its rows of one array, and compares them with its own of the whole. Then one shard is
// killed: the rows that nobody has any more are reported, and what was put twice
// (-copies 2 of [flight.Cluster.Put]) is still there in full.
//
// # Several machines
//
// On each machine that is to have a shard:
//
//	flight -shard grpc+tcp://0.0.0.0:8815
//
// and then, where the picture is:
//
//	flight -shards grpc+tcp://one:8815,grpc+tcp://two:8815 -in picture.png
//
// (nothing is killed then). These connections are in the clear, for a network that one
// trusts; package interop/flight has TLS and tokens, which a service of one's own sets in
// ServerOptions and ClientOptions.
//
// What it takes: of S bytes on N endpoints each receives S/N and sends what it has of the
// result. The client sends S in all and each shard takes in S/N, so that a put takes the
// longer of S over the client's bandwidth and S/N over a shard's: with links of one speed
// the client's link decides, 4 GB over 10 Gbit/s (1.25 GB/s) are 3.2 s whether N is 2 or
// 8. What N divides is the memory, the computing, and all that shards read by themselves.
// Two copies of each shard double what the client sends. The result here is a third of
// the picture (one float32 for three), so that gathering takes a third of the put.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	var s settings
	shard := flag.String("shard", "", "be a shard: serve at `LOCATION` (grpc+tcp://HOST:PORT or grpc+unix:///PATH)")
	attached := flag.Bool("attached", false, "with -shard: end when standard input ends, as with the process that started it")
	shards := flag.String("shards", "", "`LOCATIONS` of shards that run already, with commas; without it two are started here")
	flag.StringVar(&s.in, "in", "", "a PNG or JPEG; without it a photograph of the Go installation")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errors.New("unexpected arguments; see -h")
	switch {
	case flag.NArg() > 0:
	case *shard != "":
		err = serve(ctx, *shard, *attached, os.Stdin, os.Stdout)
	default:
		if *shards != "" {
			s.shards = strings.Split(*shards, ",")
		}
		err = run(ctx, s, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flight:", err)
		os.Exit(1)
	}
}
