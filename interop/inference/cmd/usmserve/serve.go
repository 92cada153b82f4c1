package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/usmbridge/usmbridge/interop/flight/admission"
	"github.com/usmbridge/usmbridge/interop/inference/internal/admin"
	"github.com/usmbridge/usmbridge/interop/inference/internal/backend"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// service is the parts of the server, in the order of their creation.
type service struct {
	config *config
	log    *slog.Logger

	rest, grpc, admin net.Listener // nil if not served
	traces            *traces.Traces
	backend           *backend.Backend
	engine            *engine.Engine
	models            *loader
	drains            []func(context.Context) error // of the servers of REST and gRPC
	drainAdmin        func(context.Context) error   // nil if it is not served
	failed            chan error                    // a server that ended by itself
}

// serve runs the server until ctx ends, and drains it. SIGHUP reloads the models.
func serve(ctx context.Context, c *config, out io.Writer, log *slog.Logger) (err error) {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	s := &service{config: c, log: log, failed: make(chan error, 3)}
	for _, b := range []struct {
		listener *net.Listener
		address  string
	}{{&s.rest, c.addr}, {&s.grpc, c.grpc}, {&s.admin, c.admin}} {
		if b.address == none {
			continue
		}
		l, err := listen(b.address)
		if err != nil {
			return err
		}
		defer l.Close() // without a server, if the start fails
		*b.listener = admission.Limit(l, c.maxConnections)
	}
	if s.traces, err = traces.FromEnv(context.Background(), os.Getenv); err != nil {
		return err
	}
	if err := s.openEngine(ctx); err != nil {
		return err
	}
	background, cancel := context.WithCancel(context.Background())
	defer func() { err = errors.Join(err, s.end(cancel)) }()
	s.start(background, out) // serves health; models are not ready yet
	go watch(background, log, s.engine.Live)
	loaded := make(chan error, 1)
	s.models.work.Go(func() { s.models.follow(reload, loaded) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case err := <-s.failed:
			return err
		case err := <-loaded:
			if err != nil && ctx.Err() == nil {
				return err
			}
			s.engine.Loaded()
			if err := s.engine.Ready(); err != nil {
				log.Error("the server is not ready", "reason", oip.As(err).Message)
			} else {
				fmt.Fprintln(out, "listening on", shown(s.rest))
			}
			notify(log, daemon.SdNotifyReady)
		}
	}
	if c.drainDelay > 0 {
		s.engine.Retire()
		log.Info("not ready; requests are served until the drain begins", "delay", c.drainDelay)
		select {
		case <-time.After(c.drainDelay):
		case err := <-s.failed:
			return err
		}
	}
	return nil
}

// openEngine opens the memory of tensors and of shared memory, starts Python, and makes the engine. Its models are not
// loaded yet; their loads end with ctx.
func (s *service) openEngine(ctx context.Context) error {
	c := s.config
	limit := c.limit
	if limit == 0 {
		all, err := memoryLimit()
		if err != nil {
			return err
		}
		limit = all / 2
	}
	if c.workers == 0 {
		addProcessors(cmp.Or(c.slots, backend.DefaultSlots))
	}
	o := backend.Options{Limit: limit, Slots: c.slots, Workers: c.workers, LoadTime: c.loadTimeout, Log: s.log}
	if c.sharesMemory() {
		o.Regions = limit / 4
	}
	b, err := backend.Open(o)
	if err != nil {
		return err
	}
	s.backend = b
	s.log.Info("memory is open", "place", b.Memory.Place().String(), "limit", limit)
	regions := region.Options{Prefix: c.shmPrefix, MaxBytes: o.Regions}
	if !b.Queue.IsHost() {
		regions.Queue, regions.Kind = b.Queue, b.Kind
	}
	s.models = &loader{directory: c.models, backend: b, log: s.log, timeout: c.timeout + c.drain, ctx: ctx, turns: map[string]chan struct{}{}}
	var load, unload func(context.Context, string) error // for clients
	if c.modelControl {
		load, unload = s.models.loadOne, s.models.unload
	}
	s.engine = engine.New(engine.Options{Version: usmarray.Version, Memory: b.Memory, Calls: b.Calls, Results: b.Results,
		ForModels: b.ForModels, Regions: region.New(regions), Runner: b.Runner, Load: load, Unload: unload, Apart: c.workers > 0, Timeout: c.timeout, Log: s.log})
	s.models.engine = s.engine
	return nil
}

