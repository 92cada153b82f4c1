package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

// maxSeconds bounds the duration of a profile.
const maxSeconds = 120

var profileNames = []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"}

// profiles adds Go's profiles and those of memory. The command line is not served, since it may
// contain secrets; neither are symbols, which profiles contain.
func profiles(ctx context.Context, mux *http.ServeMux, pool *memmgr.Pool) {
	mux.HandleFunc("/debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "Profiles for go tool pprof, one at a time, here below /debug/pprof/:\n\nmemory\nprofile?seconds=30\ntrace?seconds=1\n")
		for _, name := range profileNames {
			_, _ = io.WriteString(w, name+"\n")
		}
	})
	timed := func(seconds int, serve http.HandlerFunc) http.Handler { return overTime(ctx, seconds, serve) }
	for _, name := range profileNames {
		mux.Handle("/debug/pprof/"+name, timed(0, pprof.Handler(name).ServeHTTP))
	}
	mux.Handle("/debug/pprof/profile", timed(30, pprof.Profile))
	mux.Handle("/debug/pprof/trace", timed(1, pprof.Trace))
	mux.Handle("/debug/pprof/memory", oneByOne(func(w http.ResponseWriter, _ *http.Request) {
		attach(w, "application/octet-stream", "memory.pb.gz")
		_ = report.WriteProfile(w) // fails only if the client is gone
	}))
	if pool != nil {
		mux.Handle("/debug/memory.json", oneByOne(func(w http.ResponseWriter, _ *http.Request) {
			attach(w, "application/json", "memory.json")
			_ = report.WriteJSON(w, pool.Snapshot())
		}))
	}
}

func attach(w http.ResponseWriter, contentType, name string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// oneByOne serves one request at a time and refuses others, because a profile slows the server
// down.
func oneByOne(serve http.HandlerFunc) http.Handler {
	running := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
			serve(w, r)
		default:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "another request for this profile is being served", http.StatusServiceUnavailable)
		}
	})
}

// overTime is oneByOne for a profile over the time of the parameter "seconds", or of seconds if the
// request has none. The profile ends with ctx.
func overTime(ctx context.Context, seconds int, serve http.HandlerFunc) http.Handler {
	return oneByOne(func(w http.ResponseWriter, r *http.Request) {
		n := seconds
		if s := r.FormValue("seconds"); s != "" {
			var err error
			if n, err = strconv.Atoi(s); err != nil || n < 1 || n > maxSeconds {
				http.Error(w, fmt.Sprintf("seconds: want an integer from 1 to %d", maxSeconds), http.StatusBadRequest)
				return
			}
		}
		within(w, writeTime+time.Duration(n)*time.Second)
		both, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		serve(w, r.WithContext(both))
	})
}
