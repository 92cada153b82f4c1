package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// New returns a handler of the paths that the package documentation lists; other paths are 404. Running
// profiles end with ctx, so that the HTTP server can shut down. The engine and the pools must outlive the
// handler. names are those under which the pages are served, without ports, in addition to numeric addresses
// and localhost.
func New(ctx context.Context, e *engine.Engine, names []string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, e) })
	mux.Handle("/metrics", serveMetrics(e))
	mux.HandleFunc("/livez", probe(e.Live))
	mux.HandleFunc("/readyz", probe(e.Ready))
	mux.HandleFunc("/debug/pprof/{$}", profileIndex)
	mux.Handle("/debug/", profiles(ctx, e.Pools()[0].Pool))
	return guard(mux, names)
}

// probe answers 200, or 503 with the reason.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, oip.As(err).Message, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	}
}

const (
	// writeTime bounds the time that a client takes to read a response.
	writeTime = 30 * time.Second
	// bodyTime bounds the time that net/http spends on a request body, which no page uses.
	bodyTime = 2 * time.Second
)

// guard bounds the time of requests, and refuses those that a web page may have made a browser send.
func guard(next http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // a connection without deadlines has those of its server
		if r.ContentLength != 0 {
			_ = c.SetReadDeadline(time.Now().Add(bodyTime))
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// A link to the status page is allowed: the browser shows the page only to its user.
		link := r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "unsupported method: use GET or HEAD", http.StatusMethodNotAllowed)
		case !hosts.Known(r.Host, names):
			http.Error(w, "unknown host name: use a numeric address or localhost, or start the server with the name in -hosts",
				http.StatusMisdirectedRequest)
		case !link && hosts.CrossOrigin(r):
			http.Error(w, "requests of web pages of another origin are refused", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