// addProcessors adds a processor to Go's scheduler for each call that runs in Python at a time. A thread
// in C keeps its processor until the scheduler takes it back, which delays all other goroutines on a
// machine of two processors. (64 clients flooding sobel: the p99 of another client was 114 ms, and is 9
// ms.) GOMAXPROCS in the environment has precedence.
func addProcessors(slots int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + slots + 1)
	}
}

// start serves the addresses. Profiles end with ctx.
func (s *service) start(ctx context.Context, out io.Writer) {
	hosts := strings.Split(s.config.hosts, ",")
	s.drains = append(s.drains, s.serveHTTP("REST", rest.New(s.engine, s.traces, hosts).Server(), s.rest))
	if s.grpc != nil {
		server := rpc.New(s.engine, s.traces)
		s.drains = append(s.drains, s.runServer("gRPC", func() error { return server.Serve(s.grpc) }, server.Drain))
		fmt.Fprintln(out, "gRPC on", shown(s.grpc))
	}
	if s.admin != nil {
		s.drainAdmin = s.serveHTTP("admin", admin.Server(ctx, s.engine, hosts), s.admin)
		fmt.Fprintln(out, "admin on", shown(s.admin))
	}
}

func (s *service) serveHTTP(name string, server *http.Server, l net.Listener) (drain func(context.Context) error) {
	return s.runServer(name, func() error { return server.Serve(l) }, func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		return err
	})
}

// runServer runs a server in the background until drain ends it. It returns drain, with the name in its error.
func (s *service) runServer(name string, run func() error, drain func(context.Context) error) func(context.Context) error {
	go func() {
		if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.failed <- named(name, err)
		}
	}()
	return func(ctx context.Context) error { return named(name, drain(ctx)) }
}

// named adds a name to an error; nil stays nil.
func named(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// cutOff is the time that interrupted requests and calls have to end.
const cutOff = 5 * time.Second

// end drains the servers and closes all parts. Requests that have not ended within -drain are interrupted, and get
// responses. ADMIN is served until the last request has ended; then endAdmin ends
// its profiles. Errors: those of the parts, among them requests that did not end and leaks.
func (s *service) end(endAdmin context.CancelFunc) error {
	notify(s.log, daemon.SdNotifyStopping)
	drained, cancel := context.WithTimeout(context.Background(), s.config.drain)
	defer cancel()
	ended, cancelEnded := context.WithTimeout(context.Background(), s.config.drain+cutOff)
	defer cancelEnded()
	s.log.Info("draining", "limit", s.config.drain)
	s.engine.Drain()
	defer context.AfterFunc(drained, s.engine.Interrupt)()
	errs := make([]error, len(s.drains))
	var all sync.WaitGroup
	for i, drain := range s.drains {
		all.Go(func() { errs[i] = drain(ended) })
	}
	all.Wait()
	errs = append(errs, s.engine.Close(ended))
	endAdmin()
	if s.drainAdmin != nil {
		errs = append(errs, s.drainAdmin(ended))
	}
	if err := s.traces.Close(ended); err != nil {
		s.log.Warn("the collector did not take all traces", "error", err)
	}
	errs = append(errs, s.engine.Options.Regions.Close(), s.closeBackend(drained, ended))
	return errors.Join(errs...)
}

// closeBackend closes the models and their memory, and ends Python. Calls may run until drained ends, and
// are interrupted then. A model that holds Python's GIL in C may never release it, so closeBackend
// returns when ended ends.
func (s *service) closeBackend(drained, ended context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(s.models.close(drained), s.backend.Close(), s.backend.End()) }()
	var err error
	select {
	case err = <-closed:
	case <-ended.Done():
		return fmt.Errorf("calls did not end within %v", cutOff)
	}
	if leak, ok := errors.AsType[*memmgr.LeakError](err); ok {
		s.log.Warn("memory is in use at the end: a model keeps it", "leak", leak)
		return nil
	}
	if err == nil {
		s.log.Info("no memory is in use at the end")
	}
	return err
}
