package rest

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// Options configure a Handler. Zero values are defaults.
type Options struct {
	Engine *engine.Engine
	// Traces exports the spans of inferences; nil for none.
	Traces *traces.Traces

	// Hosts are names of this server, without ports. GET and HEAD requests, and requests of web pages,
	// need one of them, a numeric address or localhost as Host.
	Hosts []string
}

// Handler serves an engine over HTTP. Its methods may be called from any goroutine.
type Handler struct {
	http.Handler // the routes, with traces

	o      Options
	limits limits
	heap   *semaphore.Weighted // bytes of JSON of all requests
}

// New returns a handler.
func New(o Options) *Handler {
	h := &Handler{o: o, limits: defaults, heap: semaphore.NewWeighted(maxJSON)}
	h.Handler = o.Traces.HTTP(h.routes())
	return h
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
	if h.o.Engine.Retired() {
		// No connection is left when the server closes those that are idle, and no request is lost on one.
		w.Header()["Connection"] = []string{"close"}
	}
	defer x.survive()
	err := x.admit()
	if err == nil {
		err = serve(x)
	}
	if err != nil {
		x.fail(err)
	}
}

// survive turns a panic into the end of its request alone, like net/http, and counts it.
func (x *exchange) survive() {
	if p := recover(); p != nil {
		x.h.o.Engine.Refused(oip.Internal)
		x.h.o.Engine.Log().Error("a request panicked", "method", x.r.Method, "path", x.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		panic(http.ErrAbortHandler) // the connection may be anywhere in the exchange
	}
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

// marshal responds with a value, encoded by encoding/json, for rare requests.
func (x *exchange) marshal(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		x.send(http.StatusOK, b)
	}
	return err
}

// done responds with an empty body, unless there is an error.
func (x *exchange) done(err error) error {
	if err == nil {
		x.send(http.StatusOK, nil)
	}
	return err
}

// refuse returns an error with a status that the protocol does not define.
func refuse(status int, kind oip.Kind, message string, cause error) error {
	return &oip.Error{Kind: kind, Status: status, Message: message, Err: cause}
}

// fail responds with an error, before any other response.
func (x *exchange) fail(err error) {
	e := oip.As(err)
	status, wait := cmp.Or(e.Status, e.Kind.HTTP()), e.RetryAfter
	if !x.probe {
		x.h.o.Engine.Refused(e.Kind)
	}
	level := slog.LevelDebug
	if status == http.StatusInternalServerError && !e.Logged {
		level = slog.LevelError
	}
	x.h.o.Engine.Log().Log(x.r.Context(), level, "request refused", "method", x.r.Method, "path", x.r.URL.Path, "status", status, "error", err)
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
