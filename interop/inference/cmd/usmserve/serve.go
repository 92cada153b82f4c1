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
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/usmbridge/usmbridge/interop/inference/internal/admin"
	"github.com/usmbridge/usmbridge/interop/inference/internal/backend"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
	builtin "github.com/usmbridge/usmbridge/interop/inference/models"
	bootstrap "github.com/usmbridge/usmbridge/interop/inference/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// service is all parts of the server.
type service struct {
	config      *config
	log         *slog.Logger
	backend     *backend.Backend
	regions     *region.Registry
	engine      *engine.Engine
	rest        *http.Server
	rpc         *rpc.Server
	pages       http.Handler
	endProfiles context.CancelFunc
	traces      *traces.Traces
	admin       *http.Server // nil if the pages are served at the address of REST, or not at all

	loading sync.Mutex // held while models are loaded or unloaded
	loaded  atomic.Pointer[backend.Loaded]
	old     sync.WaitGroup // loads that were replaced and have not ended

	restarts  map[int]int // of each worker, as logged
	bound     []net.Listener
	listeners []net.Listener
	failed    chan error // a server that ended by itself
	serving   sync.WaitGroup
}

// serve runs the server until ctx ends, and drains it. SIGHUP reloads the models.
func serve(ctx context.Context, c *config, out io.Writer, log *slog.Logger) (err error) {
	s := &service{config: c, log: log, failed: make(chan error, 4), restarts: map[int]int{}}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	defer func() { err = errors.Join(err, s.end()) }()
	directory, sources, err := s.sources()
	if err != nil {
		return err
	}
	if err := s.bind(); err != nil {
		return err
	}
	if err := s.open(sources); err != nil {
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
	if err := s.load(ctx, directory, sources); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := s.engine.Ready(); err != nil {
		log.Error("the server is not ready", "reason", oip.As(err).Message)
	} else {
		fmt.Fprintln(out, "listening on", shown(s.bound[0]))
	}
	notify(s.log, daemon.SdNotifyReady)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case err := <-s.failed:
			return err
		case <-reload:
			if err := s.reload(ctx); err != nil {
				log.Error("the models were not loaded again; the old ones are served", "error", err)
			}
		}
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

// sources reads the models. directory is "" for the built-in ones.
func (s *service) sources() (directory string, sources []models.Source, err error) {
	if s.config.models == "" {
		return "", builtin.Sources(), nil
	}
	sources, err = models.Read(s.config.models)
	if err == nil {
		directory = filepath.Dir(sources[0].File)
	}
	return directory, sources, err
}

// load loads models and serves them instead of the current ones, which end when their requests have
// ended.
func (s *service) load(ctx context.Context, directory string, sources []models.Source) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	began := time.Now()
	l, err := s.backend.Load(ctx, directory, sources)
	if err != nil {
		return err
	}
	ended, err := s.engine.SetModels(l.Runner, l.Models)
	if err != nil {
		return errors.Join(err, l.Close(ctx))
	}
	for _, d := range l.Models {
		if d.Broken != "" {
			s.log.Error("a model is not served", "model", d.Meta.Name, "reason", d.Broken)
		}
	}
	s.log.Info("models are loaded", "models", len(l.Models), "took", time.Since(began).Round(time.Millisecond))
	if old := s.loaded.Swap(l); old != nil {
		s.old.Go(func() {
			late, cancel := context.WithTimeout(context.Background(), s.config.timeout+s.config.drain)
			defer cancel()
			if err := errors.Join(ended(late), old.Close(late)); err != nil {
				s.log.Error("replaced models do not end", "error", err)
			}
		})
	}
	return nil
}

// reload loads the models from their files again.
func (s *service) reload(ctx context.Context) error {
	directory, sources, err := s.sources()
	if err != nil {
		return err
	}
	return s.load(ctx, directory, sources)
}

// Load implements engine.Control. It loads all models, because models can import each other.
func (s *service) Load(ctx context.Context, model string) error {
	if err := s.reload(ctx); err != nil {
		s.log.Error("the models were not loaded again; the old ones are served", "error", err)
		return oip.Errorf(oip.NotReady, "the models could not be loaded; the log of the server has the reason")
	}
	m, err := s.engine.Model(model, "")
	if err != nil {
		return err
	}
	return m.Ready()
}

// Unload implements engine.Control.
func (s *service) Unload(_ context.Context, model string) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	return s.engine.Unload(model)
}

// bind opens the addresses, so that one in use is reported before models are imported.
func (s *service) bind() error {
	c := s.config
	addresses := []string{c.addr, c.grpc}
	if c.admin != c.addr {
		addresses = append(addresses, c.admin)
	}
	for _, address := range addresses {
		if address == none {
			continue
		}
		l, err := listen(address)
		if err != nil {
			return err
		}
		s.bound = append(s.bound, l)
	}
	return nil
}

