package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// Handler serves an engine over HTTP. Its methods may be called from any goroutine.
type Handler struct {
	http.Handler // the routes, with traces

	engine *engine.Engine
	hosts  []string
	limits limits
	heap   *semaphore.Weighted // bytes of JSON of all requests
}

// New returns a handler of an engine, which exports the spans of inferences to t. hosts are names of this server,
// without ports. GET and HEAD requests, and requests of web pages, need one of them, a numeric address or localhost as
// Host.
func New(e *engine.Engine, t *traces.Traces, hosts []string) *Handler {
	h := &Handler{engine: e, hosts: hosts, limits: defaults, heap: semaphore.NewWeighted(maxJSON)}
	h.Handler = t.HTTP(h.routes())
	return h
}

// limits bound the bodies of requests. Tests use smaller ones.
type limits struct {
	body int64 // bytes of a body as sent
	json int64 // bytes of the JSON of a request
	// A client must send or read n bytes within grace, and perMiB for each MiB.
	grace, perMiB time.Duration
}

var defaults = limits{body: 1 << 30, json: 64 << 20, grace: 10 * time.Second, perMiB: time.Second}

// time returns the time for n bytes without the grace.
func (l *limits) time(n int64) time.Duration {
	return time.Duration(min(n, 8<<30)) * l.perMiB >> 20 // the product of the maximum fits
}

// Other limits. Those of the elements and of the id bound the memory that a short text can take in Go.
const (
	maxJSON      = 256 << 20       // bytes of the JSON of all requests together
	maxList      = 256             // inputs, outputs, and extents of a shape
	maxID        = 4 << 10         // bytes of the id, as written
	maxSmall     = 64 << 10        // bytes of a body that has no tensors
	maxDrained   = 4 << 20         // bytes of the body of a refused request that are read
	drainTime    = 2 * time.Second // for these bytes
	piece        = 256 << 10       // bytes of a response that are formatted and written at a time
	leastEncoded = 1 << 10         // bytes of a response that is worth compressing

	// spared is the size up to which JSON is not charged, in bytes: connections are bounded, and large bodies
	// must not keep out small ones.
	spared = 16 << 10
)

// Server returns an HTTP/1 server for the handler, which ends slow headers and idle connections. The
// handler bounds the time of bodies. The caller serves and ends the server.
func (h *Handler) Server() *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: h.limits.grace,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(h.engine.Options.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, peercred.Of(c))
		},
		// An asterisk is no path of the protocol's.
		DisableGeneralOptionsHandler: true,
	}
}

// clientKey is the key of the client in the context of the requests of a connection.
type clientKey struct{}

// client returns the client that sent the request. With another server than that of Server, it is a client of a network.
func (x *exchange) client() peercred.Client {
	from, _ := x.r.Context().Value(clientKey{}).(peercred.Client)
	return from
}

// exchange is one request and its response.
type exchange struct {
	h     *Handler
	r     *http.Request
	w     *writer
	dead  bool // the connection cannot be read any more
	probe bool // the request is a health probe, whose errors are not counted
}

// writer writes a response. A client has limits.grace to read it, and limits.perMiB for each MiB.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	limits  *limits
	until   time.Time // the deadline of what was written
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if w.until.IsZero() {
		w.until = time.Now().Add(w.limits.grace)
	}
	w.until = w.until.Add(w.limits.time(int64(len(p))))
	_ = w.control.SetWriteDeadline(w.until) // an error means that the client is gone
	return w.ResponseWriter.Write(p)
}

// handle serves a request.
func (h *Handler) handle(w http.ResponseWriter, r *http.Request, serve func(*exchange) error) {
	x := &exchange{h: h, r: r, w: &writer{ResponseWriter: w, control: http.NewResponseController(w), limits: &h.limits}}
	if r.ContentLength != 0 {
		// net/http reads the rest of a body before it responds: bound the time for that.
		_ = x.w.control.SetReadDeadline(time.Now().Add(min(drainTime, h.limits.grace/2)))
	}
	if h.engine.Retired() {
		// No connection is left when the server closes those that are idle, and no request is lost on one.
		w.Header()["Connection"] = []string{"close"}
	}
	defer func() { // a panic is the end of its request alone, as in net/http, and counted
		if p := recover(); p != nil {
			h.engine.Refused(oip.Internal)
			h.engine.Options.Log.Error("a request panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler) // the connection may be anywhere in the exchange
		}
	}()
	err := x.admit()
	if err == nil {
		err = serve(x)
	}
	if err != nil {
		x.fail(err)
	}
}

// admit refuses requests that a web page may have made a browser send (see package hosts).
//
// A GET of a page that made its name point to this address looks like that of a program: it has no
// Origin and, without TLS, no Sec-Fetch-Site. So GET and HEAD need a Host that no other name server
// can make a browser use: an address, localhost, or one of the names of New. Browsers send other methods
// with an Origin, so programs may use any name for them. Browsers always send a Host and do not
// connect to Unix sockets.
func (x *exchange) admit() error {
	if x.r.Method == http.MethodGet || x.r.Method == http.MethodHead {
		if x.r.Host == "" || x.client().Local {
			return nil
		}
		return hosts.CheckName(x.r, x.h.hosts)
	}
	_, page := x.r.Header["Origin"]
	if _, fetched := x.r.Header["Sec-Fetch-Site"]; !page && !fetched {
		return nil
	}
	return hosts.Check(x.r, x.h.hosts)
}

const contentType = "Content-Type"

var typeJSON = []string{"application/json"}

// send responds with JSON, or without a body.
func (x *exchange) send(status int, b []byte) {
	header := x.w.Header()
	if len(b) > 0 {
		header[contentType] = typeJSON
	}
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	x.w.WriteHeader(status)
	_, _ = x.w.Write(b) // an error means that the client is gone
}

// respond responds with a value in JSON, for rare requests, or with an empty body if it is nil, unless there is an
// error.
func (x *exchange) respond(v any, err error) error {
	var b []byte
	if err == nil && v != nil {
		b, err = json.Marshal(v)
	}
	if err == nil {
		x.send(http.StatusOK, b)
	}
	return err
}

// fail responds with an error, before any other response.
func (x *exchange) fail(err error) {
	e := oip.As(err)
	status, wait := cmp.Or(e.Status, e.Kind.HTTP()), e.RetryAfter
	if !x.probe {
		x.h.engine.Refused(e.Kind)
	}
	level := slog.LevelDebug
	if status == http.StatusInternalServerError && !e.Logged {
		level = slog.LevelError
	}
	x.h.engine.Options.Log.Log(x.r.Context(), level, "request refused", "method", x.r.Method, "path", x.r.URL.Path, "status", status, "error", err)
	header := x.w.Header()
	if e.Kind == oip.Busy {
		wait = max(wait, time.Second)
	}
	if wait > 0 {
		header["Retry-After"] = []string{strconv.Itoa(int((wait + time.Second - 1) / time.Second))}
	}
	if x.dead {
		header["Connection"] = []string{"close"}
	} else {
		x.drain()
	}
	x.send(status, append(appendString([]byte(`{"error":`), e.Message), '}'))
}
