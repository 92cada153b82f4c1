// Package admin serves the operator of the inference server:
//
//	/metrics         for Prometheus
//	/debug/pprof/    Go's profiles (net/http/pprof), and "memory": the referenced memory of package memmgr
//	                 by place of allocation and tag
//	/livez, /readyz  200, or 503 with the reason
//
// There is no password: every client that can connect sees everything here. The address is a loopback
// address unless the operator configures another one. A web page can make the browser of a local user
// send requests, so the handler refuses a Host that is an unknown name (DNS rebinding), requests of pages
// of another origin, and all methods except GET and HEAD. The pages contain no values of tensors and no
// names of shared memory.
package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

// Server returns an HTTP server of the paths that the package documentation lists; other paths are 404.
// Profiles end with ctx, so that the server can shut down. The engine and the pools must outlive the server.
// names are those under which the pages are served, without ports, in addition to numeric addresses and
// localhost.
func Server(ctx context.Context, e *engine.Engine, names []string) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", serveMetrics(e))
	mux.HandleFunc("GET /livez", probe(e.Live))
	mux.HandleFunc("GET /readyz", probe(e.Ready))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index) // without the command line, which may contain secrets
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/memory", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_ = report.WriteProfile(w) // fails only if the client is gone
	})
	return &http.Server{
		Handler:     guard(mux, names),
		ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:    slog.NewLogLogger(e.Options.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// probe answers 200, or 503 with the reason.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, oip.As(err).Message, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}
}

// requestTime bounds a request, with the time of its profile, until its response is written.
const requestTime = 3 * time.Minute

// guard bounds the time of requests, and refuses those that a web page may have made a browser send.
func guard(next http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not http.Server.WriteTimeout, which net/http/pprof extends by the time that the client asks for. A profile
		// that took all of its time has as much again to be written.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * requestTime))
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := hosts.Check(r, names); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
