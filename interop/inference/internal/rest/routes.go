package rest

import (
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// routes are the paths of the protocol, as patterns of http.ServeMux. GET includes HEAD.
var routes = []struct {
	method, pattern string
	serve           func(*exchange) error
}{
	{"GET", "/v2", func(x *exchange) error { return x.respond(x.h.engine.Server(), nil) }},
	{"GET", "/v2/health/live", func(x *exchange) error { return x.health(x.h.engine.Live, `{"live":true}`) }},
	{"GET", "/v2/health/ready", func(x *exchange) error { return x.health(x.h.engine.Ready, `{"ready":true}`) }},

	{"POST", "/v2/models/{model}/infer", (*exchange).infer},
	{"POST", "/v2/models/{model}/versions/{version}/infer", (*exchange).infer},
	{"GET", "/v2/models/stats", func(x *exchange) error { return x.respond(engine.Statistics(x.h.engine.Models()...), nil) }},
	{"GET", "/v2/models/{model}", ofModel((*exchange).metadata)},
	{"GET", "/v2/models/{model}/ready", ofModel((*exchange).modelReady)},
	{"GET", "/v2/models/{model}/stats", ofModel((*exchange).statistics)},
	{"GET", "/v2/models/{model}/versions/{version}", ofModel((*exchange).metadata)},
	{"GET", "/v2/models/{model}/versions/{version}/ready", ofModel((*exchange).modelReady)},
	{"GET", "/v2/models/{model}/versions/{version}/stats", ofModel((*exchange).statistics)},

	{"POST", "/v2/repository/index", withBody((*exchange).index)},
	{"POST", "/v2/repository/models/{model}/load", withBody((*exchange).load)},
	{"POST", "/v2/repository/models/{model}/unload", withBody((*exchange).unload)},

	{"GET", "/v2/systemsharedmemory/status", (*exchange).regionStatus},
	{"GET", "/v2/systemsharedmemory/region/{region}/status", (*exchange).regionStatus},
	{"POST", "/v2/systemsharedmemory/region/{region}/register", withBody((*exchange).register)},
	{"POST", "/v2/systemsharedmemory/unregister", withBody((*exchange).unregister)},
	{"POST", "/v2/systemsharedmemory/region/{region}/unregister", withBody((*exchange).unregister)},
	// There are no regions of devices, but clients begin by unregistering all of them.
	{"GET", "/v2/cudasharedmemory/status", func(x *exchange) error { return x.respond([]any{}, nil) }},
	{"POST", "/v2/cudasharedmemory/unregister", func(x *exchange) error { return x.respond(nil, nil) }},
}

// routes returns the handler of all paths.
func (h *Handler) routes() http.Handler {
	unknown := func(w http.ResponseWriter, r *http.Request) {
		h.handle(w, r, func(*exchange) error {
			return oip.Errorf(oip.NotFound, "this path is not served; those of the protocol begin with /v2")
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", unknown)
	for _, route := range routes {
		serve := func(x *exchange) error {
			if m := x.r.Method; m == route.method || m == http.MethodHead && route.method == http.MethodGet {
				return route.serve(x)
			}
			x.w.Header()["Allow"] = []string{strings.Replace(route.method, "GET", "GET, HEAD", 1)}
			return &oip.Error{Kind: oip.Invalid, Status: http.StatusMethodNotAllowed, Message: "this path takes " + route.method}
		}
		mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) { h.handle(w, r, serve) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would redirect paths with empty or relative segments.
		if p := r.URL.EscapedPath(); !strings.HasPrefix(p, "/v2") || path.Clean(p) != p {
			unknown(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ofModel adapts a function that describes a model.
func ofModel(serve func(*exchange, *engine.Model) error) func(*exchange) error {
	return func(x *exchange) error {
		m, err := x.h.engine.Model(x.r.PathValue("model"), x.r.PathValue("version"))
		if err != nil {
			return err
		}
		return serve(x, m)
	}
}

// control is the JSON object of a request without tensors. Each request has some of the members.
type control struct {
	Ready      bool           `json:"ready"`
	Parameters map[string]raw `json:"parameters"`
	Key        *string        `json:"key"`
	Offset     uint64         `json:"offset"`
	Size       *uint64        `json:"byte_size"`
}

// withBody adapts a function of a request with a small JSON object, which may be absent.
func withBody(serve func(*exchange, *control) error) func(*exchange) error {
	return func(x *exchange) error {
		b, err := x.open(maxSmall)
		if err != nil {
			return err
		}
		defer b.free()
		var text []byte
		if b.length != 0 {
			if text, err = b.text(); err == nil {
				err = b.finish()
			}
		}
		var q control
		if err == nil && len(text) > 0 {
			err = decode(text, &q)
		}
		if err != nil {
			return err
		}
		b.free() // a load may take long; of Parameters, only the names are used, which are copies
		return serve(x, &q)
	}
}

// health answers a probe. KServe's client reads the body.
func (x *exchange) health(check func() error, body string) error {
	x.probe = true
	if err := check(); err != nil {
		return err
	}
	x.send(http.StatusOK, []byte(body))
	return nil
}

func (x *exchange) modelReady(m *engine.Model) error {
	return x.health(m.Ready, `{"name":`+string(appendString(nil, m.Meta().Name))+`,"ready":true}`)
}

func (x *exchange) metadata(m *engine.Model) error { return x.respond(m.Meta(), nil) }

func (x *exchange) statistics(m *engine.Model) error { return x.respond(engine.Statistics(m), nil) }

func (x *exchange) index(q *control) error { return x.respond(x.h.engine.Index(q.Ready), nil) }

func (x *exchange) load(q *control) error {
	return x.respond(nil, x.h.engine.Load(x.r.Context(), x.r.PathValue("model"), slices.Collect(maps.Keys(q.Parameters))))
}

func (x *exchange) unload(*control) error {
	return x.respond(nil, x.h.engine.Unload(x.r.Context(), x.r.PathValue("model")))
}

func (x *exchange) regionStatus() error {
	return x.respond(x.h.engine.Options.Regions.Status(x.client(), x.r.PathValue("region")))
}

func (x *exchange) register(q *control) error {
	if q.Key == nil || q.Size == nil {
		return oip.Errorf(oip.Invalid, `a region needs a "key" and a "byte_size"`)
	}
	return x.respond(nil, x.h.engine.Options.Regions.Register(x.client(), x.r.PathValue("region"), *q.Key, q.Offset, *q.Size))
}

func (x *exchange) unregister(*control) error {
	return x.respond(nil, x.h.engine.Options.Regions.Unregister(x.client(), x.r.PathValue("region")))
}
