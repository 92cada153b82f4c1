package admin

import (
	"net/http"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
)

// guard refuses requests that a web page may have made a browser send.
type guard struct {
	hosts []string // names of this server, without ports
	next  http.Handler
}

const (
	// writeTime bounds the time that a client takes to read a response.
	writeTime = 30 * time.Second
	// bodyTime bounds the time that net/http spends on a request body, which no page uses.
	bodyTime = 2 * time.Second
)

// within sets the time that the client has to read the response. If the connection has no
// deadlines, those of the server hold.
func within(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	within(w, writeTime)
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "unsupported method: use GET or HEAD", http.StatusMethodNotAllowed)
	case !hosts.Known(r.Host, g.hosts):
		http.Error(w, "unknown host name: use a numeric address or localhost, or start the server with the name in -hosts",
			http.StatusMisdirectedRequest)
	case foreign(r):
		http.Error(w, "requests of web pages of another origin are refused", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// foreign reports whether a page of another origin made its browser send the request. A link to the
// status page is allowed: the browser shows the page only to its user.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin":
		return false
	case "":
		return r.Header.Get("Origin") != "" && !sameOrigin(r)
	}
	return r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// sameOrigin compares the origin with the Host, for browsers without Sec-Fetch-Site. It ignores the
// scheme, which is unknown behind a proxy.
func sameOrigin(r *http.Request) bool {
	_, host, found := strings.Cut(r.Header.Get("Origin"), "://")
	return found && strings.EqualFold(host, r.Host)
}
