// Command usmserve is an inference server. It serves models, which are Python files, by the Open
// Inference Protocol, version 2, over REST and gRPC. All tensors are in the memory of one pool.
//
//	usmserve [-addr host:port] [-grpc host:port] [-admin host:port] [-models dir] …
//
// -h lists the flags. The command prints `listening on ADDR` when it serves requests. SIGTERM and
// SIGINT drain the server: requests in flight may finish within the time of -drain, and the exit
// status is 0. A second signal ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"github.com/usmbridge/usmbridge/interop/workers"
)

func main() {
	workers.Main() // a worker is this program too
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(args []string, out, problems io.Writer) int {
	c, err := parse(args, problems)
	if err != nil {
		return usage(err, problems)
	}
	log := c.logger(problems)
	slog.SetDefault(log)
	if os.Getenv("GOGC") == "" {
		// Tensors are outside of Go's heap, which is small and would be collected every few hundred
		// requests.
		debug.SetGCPercent(400)
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end first
	ctx, stop := untilSignal(log)
	defer stop()
	if err := serve(ctx, c, out, log); err != nil {
		log.Error("the server ends", "error", err)
		return 1
	}
	log.Info("the server ends")
	return 0
}

func usage(err error, w io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(w, "usmserve:", err)
	return 2
}

// untilSignal returns a context that ends with the first signal. The second signal ends the process.
func untilSignal(log *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	var seen atomic.Bool
	go func() {
		for s := range signals {
			if seen.Swap(true) {
				log.Error("second signal: requests in flight are lost", "signal", s)
				os.Exit(1)
			}
			log.Info("draining", "signal", s)
			cancel()
		}
	}()
	return ctx, func() { signal.Stop(signals); close(signals); cancel() }
}
