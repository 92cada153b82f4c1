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
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/usmbridge/usmbridge/interop/inference/internal/admin"
	"github.com/usmbridge/usmbridge/interop/inference/internal/backend"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
	builtin "github.com/usmbridge/usmbridge/interop/inference/models"
	bootstrap "github.com/usmbridge/usmbridge/interop/inference/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// service is all that runs, from the memory up to the listeners.
type service struct {
	config  *config
	log     *slog.Logger
	backend *backend.Backend
	regions *region.Registry
	engine  *engine.Engine
	rest    *http.Server
	rpc     *rpc.Server
	pages   *admin.Handler
	traces  *traces.Traces
	admin   *http.Server // nil where the pages are served at the address of REST, or not at all

	restarts  map[int]int // of each worker, as logged
	listeners []net.Listener
	failed    chan error // a server that ended by itself
	serving   sync.WaitGroup
}

// serve runs the service until ctx ends, and drains it.
func serve(ctx context.Context, c *config, out io.Writer, log *slog.Logger) (err error) {
	s := &service{config: c, log: log, failed: make(chan error, 4), restarts: map[int]int{}}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := s.start(out); err != nil {
		return err
	}
	watched, cancel := context.WithCancel(context.Background())
	defer cancel()
	go watch(watched, s.log, func() error {
		s.logRestarts()
		return s.engine.Live()
	})
	if err := s.backend.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	fmt.Fprintln(out, "listening on", shown(s.listeners[0]))
	notify(s.log, daemon.SdNotifyReady)
	select {
	case <-ctx.Done():
	case err := <-s.failed:
		return err
	}
	if c.drainDelay > 0 {
		s.engine.Retire()
		log.Info("not ready; draining begins later", "delay", c.drainDelay)
		select {
		case <-time.After(c.drainDelay):
		case err := <-s.failed:
			return err
		}
	}
	return nil
}

// processors gives Go's scheduler as many processors more as calls run in Python at a time, the
// serial one among them: a thread in C keeps its processor until the scheduler finds it missing,
// which on two processors held everybody else up. (64 clients flooding sobel, one quiet one:
// its p99 was 114 ms, and 9 ms so.) GOMAXPROCS in the environment is left as it is.
func processors(slots int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + slots + 1)
	}
}

// open makes everything below the listeners: after it, models are known and begin to warm up.
func (s *service) open(ctx context.Context) (err error) {
	c := s.config
	limit, why := c.limit, "-limit"
	if limit == 0 {
		all, source, err := memoryLimit()
		if err != nil {
			return err
		}
		limit, why = all/2, "half of "+source
	}
	sources := builtin.Sources()
	if c.models != "" {
		if sources, err = models.Read(c.models); err != nil {
			return err
		}
	}
	if c.workers == 0 {
		processors(cmp.Or(c.slots, backend.DefaultSlots))
	}
	var regions uint64 // of the limit
	if c.sharesMemory() {
		regions = max(limit/4, 1)
	}
	if s.backend, err = backend.Open(ctx, backend.Options{Sources: sources, Bootstrap: bootstrap.Source, Limit: limit, Regions: regions,
		Slots: c.slots, Workers: c.workers, Log: s.log}); err != nil {
		return err
	}
	s.log.Info("memory", "place", s.backend.Memory.Place(), "limit", limit, "because", why)
	if c.sharesMemory() {
		o := region.Options{Prefix: c.shmPrefix, MaxBytes: regions}
		if !s.backend.Queue.IsHost() {
			o.Queue, o.Kind = s.backend.Queue, s.backend.Kind
		}
		s.regions = region.New(o)
	}
	s.engine, err = engine.New(engine.Options{Version: usmarray.Version, Models: s.backend.Models, Runner: s.backend.Runner,
		Memory: s.backend.Memory, Limit: s.backend.Limit, Calls: s.backend.Calls, CallsLimit: s.backend.CallsLimit,
		ForModels: s.backend.ForModels, Regions: s.regions, Apart: c.workers > 0,
		Turns: s.backend.Turns, Shared: s.backend.Shared, Timeout: c.timeout, Log: s.log})
	return err
}

