// Command service is a small HTTP service to start from. It reads float32 values into memory of a pool,
// calls a Python function with a deadline, and sends the result from the memory that Python wrote.
//
//	service [-addr 127.0.0.1:8080] [-limit bytes] [-timeout duration]
//
//	head -c 4096 /dev/urandom | curl -s --data-binary @- localhost:8080/scale | wc -c
//
// Each client address is a tenant of the pool and has at most a half of the memory. Counts of
// calls and memory are at /debug/vars, as JSON. SIGTERM lets requests in flight finish. The service
// needs a Python with NumPy: `make python` sets one up, and `VIRTUAL_ENV=.venv go run
// ./examples/service` uses it. interop/inference is the server for models of the Open Inference
// Protocol.
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
	"sync"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

//go:embed model.py
var model string

// service serves POST /scale.
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

// ServeHTTP serves one request.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.timeout)) // a slow body ends
	status, err := s.scale(ctx, w, r)
	if err != nil {
		log.Printf("%s: %v", r.RemoteAddr, err)
		http.Error(w, http.StatusText(status), status)
	}
}

// scale returns a status and an error, or writes the response.
func (s *service) scale(ctx context.Context, w http.ResponseWriter, r *http.Request) (int, error) {
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
	switch _, err := s.python.Call(ctx, "model:scale", arrays[:]...); {
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, err
	case errors.Is(err, executor.ErrFull):
		return http.StatusServiceUnavailable, err
	case err != nil:
		return http.StatusInternalServerError, err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(bytes[n : 2*n]) // a client that is gone gets nothing
	return 0, nil
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to serve")
	limit := flag.Uint64("limit", 256<<20, "`bytes` of memory for all requests")
	timeout := flag.Duration("timeout", 10*time.Second, "maximum `time` of a request")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *limit, *timeout, func(net.Addr) {}); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends. It calls ready with the address when it serves.
func run(ctx context.Context, addr string, limit uint64, timeout time.Duration, ready func(net.Addr)) (err error) {
	pool := memmgr.NewPool(memmgr.NewLimit(memmgr.Host(), limit), memmgr.WithName("service"))
	defer func() { err = errors.Join(err, pool.Close()) }()
	if err := pymodule.Register(); err != nil {
		return err
	}
	py, err := python.Start()
	if err != nil {
		return err
	}
	module, err := py.Module("model", model)
	if err != nil {
		return err
	}
	defer module.Release()
	runner, err := executor.New(py, executor.Config{Slots: 2, Queue: 100})
	if err != nil {
		return err
	}
	s := &service{pool: pool, limit: limit, python: runner, timeout: timeout, tenants: map[string]*memmgr.Tenant{}}
	defer s.closeTenants()

	mux := http.NewServeMux()
	mux.Handle("POST /scale", s)
	mux.HandleFunc("GET /debug/vars", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"calls": runner.Stats(), "allocated_bytes": pool.Stats().AllocatedBytes.Current})
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: timeout, WriteTimeout: 2 * timeout}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Println("listening on", listener.Addr())
	ready(listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return errors.Join(err, runner.Close(ctx))
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return errors.Join(server.Shutdown(late), runner.Close(late))
}
