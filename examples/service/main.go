// Command service is a small HTTP service to start from. It reads float32 values into shared USM of a pool,
// calls a Python function with a deadline, and sends the result from the memory that Python wrote. Nothing is
// copied in between.
//
//	service [-addr 127.0.0.1:8080] [-limit bytes] [-timeout duration] [-workers n]
//
//	head -c 4096 /dev/urandom | curl -s --data-binary @- localhost:8080/scale | wc -c
//
// /scale calls a function that Numba compiled, /scale-on-device one of dpnp. With -workers they run in
// processes of their own, on the same memory; a process that crashes is replaced.
//
// Each client address is a tenant of the pool and has at most a half of the memory. Counts of calls and memory
// are at /debug/vars, as JSON (interop/metrics has them for Prometheus); /ready is for probes. SIGTERM lets
// requests in flight finish. The service needs a Python with Numba: `make python` sets one up, and
// `VIRTUAL_ENV=.venv go run ./examples/service` uses it. interop/inference is the server for models of the
// Open Inference Protocol.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

//go:embed model.py
var model string

// openMemory returns shared USM of the default device, or host memory without SYCL. Worker processes need
// segments, which they can map.
func openMemory(rt *syclobj.Runtime, processes int) (memmgr.Resource, error) {
	if processes == 0 {
		return memmgr.USM(rt.DefaultQueue(), syclobj.USMShared), nil
	}
	r, err := segment.NewUSM(rt.DefaultQueue(), syclobj.USMShared, segment.PeersWrite)
	if errors.Is(err, errors.ErrUnsupported) { // a device whose memory processes cannot share
		return segment.NewHost(segment.PeersWrite)
	}
	return r, err
}

// openRunner starts Python in this process, or worker processes, and the warm-up. The calls of dpnp take
// turns, because dpnp can hang if several threads call it.
func openRunner(rt *syclobj.Runtime, processes int) (executor.Runner, error) {
	warm, serial := []string{"model:warm"}, []string{"model:scale_on_device"}
	if processes > 0 {
		return workers.New(workers.Config{Workers: processes, Queue: 100, Warm: warm, Serial: serial,
			Modules: []workers.Module{{Name: "model", Source: model}}})
	}
	if err := pymodule.Register(pymodule.SetRuntime(rt)); err != nil {
		return nil, err
	}
	py, err := python.Start()
	if err != nil {
		return nil, err
	}
	return executor.New(py, executor.Config{Slots: runtime.GOMAXPROCS(0), Queue: 100, Warm: warm, Serial: serial,
		Modules: []executor.Module{{Name: "model", Source: model}}})
}

// service serves POST /scale and POST /scale-on-device.
type service struct {
	pool    *memmgr.Pool
	limit   uint64
	python  executor.Runner
	timeout time.Duration

	mu      sync.Mutex
	tenants map[string]*memmgr.Tenant // by client address, at most maxTenants
}

const maxTenants = 1000

// tenant returns the tenant of a client. When the table is full, all tenants are closed; their memory
// in use stays valid.
func (s *service) tenant(remote string) (*memmgr.Tenant, error) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[host]; t != nil {
		return t, nil
	}
	if len(s.tenants) == maxTenants {
		s.closeTenants()
	}
	t, err := s.pool.NewTenant(host, memmgr.TenantOptions{Hard: s.limit / 2})
	if err == nil {
		s.tenants[host] = t
	}
	return t, err
}

func (s *service) closeTenants() {
	for name, t := range s.tenants {
		_ = t.Close()
		delete(s.tenants, name)
	}
}

// serve returns the handler that calls a function of the model.
func (s *service) serve(function string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
		defer cancel()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.timeout)) // a slow body ends
		status, err := s.call(ctx, function, w, r)
		if err != nil {
			log.Printf("%s: %v", r.RemoteAddr, err)
			http.Error(w, http.StatusText(status), status)
		}
	}
}

