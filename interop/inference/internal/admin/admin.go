package admin

import (
	"context"
	"net/http"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Worker is a process that runs models.
type Worker struct {
	Name     string // such as "worker 1"
	State    string // one word: "ready", "starting"
	Ready    bool
	Calls    uint64
	Restarts uint64
}

// Options configure a Handler.
type Options struct {
	// Pool is the memory of tensors, for /debug/memory.json; nil for none. The metrics cover all pools.
	Pool *memmgr.Pool
	// Calls is the memory of running calls if it is a pool of its own; nil otherwise. CallsLimit is
	// its limit in bytes, 0 for no limit.
	Calls      *memmgr.Pool
	CallsLimit uint64
	// Workers lists the processes that run models; nil if there are none.
	Workers func() []Worker
	// Hosts are the names, without ports, under which the pages are served. Numeric addresses and
	// localhost are always allowed.
	Hosts []string
}

// Handler serves the paths that the package documentation lists. Other paths are 404. Its methods
// may be called from any goroutine.
type Handler struct {
	http.Handler
	cancel context.CancelFunc
}

// New returns a handler for an engine. The engine and the pools must outlive it.
func New(e *engine.Engine, o Options) *Handler {
	ctx, cancel := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, e, &o) })
	mux.Handle("/metrics", metrics(e, o))
	mux.HandleFunc("/livez", probe(e.Live))
	mux.HandleFunc("/readyz", probe(e.Ready))
	profiles(ctx, mux, o.Pool)
	return &Handler{Handler: &guard{hosts: o.Hosts, next: mux}, cancel: cancel}
}

// Close ends running profiles, so that the HTTP server can shut down. Other requests are still
// served.
func (h *Handler) Close() { h.cancel() }

// probe answers 200, or 503 with the reason.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, reason(err), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	}
}

// reason returns the message of an error that clients may see.
func reason(err error) string { return oip.As(err).Message }