// processors adds a processor to Go's scheduler for each call that runs in Python at a time. A thread in
// C keeps its processor until the scheduler takes it back, which delays all other goroutines on a
// machine of two processors. (64 clients flooding sobel: the p99 of another client was 114 ms, and is 9
// ms.) GOMAXPROCS in the environment has precedence.
func processors(slots int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + slots + 1)
	}
}

// open makes everything below the listeners. Models are known by name and not loaded yet.
func (s *service) open(sources []models.Source) (err error) {
	c := s.config
	limit, why := c.limit, "-limit"
	if limit == 0 {
		all, source, err := memoryLimit()
		if err != nil {
			return err
		}
		limit, why = all/2, "half of "+source
	}
	if c.workers == 0 {
		processors(cmp.Or(c.slots, backend.DefaultSlots))
	}
	var regions uint64 // of the limit
	if c.sharesMemory() {
		regions = max(limit/4, 1)
	}
	if s.backend, err = backend.Open(backend.Options{Bootstrap: bootstrap.Source, Limit: limit, Regions: regions,
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
	var loading []engine.Definition
	for _, source := range sources {
		loading = append(loading, engine.Definition{Meta: oip.Model{Name: source.Name}, Broken: "it is being loaded"})
	}
	s.engine, err = engine.New(engine.Options{Version: usmarray.Version, Models: loading,
		Memory: s.backend.Memory, Limit: s.backend.Limit, Calls: s.backend.Calls, CallsLimit: s.backend.CallsLimit,
		ForModels: s.backend.ForModels, Regions: s.regions, Apart: c.workers > 0,
		Turns: s.backend.Turns, Shared: s.backend.Shared, Timeout: c.timeout, Log: s.log})
	return err
}

// start serves the addresses: health now, requests when the models are loaded.
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
	var control engine.Control
	if c.modelControl {
		control = s
	}
	handler, err := rest.New(rest.Options{Engine: s.engine, Log: s.log, Control: control, Tenants: c.tenants, Hosts: hosts, Traces: s.traces})
	if err != nil {
		return err
	}
	s.rest = handler.Server()
	if c.admin != none {
		ctx, cancel := context.WithCancel(context.Background())
		s.endProfiles = cancel
		s.pages = admin.New(ctx, s.engine, admin.Options{Pool: s.backend.Memory, Calls: s.backend.Calls, CallsLimit: s.backend.CallsLimit, Hosts: hosts})
	}
	if c.admin == c.addr {
		s.rest.Handler = both(handler, s.pages)
	}
	s.listen(func(l net.Listener) error { return rest.Serve(s.rest, l, rest.Connections{}) })
	if c.grpc != none {
		if s.rpc, err = rpc.New(rpc.Options{Engine: s.engine, Control: control, Tenants: c.tenants, Log: s.log, Traces: s.traces}); err != nil {
			return err
		}
		s.listen(s.rpc.Serve)
		fmt.Fprintln(out, "gRPC on", shown(s.listeners[len(s.listeners)-1]))
	}
	if s.pages != nil && c.admin != c.addr {
		s.admin = &http.Server{Handler: s.pages, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
		s.listen(func(l net.Listener) error { return rest.Serve(s.admin, l, rest.Connections{Most: 64}) })
		fmt.Fprintln(out, "admin on", shown(s.listeners[len(s.listeners)-1]))
	}
	return nil
}

// logRestarts logs the workers that were restarted since the last call.
func (s *service) logRestarts() {
	l := s.loaded.Load()
	if l == nil || l.Workers == nil {
		return
	}
	for _, w := range l.Workers.Workers() {
		if w.Restarts > s.restarts[w.Index] {
			death, _, _ := strings.Cut(fmt.Sprint(w.Last), "\n") // the rest is the output of the worker
			s.log.Warn("a worker was restarted", "worker", w.Index, "restarts", w.Restarts, "reason", death)
		}
		s.restarts[w.Index] = w.Restarts
	}
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

// listen serves the next of the bound addresses.
func (s *service) listen(serve func(net.Listener) error) {
	l := s.bound[len(s.listeners)]
	s.listeners = append(s.listeners, l)
	s.serving.Go(func() {
		if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("%s: %w", shown(l), err)
		}
	})
}

// cutOff is the time that interrupted requests and calls have to end.
const cutOff = 5 * time.Second

// end drains and closes the parts in the reverse order of their creation, and returns what is left. The
// server may have been opened in part.
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
		s.endProfiles()
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
	for _, l := range s.bound {
		_ = l.Close() // those without a server
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
	go func() {
		s.old.Wait()
		var err error
		if l := s.loaded.Load(); l != nil {
			err = l.Close(ctx)
		}
		closed <- errors.Join(err, s.backend.Close(), backend.End())
	}()
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
