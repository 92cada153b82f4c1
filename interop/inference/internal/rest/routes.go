package rest

import (
	"net/http"
	"path"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// routes are the paths of the protocol, as patterns of http.ServeMux. GET includes HEAD.
var routes = []struct {
	method, pattern string
	serve           func(*exchange) error
}{
	{"GET", "/v2", func(x *exchange) error { return x.marshal(x.h.o.Engine.Server()) }},
	{"GET", "/v2/health/live", func(x *exchange) error { return x.health(x.h.o.Engine.Live, `{"live":true}`) }},
	{"GET", "/v2/health/ready", func(x *exchange) error { return x.health(x.h.o.Engine.Ready, `{"ready":true}`) }},

	{"POST", "/v2/models/{model}/infer", (*exchange).infer},
	{"POST", "/v2/models/{model}/versions/{version}/infer", (*exchange).infer},
	{"GET", "/v2/models/stats", func(x *exchange) error { return x.marshal(engine.Statistics(x.h.o.Engine.Models()...)) }},
	{"GET", "/v2/models/{model}", ofModel((*exchange).metadata)},
	{"GET", "/v2/models/{model}/ready", ofModel((*exchange).modelReady)},
	{"GET", "/v2/models/{model}/stats", ofModel((*exchange).statistics)},
	{"GET", "/v2/models/{model}/versions/{version}", ofModel((*exchange).metadata)},
	{"GET", "/v2/models/{model}/versions/{version}/ready", ofModel((*exchange).modelReady)},
	{"GET", "/v2/models/{model}/versions/{version}/stats", ofModel((*exchange).statistics)},

	{"POST", "/v2/repository/index", (*exchange).index},
	{"POST", "/v2/repository/models/{model}/load", (*exchange).load},
	{"POST", "/v2/repository/models/{model}/unload", (*exchange).unload},

	{"GET", "/v2/systemsharedmemory/status", (*exchange).regionStatus},
	{"GET", "/v2/systemsharedmemory/region/{region}/status", (*exchange).regionStatus},
	{"POST", "/v2/systemsharedmemory/region/{region}/register", (*exchange).register},
	{"POST", "/v2/systemsharedmemory/unregister", (*exchange).unregister},
	{"POST", "/v2/systemsharedmemory/region/{region}/unregister", (*exchange).unregister},
	// There are no regions of devices, but clients begin by unregistering all of them.
	{"GET", "/v2/cudasharedmemory/status", func(x *exchange) error { return x.marshal([]any{}) }},
	{"POST", "/v2/cudasharedmemory/unregister", func(x *exchange) error { return x.done(nil) }},
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
			return refuse(http.StatusMethodNotAllowed, oip.Invalid, "this path takes "+route.method, nil)
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
		m, err := x.h.o.Engine.Model(x.r.PathValue("model"), x.r.PathValue("version"))
		if err != nil {
			return err
		}
		return serve(x, m)
	}
}
