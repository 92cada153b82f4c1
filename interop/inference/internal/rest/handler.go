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

var errNoPath = oip.Errorf(oip.NotFound, "unknown path; those of the protocol begin with /v2")

// route is a path of the protocol. * is a name, which may contain any character. The first route that
// matches is served.
type route struct {
	method, pattern string // GET, which includes HEAD, POST, or any
	serve           func(x *exchange, first, second string) error
}

const anyMethod = ""

var routes = []route{
	{"POST", "/v2/models/*/infer", func(x *exchange, model, _ string) error { return x.infer(model, "") }},
	{"POST", "/v2/models/*/versions/*/infer", (*exchange).infer},
	{"GET", "/v2", func(x *exchange, _, _ string) error { return x.marshal(x.h.o.Engine.Server()) }},
	{"GET", "/v2/health/live", func(x *exchange, _, _ string) error { return x.health(x.h.o.Engine.Live, `{"live":true}`) }},
	{"GET", "/v2/health/ready", func(x *exchange, _, _ string) error { return x.health(x.h.o.Engine.Ready, `{"ready":true}`) }},
	{"GET", "/v2/models/stats", func(x *exchange, _, _ string) error { return x.statistics(x.h.o.Engine.Models()) }},
	{"GET", "/v2/models/*", ofModel((*exchange).metadata)},
	{"GET", "/v2/models/*/ready", ofModel((*exchange).modelReady)},
	{"GET", "/v2/models/*/config", ofModel((*exchange).config)},
	{"GET", "/v2/models/*/stats", ofModel((*exchange).modelStatistics)},
	{"GET", "/v2/models/*/versions/*", ofModel((*exchange).metadata)},
	{"GET", "/v2/models/*/versions/*/ready", ofModel((*exchange).modelReady)},
	{"GET", "/v2/models/*/versions/*/config", ofModel((*exchange).config)},
	{"GET", "/v2/models/*/versions/*/stats", ofModel((*exchange).modelStatistics)},
	{"POST", "/v2/repository/index", (*exchange).index},
	{"POST", "/v2/repository/models/*/load", func(x *exchange, model, _ string) error { return x.load(model, true) }},
	{"POST", "/v2/repository/models/*/unload", func(x *exchange, model, _ string) error { return x.load(model, false) }},
	{"GET", "/v2/systemsharedmemory/status", (*exchange).regionStatus},
	{"GET", "/v2/systemsharedmemory/region/*/status", (*exchange).regionStatus},
	{"POST", "/v2/systemsharedmemory/region/*/register", (*exchange).register},
	{"POST", "/v2/systemsharedmemory/unregister", (*exchange).unregister},
	{"POST", "/v2/systemsharedmemory/region/*/unregister", (*exchange).unregister},
	// There are no regions of devices. Clients begin by unregistering all of them.
	{"GET", "/v2/cudasharedmemory/status", (*exchange).noRegions},
	{"GET", "/v2/xpusharedmemory/status", (*exchange).noRegions},
	{"POST", "/v2/cudasharedmemory/unregister", (*exchange).ok},
	{"POST", "/v2/xpusharedmemory/unregister", (*exchange).ok},
	{anyMethod, "/v2/cudasharedmemory/region/*/*", unsupported("shared memory of devices is not served; use system shared memory")},
	{anyMethod, "/v2/xpusharedmemory/region/*/*", unsupported("shared memory of devices is not served; use system shared memory")},
	{anyMethod, "/v2/models/*/generate", unsupported("the generate extension is not served; use infer")},
	{anyMethod, "/v2/models/*/generate_stream", unsupported("the generate extension is not served; use infer")},
	{anyMethod, "/v2/models/*/trace/setting", unsupported("trace settings are not served")},
	{anyMethod, "/v2/trace/setting", unsupported("trace settings are not served")},
	{anyMethod, "/v2/logging", unsupported("log settings are not served: they are the operator's")},
}

func unsupported(message string) func(*exchange, string, string) error {
	return func(*exchange, string, string) error { return &oip.Error{Kind: oip.Unsupported, Message: message} }
}

// ofModel adapts a function that describes a model.
func ofModel(serve func(*exchange, *engine.Model) error) func(*exchange, string, string) error {
	return func(x *exchange, name, version string) error {
		m, err := x.h.o.Engine.Model(name, version)
		if err != nil {
			return err
		}
		return serve(x, m)
	}
}

// match compares a path with a pattern, segment by segment, and returns the names.
func match(pattern, path string) (names [2]string, ok bool) {
	for n := 0; pattern != ""; {
		if path == "" {
			return names, false
		}
		want, _, _ := strings.Cut(pattern[1:], "/") // both begin with a slash
		got, _, _ := strings.Cut(path[1:], "/")
		pattern, path = pattern[1+len(want):], path[1+len(got):]
		switch {
		case want == "*" && got != "":
			names[n] = got
			n++
		case want != got:
			return names, false
		}
	}
	return names, path == ""
}

// route serves the path. It is split at its slashes before it is unescaped.
func (x *exchange) route() error {
	u := x.r.URL
	path, escaped := u.Path, u.RawPath != "" // RawPath is set if the path has escapes that matter
	if escaped {
		path = u.RawPath
	}
	if !strings.HasPrefix(path, "/v2") {
		return errNoPath
	}
	for i := range routes {
		r := &routes[i]
		names, ok := match(r.pattern, path)
		if !ok {
			continue
		}
		if m := x.r.Method; r.method != anyMethod && m != r.method && !(m == http.MethodHead && r.method == http.MethodGet) {
			allow := r.method
			if allow == http.MethodGet {
				allow = "GET, HEAD"
			}
			return &refusal{status: http.StatusMethodNotAllowed, message: "this path takes " + r.method, allow: allow}
		}
		if escaped {
			for i := range names {
				var err error
				if names[i], err = url.PathUnescape(names[i]); err != nil {
					return errNoPath
				}
			}
		}
		return r.serve(x, names[0], names[1])
	}
	return errNoPath
}

// tenant returns the tenant of the request.
func (x *exchange) tenant() (string, error) {
	rule := &x.h.o.Tenants
	return rule.Of(x.r.RemoteAddr, func() []string { return x.r.Header[rule.Header] })
}
