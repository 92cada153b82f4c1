// Command usmflight is an Arrow Flight server for tensors over a pool of memory.
//
//	usmflight -listen grpc+unix:///run/tensors.sock -limit 8589934592
//	usmflight -listen grpc+tcp://0.0.0.0:8815 -tls-cert cert.pem -tls-key key.pem -token-file tokens
//
// It prints "listening on LOCATION" when it is ready. SIGTERM and SIGINT end it: calls
// that are under way may finish for as long as -drain says, a second signal ends it at
// once. What it serves is package interop/flight's page to tell.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/interop/flight"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	go func() { // the signal after the first has its usual effect
		<-ctx.Done()
		stop()
	}()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "usmflight:", err)
		os.Exit(1)
	}
}

// settings are the arguments.
type settings struct {
	listen, cert, key, tokens, memory string
	limit                             uint64
	message, batch                    int
	drain                             time.Duration
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("usmflight", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.listen, "listen", "", "`LOCATION`: grpc+tcp://HOST:PORT or grpc+unix:///PATH")
	f.Uint64Var(&s.limit, "limit", 0, "`BYTES` that tensors may take, those being received included; 0 for no limit")
	f.StringVar(&s.cert, "tls-cert", "", "`FILE` with the certificate, PEM")
	f.StringVar(&s.key, "tls-key", "", "`FILE` with its key, PEM")
	f.StringVar(&s.tokens, "token-file", "", "`FILE` with the tokens that calls may carry, one a line; without TLS for unix sockets and loopback addresses only")
	f.StringVar(&s.memory, "memory", "plain", "where tensors lie: plain, or SYCL's shared, host or device memory of the default device")
	f.IntVar(&s.message, "max-message", codec.DefaultMaxMessage, "`BYTES` of the largest batch that is received")
	f.IntVar(&s.batch, "batch", 1<<20, "`BYTES` of a batch that is sent, unless the client asks for another size (metadata usmbridge-batch-bytes)")
	f.DurationVar(&s.drain, "drain", 30*time.Second, "how long calls may go on after SIGTERM")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q; see usmflight -h", f.Arg(0))
	case s.listen == "":
		return s, errors.New("-listen is missing; see usmflight -h")
	case (s.cert == "") != (s.key == ""):
		return s, errors.New("-tls-cert and -tls-key go together")
	}
	return s, nil
}

// run serves until the context ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	at, err := flight.ParseLocation(s.listen)
	if err != nil {
		return err
	}
	o := flight.ServerOptions{Limits: codec.Limits{MaxMessage: s.message}, Batch: s.batch}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return err
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if s.tokens != "" {
		if o.Tokens, err = flight.ReadTokens(s.tokens); err != nil {
			return err
		}
	}
	upstream, end, err := memory(s.memory)
	if err != nil {
		return err
	}
	defer end()
	options := []memmgr.PoolOption{memmgr.WithName("flight")}
	if s.limit > 0 {
		options = append(options, memmgr.WithLimit(s.limit))
	}
	pool := memmgr.NewPool(upstream, options...)
	o.Memory = pool
	return errors.Join(serve(ctx, s, at, o, stdout), pool.Close())
}

func serve(ctx context.Context, s settings, at flight.Location, o flight.ServerOptions, stdout io.Writer) error {
	server, err := flight.NewServer(o)
	if err != nil {
		return err
	}
	defer server.Close()
	l, at, err := server.Listen(at)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Fprintln(stdout, "listening on", at)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	if err := server.Drain(limit); err != nil {
		return fmt.Errorf("calls were broken off after %v", s.drain)
	}
	return <-served
}

// memory is what the pool stands on, and the function that ends it.
func memory(kind string) (memmgr.Resource, func(), error) {
	kinds := map[string]syclobj.USMKind{"shared": syclobj.USMShared, "host": syclobj.USMHost, "device": syclobj.USMDevice}
	if kind == "plain" {
		return memmgr.Host(), func() {}, nil
	}
	k, ok := kinds[kind]
	if !ok {
		return nil, nil, fmt.Errorf("-memory %q; there are plain, shared, host and device", kind)
	}
	rt, err := syclobj.Open()
	if err != nil {
		return nil, nil, err
	}
	q := rt.DefaultQueue()
	if q.IsHost() {
		rt.Close()
		return nil, nil, fmt.Errorf("-memory %s needs SYCL, and there is none; usminfo says what is missing", kind)
	}
	r := memmgr.USM(q, k)
	return r, func() {
		_ = memmgr.CloseDefaults() // what device memory was staged through
		_ = memmgr.Close(r)
		rt.Close()
	}, nil
}
