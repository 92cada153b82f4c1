// Command usmflight is an Arrow Flight server for tensors over a pool of memory.
//
//	usmflight -listen grpc+unix:///run/tensors.sock -limit 8589934592
//	usmflight -listen grpc+tcp://0.0.0.0:8815 -tls-cert cert.pem -tls-key key.pem -token-file tokens
//
// It prints "listening on LOCATION" when it is ready. After SIGTERM or SIGINT it accepts no new
// connection, waits up to -drain for running calls, and exits. A second signal ends it immediately.
//
// An address that other machines can reach needs TLS and tokens; -insecure permits it without.
//
// All tensors are in memory. Nothing is written to disk: a restart, a crash or the end of the process
// loses every tensor. A put under an existing name keeps the former tensor until the new one is
// complete, so -limit must have room for both. Package interop/flight describes the protocol.
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
	go func() { // a second signal has its default effect
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

// settings are the values of the command line.
type settings struct {
	listen, cert, key, tokens, memory string
	limit                             uint64
	message, batch, tensors           int
	insecure                          bool
	drain                             time.Duration
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("usmflight", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.listen, "listen", "", "`LOCATION`: grpc+tcp://HOST:PORT or grpc+unix:///PATH")
	f.Uint64Var(&s.limit, "limit", 0, "`BYTES` of memory for all tensors, including those being received; 0 for no limit")
	f.IntVar(&s.tensors, "max-tensors", 1<<16, "maximum `NUMBER` of tensors")
	f.BoolVar(&s.insecure, "insecure", false, "permit an address that other machines can reach without TLS and tokens: every client that can connect reads, replaces and frees all tensors")
	f.StringVar(&s.cert, "tls-cert", "", "`FILE` with the certificate, PEM; it and its key are read again when they change")
	f.StringVar(&s.key, "tls-key", "", "`FILE` with the key of the certificate, PEM")
	f.StringVar(&s.tokens, "token-file", "", "`FILE` with the tokens that permit calls, one per line; without TLS only for Unix sockets and loopback addresses")
	f.StringVar(&s.memory, "memory", "plain", "memory of the tensors: plain, or the shared, host or device memory of the default SYCL device")
	f.IntVar(&s.message, "max-message", codec.DefaultMaxMessage, "maximum `BYTES` of a received batch")
	f.IntVar(&s.batch, "batch", 1<<20, "`BYTES` of a sent batch, unless the client requests another size (metadata usmbridge-batch-bytes)")
	f.DurationVar(&s.drain, "drain", 30*time.Second, "maximum time to wait for running calls after SIGTERM")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q; see usmflight -h", f.Arg(0))
	case s.listen == "":
		return s, errors.New("-listen is missing; see usmflight -h")
	case (s.cert == "") != (s.key == ""):
		return s, errors.New("-tls-cert and -tls-key must be given together")
	case s.tensors < 1:
		return s, fmt.Errorf("-max-tensors is %d, must be at least 1", s.tensors)
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
	if !s.insecure && !at.Local() && (s.cert == "" || s.tokens == "") {
		return fmt.Errorf("other machines can reach %v: give -tls-cert, -tls-key and -token-file, or permit every client with -insecure", at)
	}
	o := flight.ServerOptions{Limits: codec.Limits{MaxMessage: s.message}, Batch: s.batch, MaxTensors: s.tensors}
	if s.cert != "" {
		c := &certificate{files: [2]string{s.cert, s.key}, stderr: stderr}
		if _, err := c.get(nil); err != nil {
			return err
		}
		o.TLS = &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
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
		return fmt.Errorf("calls still running after %v were ended; -drain sets this time", s.drain)
	}
	return <-served
}

// memory returns the resource of a kind for the pool, and the function that closes it.
func memory(kind string) (memmgr.Resource, func(), error) {
	kinds := map[string]syclobj.USMKind{"shared": syclobj.USMShared, "host": syclobj.USMHost, "device": syclobj.USMDevice}
	if kind == "plain" {
		return memmgr.Host(), func() {}, nil
	}
	k, ok := kinds[kind]
	if !ok {
		return nil, nil, fmt.Errorf("-memory %q: must be plain, shared, host or device", kind)
	}
	rt, err := syclobj.Open()
	if err != nil {
		return nil, nil, err
	}
	q := rt.DefaultQueue()
	if q.IsHost() {
		rt.Close()
		return nil, nil, fmt.Errorf("-memory %s needs SYCL, which was not found; run usminfo to find the missing library", kind)
	}
	r := memmgr.USM(q, k)
	return r, func() {
		_ = memmgr.CloseDefaults() // the pools of host USM through which device memory is copied
		_ = memmgr.Close(r)
		rt.Close()
	}, nil
}