// call returns a status and an error, or writes the response.
func (s *service) call(ctx context.Context, function string, w http.ResponseWriter, r *http.Request) (int, error) {
	n := r.ContentLength
	if n <= 0 || n%4 != 0 || uint64(n) > s.limit/4 {
		return http.StatusBadRequest, fmt.Errorf("%d bytes: want float32 values of a known length", n)
	}
	tenant, err := s.tenant(r.RemoteAddr)
	if err != nil {
		return http.StatusInternalServerError, err
	}
	// One buffer for both arrays: a request that waits for memory holds none.
	buffer, err := memmgr.New(tenant, memmgr.Request{Size: uintptr(2 * n), Context: ctx})
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	defer buffer.Release()
	bytes, err := buffer.Bytes()
	if err != nil {
		return http.StatusInternalServerError, err
	}
	if _, err := io.ReadFull(r.Body, bytes[:n]); err != nil {
		return http.StatusBadRequest, err
	}
	var arrays [2]any
	for i := range arrays {
		layout, err := usmarray.NewLayout([]int{int(n / 4)}, nil, i*int(n/4))
		if err != nil {
			return http.StatusInternalServerError, err
		}
		if arrays[i], err = usmarray.WrapBuffer(buffer, usmarray.Float32, layout); err != nil {
			return http.StatusInternalServerError, err
		}
	}
	switch _, err := s.python.Call(ctx, function, arrays[:]...); {
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, err
	case errors.Is(err, executor.ErrFull):
		return http.StatusServiceUnavailable, err
	case err != nil:
		return http.StatusInternalServerError, err
	}
	if bytes, err = buffer.Bytes(); err != nil { // waits for the work of the device
		return http.StatusInternalServerError, err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(bytes[n : 2*n]) // a client that is gone gets nothing
	return 0, nil
}

// counts serves GET /debug/vars.
func (s *service) counts(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"calls": s.python.Stats(), "memory": s.pool.Place().String(),
		"allocated_bytes": s.pool.Stats().AllocatedBytes.Current})
}

// ready serves GET /ready.
func (s *service) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.python.Health(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// options are the values of the command line.
type options struct {
	addr      string
	limit     uint64
	timeout   time.Duration
	processes int
}

func main() {
	workers.Main() // in worker processes, which run this program, Main does not return
	var o options
	flag.StringVar(&o.addr, "addr", "127.0.0.1:8080", "`address` to serve")
	flag.Uint64Var(&o.limit, "limit", 256<<20, "`bytes` of memory for all requests")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Second, "maximum `time` of a request")
	flag.IntVar(&o.processes, "workers", 0, "`number` of Python processes; 0 runs Python in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, func(net.Addr) {}); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends. It calls ready with the address when it serves.
func run(ctx context.Context, o options, ready func(net.Addr)) (err error) {
	rt, err := syclobj.Open() // stays open: Python in this process uses it until the end
	if err != nil {
		return err
	}
	memory, err := openMemory(rt, o.processes)
	if err != nil {
		return err
	}
	pool := memmgr.NewPool(memmgr.NewLimit(memory, o.limit), memmgr.WithName("service"))
	defer func() { err = errors.Join(err, pool.Close(), memmgr.Close(memory)) }()
	runner, err := openRunner(rt, o.processes)
	if err != nil {
		return err
	}
	if err := runner.Ready(ctx); err != nil {
		return errors.Join(err, runner.Close(ctx))
	}
	s := &service{pool: pool, limit: o.limit, python: runner, timeout: o.timeout, tenants: map[string]*memmgr.Tenant{}}
	defer s.closeTenants()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /scale", s.serve("model:scale"))
	mux.HandleFunc("POST /scale-on-device", s.serve("model:scale_on_device"))
	mux.HandleFunc("GET /debug/vars", s.counts)
	mux.HandleFunc("GET /ready", s.ready)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: o.timeout, WriteTimeout: 2 * o.timeout}
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return errors.Join(err, runner.Close(ctx))
	}
	log.Println("listening on", listener.Addr(), "with", pool.Place())
	ready(listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return errors.Join(err, runner.Close(ctx))
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	return errors.Join(server.Shutdown(late), runner.Close(late))
}
