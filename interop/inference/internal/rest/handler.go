package rest

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// Options configure a Handler. Zero values are defaults.
type Options struct {
	Engine *engine.Engine
	Log    *slog.Logger // slog.Default()
	// Control loads and unloads models for clients; nil refuses that.
	Control engine.Control

	// Tenants decides the tenant of a request.
	Tenants oip.TenantRule

	// Traces exports the spans of inferences; nil for none.
	Traces *traces.Traces

	// Hosts are names of this server, without ports. GET and HEAD requests, and requests of web pages,
	// need one of them, a numeric address or localhost as Host.
	Hosts []string

	MaxBody int64         // bytes of a body as sent; 1 GiB
	MaxJSON int64         // bytes of the JSON of a request; 64 MiB
	JSON    int64         // bytes of the JSON of all requests in flight; four times MaxJSON
	MinRate int64         // bytes per second of a body, in both directions, after Grace; 1 MiB
	Grace   time.Duration // 10 s
	Timeout time.Duration // of a whole body; that of the engine
}

// Handler serves an engine over HTTP. Its methods may be called from any goroutine.
type Handler struct {
	o     Options
	gate  gate
	serve http.Handler // the routes, with traces
}

// New returns a handler. Errors: invalid options.
func New(o Options) (*Handler, error) {
	if o.Engine == nil {
		return nil, errors.New("rest: Options.Engine is nil")
	}
	if o.MaxBody < 0 || o.MaxJSON < 0 || o.JSON < 0 || o.MinRate < 0 || o.Grace < 0 || o.Timeout < 0 {
		return nil, errors.New("rest: a bound in Options is negative")
	}
	for p, v := range map[*int64]int64{&o.MaxBody: 1 << 30, &o.MaxJSON: 64 << 20, &o.MinRate: 1 << 20} {
		if *p == 0 {
			*p = v
		}
	}
	if o.JSON == 0 {
		o.JSON = 4 * o.MaxJSON
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = o.Engine.Timeout()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Tenants.Header = http.CanonicalHeaderKey(o.Tenants.Header)
	h := &Handler{o: o, gate: gate{limit: o.JSON, each: max(o.JSON/4*3, min(o.JSON, o.MaxJSON))}}
	h.serve = o.Traces.HTTP(h.routes())
	return h, nil
}

// JSONInFlight returns the bytes of JSON of all requests in flight.
func (h *Handler) JSONInFlight() int64 { return h.gate.inUse() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve.ServeHTTP(w, r) }

// handle serves a request.
func (h *Handler) handle(w http.ResponseWriter, r *http.Request, serve func(*exchange) error) {
	x := exchange{h: h, w: w, r: r, control: http.NewResponseController(w)}
	if r.ContentLength != 0 {
		// net/http reads the rest of a body before it responds: bound the time for that.
		_ = x.control.SetReadDeadline(time.Now().Add(min(drainTime, h.o.Grace/2)))
	}
	defer x.survive()
	err := x.admit()
	if err == nil {
		err = serve(&x)
	}
	if err != nil {
		x.fail(err)
	}
}

// survive turns a panic into the end of its request alone, like net/http, and counts it.
func (x *exchange) survive() {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) { // not a defect, and counted already
		x.h.o.Engine.Refused(oip.Internal)
		x.h.o.Log.Error("a request panicked", "method", x.r.Method, "path", x.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler) // the connection may be anywhere in the exchange
}

// tenant returns the tenant of the request.
func (x *exchange) tenant() (string, error) {
	rule := &x.h.o.Tenants
	return rule.Of(x.r.RemoteAddr, func() []string { return x.r.Header[rule.Header] })
}
