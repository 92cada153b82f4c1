//go:build cgo && linux

package rest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/memmgr"
)

// direct returns a handler without a network, and its memory, which has a limit.
func direct(t testing.TB) (*Handler, *memmgr.Pool) {
	t.Helper()
	regions := region.New(region.Options{Prefix: "no such thing"})
	t.Cleanup(func() { require.NoError(t, regions.Close()) })
	pool := memmgr.NewPool(memmgr.NewLimit(memmgr.Host(), 1<<22))
	e := enginetest.New(t, engine.Options{Memory: engine.Pool{Pool: pool, Limit: 1 << 22}, Log: quiet(), Regions: regions, Timeout: time.Second},
		enginetest.Identity(), sums(), kinds(), halves())
	h := New(e, nil, nil)
	h.limits.body, h.limits.json = 1<<20, 1<<18
	return h, pool
}

// sums returns a model with fixed shapes.
func sums() *enginetest.Model {
	m := enginetest.Sum()
	m.Meta.Inputs[0].Shape, m.Meta.Inputs[1].Shape = []int64{2, 2}, []int64{2, 2}
	m.Meta.Outputs[0].Shape = []int64{2, 2}
	return m
}

// checked serves a request and checks the properties of every response: it is no internal error, an
// error has the protocol's form, and no request or memory is left.
func checked(t testing.TB, h *Handler, pool *memmgr.Pool, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code >= 500 && w.Code != 503 && w.Code != 504 {
		t.Fatalf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
	}
	require.True(t, uncharged(h, maxJSON))
	require.Zero(t, h.engine.Stats().Requests)
	require.Zero(t, pool.Stats().AllocatedBytes.Current)
	if w.Code != 200 {
		var e struct{ Error string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e), "%s", w.Body)
		require.NotEmpty(t, e.Error)
	}
	return w
}

// FuzzInfer checks that arbitrary JSON and tensor bytes get a valid response from every model.
func FuzzInfer(f *testing.F) {
	h, pool := direct(f)
	add := func(model uint8, text, tensors string, encoding uint8) {
		f.Add(model, []byte(text+tensors), strconv.Itoa(len(text)), encoding)
	}
	add(0, binaryFloats(2), "12345678", 0)
	add(0, `{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}`, "", 0)
	add(0, `{"id":"a","outputs":[{"name":"y","parameters":{"binary_data":true}}],"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[[1]]}]}`, "", 4)
	add(1, `{"inputs":[{"name":"a","shape":[2,2],"datatype":"INT64","data":[[1,2],[3,4]]},{"name":"b","shape":[2,2],"datatype":"INT64","parameters":{"binary_data_size":32}}]}`, strings.Repeat("x", 32), 8)
	add(3, `{"inputs":[{"name":"a","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}},{"name":"b","shape":[1],"datatype":"BF16","parameters":{"binary_data_size":2}}],"parameters":{"binary_data_output":true}}`, "aabb", 0)
	add(0, `{"inputs":[{"name":"x","shape":[9223372036854775807],"datatype":"FP32","parameters":{"binary_data_size":9223372036854775807}}]}`, "", 0)
	add(0, `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"shared_memory_region":"r","shared_memory_byte_size":4,"shared_memory_offset":18446744073709551615}}]}`, "", 0)
	f.Add(uint8(0), compressed(f, []byte(binaryFloats(1)+"1234")), strconv.Itoa(len(binaryFloats(1))), uint8(1))
	f.Add(uint8(0), []byte("{}"), "-1", uint8(0))
	f.Add(uint8(0), []byte("{}"), "", uint8(3))
	names := []string{"identity", "sum", "kinds", "halves"}
	f.Fuzz(func(t *testing.T, model uint8, body []byte, length string, encoding uint8) {
		r := httptest.NewRequest("POST", "/v2/models/"+names[int(model)%len(names)]+"/infer", strings.NewReader(string(body)))
		if length != "" {
			r.Header[headerLength] = []string{length}
		}
		if name := []string{"", "gzip", "identity", "other"}[encoding&3]; name != "" {
			r.Header.Set("Content-Encoding", name)
		}
		if name := []string{"", "gzip", "deflate"}[encoding>>2%3]; name != "" {
			r.Header.Set("Accept-Encoding", name)
		}
		w := checked(t, h, pool, r)
		if w.Code != 200 || strings.Contains(w.Body.String(), "NaN") || strings.Contains(w.Body.String(), "Infinity") {
			return
		}
		text := plain(t, response{200, w.Header(), w.Body.Bytes()})
		if n := w.Header().Get(headerLength); n != "" {
			at, err := strconv.Atoi(n)
			require.NoError(t, err)
			text = text[:at]
		}
		require.True(t, json.Valid(text), "%s", text)
	})
}

// FuzzPaths checks that any path, method and small body get a valid response.
func FuzzPaths(f *testing.F) {
	h, pool := direct(f)
	for _, path := range []string{"/v2", "/v2/models/identity", "/v2/models/a%2fb/versions/1/ready", "/v2/models/stats", "/v2/health/live", "/v2/repository/index",
		"/v2/repository/models/x/load", "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/r/register", "/v2/systemsharedmemory/unregister",
		"/v2/cudasharedmemory/region/%00/status", "/v2/trace/setting", "/v2/logging", "//v2/../v2", "/v2/models/identity/infer", "*", "/%76%32"} {
		f.Add("GET", path, []byte(nil))
		f.Add("POST", path, []byte(`{"key":"/no such thing","offset":0,"byte_size":18446744073709551615,"ready":true}`))
	}
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" {
			return
		}
		r := httptest.NewRequest("GET", "http://localhost/", strings.NewReader(string(body)))
		r.Method, r.URL = method, u
		w := checked(t, h, pool, r)
		if w.Code == 200 && w.Body.Len() > 0 {
			require.True(t, json.Valid(w.Body.Bytes()), "%s", w.Body)
		}
	})
}
