package admin

import (
	"context"
	"fmt"
	"net/http"
)

// feed sends the page what changes, as server-sent events, to a bounded number of viewers.
type feed struct {
	sampler *sampler
	ctx     context.Context // ends the feed
	places  chan struct{}
}

// ServeHTTP implements http.Handler.
func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case f.places <- struct{}{}:
		defer func() { <-f.places }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d pages are open, and no more are fed at a time", cap(f.places)), http.StatusServiceUnavailable)
		return
	}
	history, err := f.sampler.watch()
	defer f.sampler.unwatch()
	if err != nil {
		http.Error(w, "the figures cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	out := http.NewResponseController(w)
	send := func(event string, data []byte) bool {
		within(w, patience)
		_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
		return err == nil && out.Flush() == nil
	}
	if !send("history", history) {
		return
	}
	state, changed := f.sampler.current()
	if state != nil && !send("state", state) {
		return
	}
	for {
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-f.ctx.Done():
			return
		}
		state, changed = f.sampler.current()
		if !send("state", state) {
			return
		}
	}
}
