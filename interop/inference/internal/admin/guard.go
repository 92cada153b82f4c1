package admin

import (
	"net/http"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
)

// guard refuses what a browser sends on behalf of others, and forbids it what the page does
// not need.
type guard struct {
	hosts []string // names that requests may be for, without ports
	next  http.Handler
}

// policy lets the page load from this server and from nowhere else. It has no inline scripts
// and styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// patience is how long an answer, or an event of the feed, may take to be taken.
const patience = 30 * time.Second

// within has whoever does not read be cut off. Where the deadline cannot be set, that of the
// server holds.
func within(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// bodyTime is how long a body may take that nobody wants.
const bodyTime = 2 * time.Second

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	within(w, patience)
	if r.ContentLength != 0 { // a page has no use for a body, and net/http reads it to its end
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "these pages are for reading: GET and HEAD", http.StatusMethodNotAllowed)
	case !hosts.Known(r.Host, g.hosts):
		http.Error(w, "this address is not known here by that name: use a numeric address or localhost, or have the name allowed at the start",
			http.StatusMisdirectedRequest)
	case foreign(r):
		http.Error(w, "another site may not ask for this", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// foreign tells whether a page of another origin made its browser ask. What a person follows a
// link to is not: only the page itself is opened so, and it shows nothing to the other.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin":
		return false
	case "":
		return r.Header.Get("Origin") != "" && !sameOrigin(r)
	}
	return r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// sameOrigin compares for browsers that do not tell (Sec-Fetch-Site). The scheme is not known
// behind a proxy, so that the host decides.
func sameOrigin(r *http.Request) bool {
	_, host, found := strings.Cut(r.Header.Get("Origin"), "://")
	return found && strings.EqualFold(host, r.Host)
}
