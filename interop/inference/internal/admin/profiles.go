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

// longest is how many seconds a profile over time may take.
const longest = 120

// profiles adds Go's profiles, that of memory, and the pictures of the pool. Not the command
// line, which may have secrets, nor look-ups of symbols, which profiles bring themselves.
func profiles(ctx context.Context, mux *http.ServeMux, pool *memmgr.Pool) {
	bounded := func(seconds int, serve http.HandlerFunc) http.Handler { return overTime(ctx, seconds, serve) }
	mux.HandleFunc("/debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, profileIndex)
	})
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		mux.Handle("/debug/pprof/"+name, bounded(0, pprof.Handler(name).ServeHTTP))
	}
	mux.Handle("/debug/pprof/profile", bounded(30, pprof.Profile))
	mux.Handle("/debug/pprof/trace", bounded(1, pprof.Trace))
	mux.Handle("/debug/pprof/memory", oneByOne(func(w http.ResponseWriter, _ *http.Request) {
		attach(w, "application/octet-stream", "memory.pb.gz")
		_ = report.WriteProfile(w) // fails only when the client has gone
	}))
	if pool == nil {
		return
	}
	mux.Handle("/debug/memory.svg", oneByOne(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_ = report.WriteSVG(w, pool.Snapshot())
	}))
	mux.Handle("/debug/memory.json", oneByOne(func(w http.ResponseWriter, _ *http.Request) {
		attach(w, "application/json", "memory.json")
		_ = report.WriteJSON(w, pool.Snapshot())
	}))
}

func attach(w http.ResponseWriter, kind, name string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// oneByOne serves one request at a time and refuses others: what it guards costs the service
// something.
func oneByOne(serve http.HandlerFunc) http.Handler {
	place := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
			serve(w, r)
		default:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "somebody is being served this at present", http.StatusServiceUnavailable)
		}
	})
}

// overTime is oneByOne for what takes as many seconds as the request says, or so many where it
// says nothing. It ends with ctx, so that a profile does not keep the service from ending.
func overTime(ctx context.Context, seconds int, serve http.HandlerFunc) http.Handler {
	return oneByOne(func(w http.ResponseWriter, r *http.Request) {
		n := seconds
		if s := r.FormValue("seconds"); s != "" {
			var err error
			if n, err = strconv.Atoi(s); err != nil || n < 1 || n > longest {
				http.Error(w, fmt.Sprintf("seconds: want a whole number from 1 to %d", longest), http.StatusBadRequest)
				return
			}
		}
		within(w, patience+time.Duration(n)*time.Second)
		both, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		serve(w, r.WithContext(both))
	})
}

const profileIndex = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>profiles</title><link rel="stylesheet" href="../../page/page.css"></head><body>
<header><h1>Profiles</h1></header>
<p>For <code>go tool pprof</code>; each one at a time.</p>
<ul>
<li><a href="memory">memory</a>: what is referenced of the memory that the pools gave out, by place of allocation
 (with USMBRIDGE_DEBUG=stacks), tag and place</li>
<li><a href="profile?seconds=10">profile</a>: the processors, for 10 seconds</li>
<li><a href="heap">heap</a>, <a href="allocs">allocs</a>: memory of Go's own</li>
<li><a href="goroutine?debug=1">goroutine</a>, <a href="threadcreate?debug=1">threadcreate</a>, <a href="block?debug=1">block</a>, <a href="mutex?debug=1">mutex</a></li>
<li><a href="trace?seconds=2">trace</a>: for <code>go tool trace</code>, 2 seconds</li>
<li><a href="../memory.svg">memory.svg</a>, <a href="../memory.json">memory.json</a>: the pool's segments and blocks, as a picture and for PyTorch's viewer of snapshots</li>
</ul>
<p><a href="../../">the live page</a></p>
</body></html>
`