// start opens the addresses and serves: health at once, requests when the models are warm.
func (s *service) start(out io.Writer) error {
	c := s.config
	var hosts []string
	if c.hosts != "" {
		hosts = strings.Split(c.hosts, ",")
	}
	var err error
	if s.traces, err = traces.FromEnv(context.Background(), os.Getenv); err != nil {
		return err
	}
	handler, err := rest.New(rest.Options{Engine: s.engine, Log: s.log, Tenants: c.tenants, Hosts: hosts, Traces: s.traces})
	if err != nil {
		return err
	}
	s.rest = handler.Server()
	if c.admin != none {
		o := admin.Options{Pool: s.backend.Memory, Calls: s.backend.Calls, CallsLimit: s.backend.CallsLimit, Hosts: hosts}
		if s.backend.Workers != nil {
			o.Workers = s.workers
		}
		s.pages = admin.New(s.engine, o)
	}
	if c.admin == c.addr {
		s.rest.Handler = both(handler, s.pages)
	}
	if err := s.listen(c.addr, func(l net.Listener) error { return rest.Serve(s.rest, l, rest.Connections{}) }); err != nil {
		return err
	}
	if c.grpc != none {
		if s.rpc, err = rpc.New(rpc.Options{Engine: s.engine, Tenants: c.tenants, Log: s.log, Traces: s.traces}); err != nil {
			return err
		}
		if err := s.listen(c.grpc, s.rpc.Serve); err != nil {
			return err
		}
		fmt.Fprintln(out, "gRPC on", shown(s.listeners[len(s.listeners)-1]))
	}
	if s.pages != nil && c.admin != c.addr {
		s.admin = &http.Server{Handler: s.pages, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
		if err := s.listen(c.admin, func(l net.Listener) error { return rest.Serve(s.admin, l, rest.Connections{Most: 64}) }); err != nil {
			return err
		}
		fmt.Fprintln(out, "admin on", shown(s.listeners[len(s.listeners)-1]))
	}
	return nil
}

// logRestarts logs the workers that were restarted since the last call.
func (s *service) logRestarts() {
	if s.backend.Workers == nil {
		return
	}
	for _, w := range s.backend.Workers.Workers() {
		if w.Restarts > s.restarts[w.Index] {
			death, _, _ := strings.Cut(fmt.Sprint(w.Last), "\n") // the rest is the output of the worker
			s.log.Warn("a worker was restarted", "worker", w.Index, "restarts", w.Restarts, "reason", death)
		}
		s.restarts[w.Index] = w.Restarts
	}
}

// workers lists the processes that run models, for metrics and the status page.
func (s *service) workers() []admin.Worker {
	var out []admin.Worker
	for _, w := range s.backend.Workers.Workers() {
		out = append(out, admin.Worker{Name: fmt.Sprint("worker ", w.Index), State: string(w.State), Ready: w.State == workers.Ready,
			Calls: w.Calls, Restarts: uint64(max(w.Restarts, 0))})
	}
	return out
}

// both serves the protocol below /v2, and the pages beside it.
func both(protocol, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2") {
			protocol.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// listen opens an address and serves it beside the others.
func (s *service) listen(address string, serve func(net.Listener) error) error {
	l, err := listen(address)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, l)
	s.serving.Go(func() {
		if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("%s: %w", address, err)
		}
	})
	return nil
}

// cutOff is the time that interrupted requests and calls have to end.
const cutOff = 5 * time.Second

// end drains what there is, in the order in which it was made, backwards, and says what is
// left. It may be called on a service that was opened in part.
func (s *service) end() error {
	notify(s.log, daemon.SdNotifyStopping)
	ctx, cancel := context.WithTimeout(context.Background(), s.config.drain)
	defer cancel()
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if s.engine != nil {
		s.engine.Drain()
	}
	if s.pages != nil {
		s.pages.Close() // running profiles
	}
	var servers sync.WaitGroup
	var mu sync.Mutex
	for what, drain := range s.servers() {
		servers.Go(func() {
			err := drain(ctx)
			mu.Lock()
			defer mu.Unlock()
			note(what, err)
		})
	}
	servers.Wait()
	s.serving.Wait()
	for _, l := range s.listeners {
		_ = l.Close() // those that no server took
	}

	// Requests that were cut off end soon; so does a call of Python that is interrupted.
	late, cancelLate := context.WithTimeout(context.WithoutCancel(ctx), cutOff)
	defer cancelLate()
	if s.engine != nil {
		note("requests", s.engine.Close(late))
	}
	if err := s.traces.Close(late); err != nil {
		s.log.Warn("traces that the collector did not take are lost", "error", err)
	}
	if s.regions != nil {
		note("regions", s.regions.Close())
		if regions, bytes, leases := s.regions.InUse(); regions > 0 || leases > 0 {
			note("regions", fmt.Errorf("%d regions of %d bytes are left, %d leases", regions, bytes, leases))
		}
	}
	if s.backend != nil {
		err := s.closeBackend(ctx)
		if leak, ok := errors.AsType[*memmgr.LeakError](err); ok {
			s.log.Warn("memory is in use at the end: a model keeps it", "leak", leak)
			err = nil
		} else if err == nil {
			s.log.Info("no memory is in use at the end")
		}
		note("models", err)
	}
	return errors.Join(errs...)
}

// closeBackend closes the backend and ends Python. It does not wait without a bound: a model that
// holds Python's GIL in C may never release it.
func (s *service) closeBackend(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(s.backend.Close(ctx), backend.End()) }()
	select {
	case err := <-closed:
		return err
	case <-afterBoth(ctx, cutOff):
		return fmt.Errorf("calls did not end within %v", cutOff)
	}
}

// afterBoth returns a channel that is closed at a time d after the end of a context.
func afterBoth(ctx context.Context, d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(d, func() { close(over) }) })
	return over
}

// servers are those that were made, by name, and how each is drained.
func (s *service) servers() map[string]func(context.Context) error {
	all := map[string]func(context.Context) error{}
	for what, server := range map[string]*http.Server{"REST": s.rest, "admin": s.admin} {
		if server != nil {
			all[what] = func(ctx context.Context) error {
				err := server.Shutdown(ctx)
				if err != nil {
					err = errors.Join(err, server.Close())
				}
				return err
			}
		}
	}
	if s.rpc != nil {
		all["gRPC"] = s.rpc.Drain
	}
	return all
}
