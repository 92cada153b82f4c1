package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

const (
	maxSeconds     = 120 // the maximum duration of a profile
	profileSeconds = 30  // the default of net/http/pprof
)

var profileNames = []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"}

func profileIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "Profiles for go tool pprof, one at a time, here below /debug/pprof/:\n\nmemory\nprofile?seconds=30\ntrace?seconds=1\n%s\n",
		strings.Join(profileNames, "\n"))
}

// profiles serves Go's profiles and those of memory, one at a time, because a profile slows the server
// down. They end with ctx. The command line is not served, since it may contain secrets; neither are
// symbols, which profiles contain.
func profiles(ctx context.Context, pool *memmgr.Pool) http.Handler {
	mux := http.NewServeMux()
	for _, name := range profileNames {
		mux.Handle("/debug/pprof/"+name, pprof.Handler(name))
	}
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/memory", func(w http.ResponseWriter, _ *http.Request) {
		attach(w, "application/octet-stream", "memory.pb.gz")
		_ = report.WriteProfile(w) // fails only if the client is gone
	})
	mux.HandleFunc("/debug/memory.json", func(w http.ResponseWriter, _ *http.Request) {
		attach(w, "application/json", "memory.json")
		_ = report.WriteJSON(w, pool.Snapshot())
	})
	var running sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seconds := profileSeconds
		if s := r.FormValue("seconds"); s != "" {
			var err error
			if seconds, err = strconv.Atoi(s); err != nil || seconds < 1 || seconds > maxSeconds {
				http.Error(w, fmt.Sprintf("seconds: want an integer from 1 to %d", maxSeconds), http.StatusBadRequest)
				return
			}
		}
		if !running.TryLock() {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "another profile is being served", http.StatusServiceUnavailable)
			return
		}
		defer running.Unlock()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime + time.Duration(seconds)*time.Second))
		both, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		mux.ServeHTTP(w, r.WithContext(both))
	})
}

func attach(w http.ResponseWriter, contentType, name string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}
