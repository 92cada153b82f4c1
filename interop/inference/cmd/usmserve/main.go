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
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(problems, "usmserve:", err)
		return 2
	}
	log := c.logger(problems)
	slog.SetDefault(log)
	if os.Getenv("GOGC") == "" {
		// Tensors are outside of Go's heap, which is small and would be collected every few hundred
		// requests.
		debug.SetGCPercent(400)
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end first
	signaled, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(signaled, func() {
		stop() // before the server reacts: the next signal has its default effect
		log.Info("stopping; a second signal ends the process at once, and requests in flight are lost")
		cancel()
	})()
	if err := serve(ctx, c, out, log); err != nil {
		log.Error("the server ends", "error", err)
		return 1
	}
	log.Info("the server ends")
	return 0
}
