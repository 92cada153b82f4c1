package admin

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Worker is a process that runs models, or whatever else there is several of.
type Worker struct {
	Name     string // such as "worker 1"
	State    string // in a word: "ready", "starting"
	Ready    bool
	Calls    uint64
	Restarts uint64
}

// Options say what is shown besides the engine.
type Options struct {
	// Pool is the memory of the page's picture, nil for none. The metrics are of all pools.
	Pool *memmgr.Pool
	// Calls is the memory of calls that run, where it is apart from Pool, nil else; CallsLimit is
	// how many bytes it can give, 0 for no limit.
	Calls      *memmgr.Pool
	CallsLimit uint64
	// Workers lists the processes that run models; nil where there are none.
	Workers func() []Worker
	// Hosts are the names, besides numeric addresses and localhost, under which the pages
	// may be asked for, without ports.
	Hosts []string
	// Viewers is how many pages are fed at a time; 16.
	Viewers int
}

// interval is how often the page changes.
const interval = time.Second

//go:embed page
var files embed.FS

// Handler serves everything that the page of the package lists, and nothing else: other paths
// are 404. Close ends it.
type Handler struct {
	http.Handler
	cancel context.CancelFunc
	over   sync.WaitGroup
}

// New starts to look after an engine. All of the handler may be used from any goroutine, and
// outlives neither the engine nor the pool.
func New(e *engine.Engine, o Options) *Handler {
	if o.Viewers <= 0 {
		o.Viewers = 16
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &Handler{cancel: cancel}
	s := newSampler(e, o)
	h.over.Go(func() { s.run(ctx) })

	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the name of the embedded directory
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, page, "index.html") })
	mux.Handle("/page/", http.StripPrefix("/page/", http.FileServerFS(page)))
	mux.Handle("/events", &feed{sampler: s, ctx: ctx, places: make(chan struct{}, o.Viewers)})
	mux.Handle("/metrics", metrics(e, o))
	mux.HandleFunc("/livez", probe(e.Live))
	mux.HandleFunc("/readyz", probe(e.Ready))
	profiles(ctx, mux, o.Pool)
	h.Handler = &guard{hosts: o.Hosts, next: mux}
	return h
}

// Close lets the pages that are fed go, so that the server around it can shut down. The rest is
// served on.
func (h *Handler) Close() {
	h.cancel()
	h.over.Wait()
}

// probe answers 200, or 503 with the reason.
func probe(ask func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := ask(); err != nil {
			http.Error(w, reason(err), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	}
}
