package rest

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
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

	MaxBody   int64         // bytes of a body as sent; 1 GiB
	MaxJSON   int64         // bytes of the JSON of a request; 64 MiB
	JSON      int64         // bytes of the JSON of all requests in flight; four times MaxJSON
	MinRate   int64         // bytes per second of a body, in both directions, after Grace; 1 MiB
	Grace     time.Duration // 10 s
	Timeout   time.Duration // of a whole body; that of the engine
	NoEncoder bool          // responses are never compressed
}

// Handler serves an engine over HTTP. Its methods may be called from any goroutine.
type Handler struct {
	o     Options
	gate  gate
	serve http.Handler // handle, with traces
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
	h.serve = o.Traces.HTTP(http.HandlerFunc(h.handle))
	return h, nil
}

// JSONInFlight returns the bytes of JSON of all requests in flight.
func (h *Handler) JSONInFlight() int64 { return h.gate.inUse() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve.ServeHTTP(w, r) }

func (h *Handler) handle(w http.ResponseWriter, r *http.Request) {
	x := exchange{h: h, w: w, r: r, control: http.NewResponseController(w)}
	if r.ContentLength != 0 {
		// net/http reads the rest of a body before it responds: bound the time for that.
		_ = x.control.SetReadDeadline(time.Now().Add(min(drainTime, h.o.Grace/2)))
	}
	defer x.survive()
	err := x.admit()
	if err == nil {
		err = x.route()
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

// path is a path that is split from its front.
type path struct {
	rest    string
	escaped bool
}

// next returns the next name; false at the end.
func (p *path) next() (string, bool, error) {
	if p.rest == "" {
		return "", false, nil
	}
	name, _, _ := strings.Cut(p.rest[1:], "/") // it begins with a slash
	p.rest = p.rest[1+len(name):]
	if !p.escaped {
		return name, true, nil
	}
	plain, err := url.PathUnescape(name)
	if err != nil {
		return "", false, errNoPath
	}
	return plain, true, nil
}

var errNoPath = oip.Errorf(oip.NotFound, "unknown path; those of the protocol begin with /v2")

// maxNames is the maximum number of names in a path of the protocol after the first.
const maxNames = 5

// route serves the object that the path names. Names may contain any character: they are split at
// the slashes of the path as sent, and unescaped afterwards.
func (x *exchange) route() error {
	u := x.r.URL
	p := path{rest: u.Path, escaped: false}
	if u.RawPath != "" { // the path has escapes that matter
		p = path{rest: u.RawPath, escaped: true}
	}
	if !strings.HasPrefix(p.rest, "/v2") {
		return errNoPath
	}
	p.rest = p.rest[len("/v2"):]
	if p.rest != "" && p.rest[0] != '/' {
		return errNoPath
	}
	var names [maxNames + 1]string
	n := 0
	for ; n < len(names); n++ {
		name, there, err := p.next()
		if err != nil {
			return err
		}
		if !there {
			break
		}
		names[n] = name
	}
	if n > maxNames {
		return errNoPath
	}
	if n == 0 {
		return x.get(x.server)
	}
	in := names[1:n]
	switch names[0] {
	case "models":
		return x.models(in)
	case "health":
		if len(in) == 1 && in[0] == "live" {
			return x.get(func() error { return x.health(x.h.o.Engine.Live, `{"live":true}`) })
		}
		if len(in) == 1 && in[0] == "ready" {
			return x.get(func() error { return x.health(x.h.o.Engine.Ready, `{"ready":true}`) })
		}
	case "repository":
		return x.repository(in)
	case "systemsharedmemory":
		return x.systemMemory(in)
	case "cudasharedmemory", "xpusharedmemory":
		return x.deviceMemory(names[0], in)
	case "trace":
		if len(in) == 1 && in[0] == "setting" {
			return unsupported("trace settings are not served")
		}
	case "logging":
		if len(in) == 0 {
			return unsupported("log settings are not served: they are the operator's")
		}
	}
	return errNoPath
}

func unsupported(message string) error {
	return &oip.Error{Kind: oip.Unsupported, Message: message}
}

// models serves the paths below /v2/models.
func (x *exchange) models(in []string) error {
	if len(in) == 1 && in[0] == "stats" {
		return x.get(func() error { return x.statistics(x.h.o.Engine.Models()) })
	}
	if len(in) == 0 {
		return errNoPath
	}
	name, version := in[0], ""
	in = in[1:]
	if len(in) >= 2 && in[0] == "versions" {
		if version = in[1]; version == "" {
			return errNoPath
		}
		in = in[2:]
	}
	what := ""
	switch {
	case len(in) == 1 && in[0] != "":
		what = in[0]
	case len(in) == 2 && in[0] == "trace" && in[1] == "setting":
		return unsupported("trace settings are not served")
	case len(in) > 0:
		return errNoPath
	}
	switch what {
	case "infer":
		return x.post(func() error { return x.infer(name, version) })
	case "generate", "generate_stream":
		return unsupported("the generate extension is not served; use infer")
	case "", "ready", "config", "stats":
	default:
		return errNoPath
	}
	m, err := x.h.o.Engine.Model(name, version)
	if err != nil {
		return err
	}
	return x.get(func() error {
		switch what {
		case "ready":
			return x.health(m.Ready, `{"name":`+string(appendString(nil, m.Meta().Name))+`,"ready":true}`)
		case "config":
			return x.marshal(m.Config())
		case "stats":
			return x.statistics([]*engine.Model{m})
		}
		return x.marshal(m.Meta())
	})
}

// get and post serve one method.
func (x *exchange) get(serve func() error) error {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		return &refusal{status: http.StatusMethodNotAllowed, message: "this path takes GET", allow: "GET, HEAD"}
	}
	return serve()
}

func (x *exchange) post(serve func() error) error {
	if x.r.Method != http.MethodPost {
		return &refusal{status: http.StatusMethodNotAllowed, message: "this path takes POST", allow: "POST"}
	}
	return serve()
}

// tenant returns the tenant of the request.
func (x *exchange) tenant() (string, error) {
	rule := &x.h.o.Tenants
	return rule.Of(x.r.RemoteAddr, func() []string { return x.r.Header[rule.Header] })
}
