//go:build cgo && linux

package rest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/examples/service/internal/engine"
	"github.com/usmbridge/usmbridge/examples/service/internal/enginetest"
	"github.com/usmbridge/usmbridge/examples/service/internal/oip"
	"github.com/usmbridge/usmbridge/examples/service/internal/region"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// service is a server that a test talks to.
type service struct {
	t       testing.TB
	engine  *engine.Engine
	runner  *enginetest.Runner
	regions *region.Registry
	handler *Handler
	address string
	client  *http.Client
}

// setup is what a test wants otherwise.
type setup struct {
	engine      engine.Options
	rest        Options
	connections Connections
	models      []*enginetest.Model
	noRegions   bool
}

// quiet is a log that nobody reads.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve starts a server on a real port, and ends it with the test, which fails when anything
// of a request is left then.
func serve(t testing.TB, s setup) *service {
	t.Helper()
	if s.models == nil {
		s.models = []*enginetest.Model{enginetest.Identity(), enginetest.Sum(), kinds(), halves()}
	}
	v := &service{t: t, runner: enginetest.NewRunner(s.models...)}
	if !s.noRegions {
		v.regions = region.New(region.Options{})
		t.Cleanup(func() { require.NoError(t, v.regions.Close()) })
		s.engine.Regions = v.regions
	}
	s.engine.Runner, s.engine.Log, s.engine.Name, s.engine.Version = v.runner, quiet(), "test", "7"
	v.engine = enginetest.New(t, s.engine, s.models...)
	s.rest.Engine, s.rest.Log = v.engine, quiet()
	var err error
	v.handler, err = New(s.rest)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := v.handler.Server()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(Listen(l, s.connections)) }()
	v.address = l.Addr().String()
	v.client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
	t.Cleanup(func() {
		v.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, server.Shutdown(ctx))
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
		require.Zero(t, v.handler.JSONInFlight())
	})
	return v
}

// kinds gives back what it gets, of all datatypes that have JSON.
func kinds() *enginetest.Model {
	m := &enginetest.Model{Meta: oip.Model{Name: "kinds", Versions: []string{"1"}, Platform: "go"}, Bound: true}
	for _, d := range []oip.Datatype{oip.BOOL, oip.UINT8, oip.UINT16, oip.UINT32, oip.UINT64, oip.INT8, oip.INT16, oip.INT32, oip.INT64, oip.FP32, oip.FP64} {
		m.Meta.Inputs = append(m.Meta.Inputs, oip.Tensor{Name: "in_" + d.String(), Datatype: d, Shape: []int64{-1}})
		m.Meta.Outputs = append(m.Meta.Outputs, oip.Tensor{Name: "out_" + d.String(), Datatype: d, Shape: []int64{-1}})
	}
	m.Infer = copyAll
	return m
}

// halves gives back 16-bit floats.
func halves() *enginetest.Model {
	return &enginetest.Model{Bound: true, Infer: copyAll, Meta: oip.Model{Name: "halves", Versions: []string{"1"}, Platform: "go",
		Inputs:  []oip.Tensor{{Name: "a", Datatype: oip.FP16, Shape: []int64{-1}}, {Name: "b", Datatype: oip.BF16, Shape: []int64{-1}}},
		Outputs: []oip.Tensor{{Name: "c", Datatype: oip.FP16, Shape: []int64{-1}}, {Name: "d", Datatype: oip.BF16, Shape: []int64{-1}}}}}
}

func copyAll(_ context.Context, in, out []*usmarray.Array) ([]*usmarray.Array, error) {
	for i := range in {
		if err := out[i].CopyFrom(in[i]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// reply is a response that was read.
type response struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request; body may be nil.
func (v *service) do(method, path string, body []byte, headers ...string) response {
	v.t.Helper()
	var from io.Reader
	if body != nil {
		from = bytes.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+v.address+path, from)
	require.NoError(v.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := v.client.Do(r)
	require.NoError(v.t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(v.t, err)
	return response{answer.StatusCode, answer.Header, b}
}

// message is the error of a refusal, which is one.
func (r response) message(t testing.TB, status int) string {
	t.Helper()
	require.Equal(t, status, r.status, "%s", r.body)
	var e map[string]string
	require.NoError(t, json.Unmarshal(r.body, &e), "%s", r.body)
	require.Len(t, e, 1)
	require.NotEmpty(t, e["error"])
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	return e["error"]
}

// inference sends JSON with binary tensors behind it.
func (v *service) inference(model, text string, tensors []byte, headers ...string) response {
	v.t.Helper()
	if tensors != nil {
		headers = append(headers, headerLength, strconv.Itoa(len(text)))
	}
	return v.do("POST", "/v2/models/"+model+"/infer", append([]byte(text), tensors...), headers...)
}

// tensors takes a response apart, as a client does.
func (r response) tensors(t testing.TB) (text string, data []byte) {
	t.Helper()
	require.Equal(t, 200, r.status, "%s", r.body)
	if length := r.header.Get(headerLength); length != "" {
		n, err := strconv.Atoi(length)
		require.NoError(t, err)
		require.Equal(t, "application/octet-stream", r.header.Get("Content-Type"))
		return string(r.body[:n]), r.body[n:]
	}
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	return string(r.body), nil
}

func floats(v ...float32) []byte {
	b, _ := binary.Append(nil, binary.NativeEndian, v)
	return b
}

func binaryFloats(n int) string {
	return fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, n, 4*n)
}

func TestMetadata(t *testing.T) {
	v := serve(t, setup{})
	for _, c := range []struct{ path, want string }{
		{"/v2", `{"name":"test","version":"7","extensions":["binary_tensor_data","model_repository","model_configuration","statistics","system_shared_memory"]}`},
		{"/v2/models/sum", `{"name":"sum","versions":["1"],"platform":"go","inputs":[{"name":"a","datatype":"INT64","shape":[-1,2]},{"name":"b","datatype":"INT64","shape":[-1,2]}],
			"outputs":[{"name":"sum","datatype":"INT64","shape":[-1,2]},{"name":"total","datatype":"FP64","shape":[]}]}`},
		{"/v2/models/cudasharedmemory/../sum", ""},
		{"/v2/cudasharedmemory/status", `[]`},
		{"/v2/xpusharedmemory/status", `[]`},
		{"/v2/systemsharedmemory/status", `[]`},
	} {
		r := v.do("GET", c.path, nil)
		if c.want == "" {
			r.message(t, 404)
			continue
		}
		require.Equal(t, 200, r.status, c.path)
		require.JSONEq(t, c.want, string(r.body), c.path)
		require.Equal(t, "application/json", r.header.Get("Content-Type"))
	}
	require.Equal(t, v.do("GET", "/v2/models/sum", nil).body, v.do("GET", "/v2/models/sum/versions/1", nil).body)
	require.Equal(t, v.do("GET", "/v2/models/sum", nil).body, v.do("GET", "/v2/models/s%75m", nil).body)
	require.Empty(t, v.do("HEAD", "/v2/models/sum", nil).body)
	for _, path := range []string{"/v2/health/live", "/v2/health/ready", "/v2/models/sum/ready", "/v2/models/sum/versions/1/ready"} {
		r := v.do("GET", path, nil)
		require.Equal(t, 200, r.status, path)
		require.Empty(t, r.body)
	}
	var config map[string]any
	require.NoError(t, json.Unmarshal(v.do("GET", "/v2/models/identity/config", nil).body, &config))
	require.Equal(t, "identity", config["name"])
	require.JSONEq(t, `[{"name":"identity","version":"1","state":"READY","reason":""},{"name":"sum","version":"1","state":"READY","reason":""},
		{"name":"kinds","version":"1","state":"READY","reason":""},{"name":"halves","version":"1","state":"READY","reason":""}]`,
		string(v.do("POST", "/v2/repository/index", nil).body))

	v.runner.SetHealth(&executor.Error{Kind: executor.ErrWarming})
	require.Contains(t, v.do("GET", "/v2/health/ready", nil).message(t, 503), "warming up")
	require.Equal(t, 503, v.do("GET", "/v2/models/sum/ready", nil).status)
	require.Equal(t, 200, v.do("GET", "/v2/health/live", nil).status)
	require.Equal(t, "[]", string(v.do("POST", "/v2/repository/index", []byte(`{"ready":true}`)).body))
	require.Contains(t, string(v.do("POST", "/v2/repository/index", []byte(`{}`)).body), `"state":"UNAVAILABLE"`)
	v.runner.SetHealth(nil)
}

func TestStatistics(t *testing.T) {
	v := serve(t, setup{})
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1)).status)
	require.Equal(t, 400, v.inference("identity", binaryFloats(1), floats(1, 2)).status)
	var all struct {
		Stats []struct {
			Name           string `json:"name"`
			Version        string `json:"version"`
			LastInference  int64  `json:"last_inference"`
			InferenceCount int    `json:"inference_count"`
			ExecutionCount int    `json:"execution_count"`
			InferenceStats map[string]struct {
				Count, NS int
			} `json:"inference_stats"`
			BatchStats []any `json:"batch_stats"`
		} `json:"model_stats"`
	}
	// The client may have the answer before the request is at its end.
	require.Eventually(t, func() bool {
		require.NoError(t, json.Unmarshal(v.do("GET", "/v2/models/stats", nil).body, &all))
		return all.Stats[0].InferenceStats["fail"].Count == 1
	}, 30*time.Second, time.Millisecond)
	require.Len(t, all.Stats, 4)
	one := all.Stats[0]
	require.Equal(t, "identity", one.Name)
	require.Equal(t, "1", one.Version)
	require.Equal(t, 1, one.InferenceCount)
	require.Equal(t, 1, one.ExecutionCount)
	require.NotZero(t, one.LastInference)
	require.NotNil(t, one.BatchStats)
	for _, what := range []string{"success", "queue", "compute_input", "compute_infer", "compute_output"} {
		require.Equal(t, 1, one.InferenceStats[what].Count, what)
	}
	for _, path := range []string{"/v2/models/sum/stats", "/v2/models/sum/versions/1/stats"} {
		require.NoError(t, json.Unmarshal(v.do("GET", path, nil).body, &all))
		require.Len(t, all.Stats, 1)
		require.Equal(t, "sum", all.Stats[0].Name)
	}
}

// What is not served says so, with the right status and nothing of the server's inside.
func TestRefusedPaths(t *testing.T) {
	v := serve(t, setup{noRegions: true})
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/", 404, "begin with /v2"},
		{"GET", "/v1", 404, "/v2"},
		{"GET", "/v22", 404, "/v2"},
		{"GET", "/v2/", 404, "/v2"},
		{"GET", "//v2", 404, "/v2"},
		{"GET", "/v2//health/live", 404, "/v2"},
		{"GET", "/v2/health", 404, "/v2"},
		{"GET", "/v2/health/live/", 404, "/v2"},
		{"GET", "/v2/health/dead", 404, "/v2"},
		{"GET", "/v2/models", 404, "/v2"},
		{"GET", "/v2/models/", 404, "no model"},
		{"GET", "/v2/models/nothing", 404, `no model is called "nothing"`},
		{"GET", "/v2/models/no%2Fthing", 404, `"no/thing"`},
		{"GET", "/v2/models/%2e%2e", 404, `".."`},
		{"GET", "/v2/models/..%2fidentity", 404, `"../identity"`},
		{"GET", "/v2/models/%00", 404, `"\x00"`},
		{"GET", "/v2/models/%ff", 404, `"\xff"`},
		{"GET", "/v2/models/" + strings.Repeat("x", 5000), 404, "xxx"},
		{"GET", "/v2/models/identity/", 404, "/v2"},
		{"GET", "/v2/models/identity/versions", 404, "/v2"},
		{"GET", "/v2/models/identity/versions/", 404, "/v2"},
		{"GET", "/v2/models/identity/versions/2", 404, `no version "2"`},
		{"GET", "/v2/models/identity/versions/01/ready", 404, `no version "01"`},
		{"POST", "/v2/models/identity/versions/-1/infer", 404, `no version "-1"`},
		{"GET", "/v2/models/identity/versions/1/ready/more", 404, "/v2"},
		{"GET", "/v2/models/identity/a/b/c/d/e/f", 404, "/v2"},
		{"GET", "/v2/models/identity/other", 404, "/v2"},
		{"GET", "/v2/models/identity/infer", 405, "POST"},
		{"POST", "/v2/models/identity", 405, "GET"},
		{"DELETE", "/v2", 405, "GET"},
		{"POST", "/v2/health/live", 405, "GET"},
		{"GET", "/v2/repository/index", 405, "POST"},
		{"POST", "/v2/models/nothing/infer", 404, "no model"},
		{"POST", "/v2/models/identity/generate", 400, "not served"},
		{"POST", "/v2/repository/models/identity/load", 400, "they are code"},
		{"POST", "/v2/repository/models/identity/unload", 400, "they are code"},
		{"POST", "/v2/repository/models/identity/other", 404, "/v2"},
		{"GET", "/v2/trace/setting", 400, "trace"},
		{"POST", "/v2/models/identity/trace/setting", 400, "trace"},
		{"POST", "/v2/logging", 400, "operator"},
		{"POST", "/v2/cudasharedmemory/region/a/register", 400, "not served"},
		{"POST", "/v2/xpusharedmemory/region/a/unregister", 400, "not served"},
		{"GET", "/v2/cudasharedmemory/region/a/status", 400, "not served"},
		{"POST", "/v2/systemsharedmemory/region/a/register", 400, "not served"},
		{"GET", "/v2/systemsharedmemory/region/a/status", 400, "not served"},
		{"POST", "/v2/systemsharedmemory/region//register", 404, "/v2"},
		{"GET", "/v2/systemsharedmemory", 404, "/v2"},
	} {
		t.Run(c.method+" "+c.path[:min(len(c.path), 60)], func(t *testing.T) {
			r := v.do(c.method, c.path, nil)
			require.Contains(t, r.message(t, c.status), c.says)
			require.Less(t, len(r.body), 500)
			if c.status == 405 {
				require.NotEmpty(t, r.header.Get("Allow"))
			}
		})
	}
	require.Equal(t, "[]", string(v.do("GET", "/v2/systemsharedmemory/status", nil).body))
	require.Equal(t, 200, v.do("POST", "/v2/cudasharedmemory/unregister", nil).status)
}

// The ways that a tensor comes and goes give the same elements.
func TestInfer(t *testing.T) {
	v := serve(t, setup{})
	const js = `"inputs":[{"name":"a","shape":[2,2],"datatype":"INT64","data":[1,2,3,4]},{"name":"b","shape":[2,2],"datatype":"INT64","data":[[10,20],[30,40]]}]`
	two := func(params string) string {
		return `{"id":"\u00e9\"","inputs":[{"name":"a","shape":[2,2],"datatype":"INT64","parameters":{"binary_data_size":32}},` +
			`{"name":"b","shape":[2,2],"datatype":"INT64","data":[[10,20],[30,40]]}]` + params + `}`
	}
	sum := []int64{11, 22, 33, 44}
	a, _ := binary.Append(nil, binary.NativeEndian, []int64{1, 2, 3, 4})
	bin, _ := binary.Append(nil, binary.NativeEndian, sum)
	total, _ := binary.Append(nil, binary.NativeEndian, 110.0)
	const (
		sumJSON   = `{"name":"sum","datatype":"INT64","shape":[2,2],"data":[11,22,33,44]}`
		totalJSON = `{"name":"total","datatype":"FP64","shape":[],"data":[110]}`
		sumBin    = `{"name":"sum","datatype":"INT64","shape":[2,2],"parameters":{"binary_data_size":32}}`
		totalBin  = `{"name":"total","datatype":"FP64","shape":[],"parameters":{"binary_data_size":8}}`
	)
	for what, c := range map[string]struct {
		text string
		in   []byte
		want string
		out  []byte
	}{
		"json":             {`{` + js + `}`, nil, sumJSON + "," + totalJSON, nil},
		"binary in":        {two(""), a, sumJSON + "," + totalJSON, nil},
		"binary out":       {two(`,"parameters":{"binary_data_output":true}`), a, sumBin + "," + totalBin, append(bin, total...)},
		"one, json":        {two(`,"outputs":[{"name":"total"}]`), a, totalJSON, nil},
		"one, binary":      {two(`,"outputs":[{"name":"total","parameters":{"binary_data":true}}]`), a, totalBin, total},
		"the other order":  {two(`,"outputs":[{"name":"total"},{"name":"sum"}],"parameters":{"binary_data_output":true}`), a, totalBin + "," + sumBin, append(total, bin...)},
		"mixed":            {two(`,"outputs":[{"name":"total","parameters":{"binary_data":true}},{"name":"sum","parameters":{"binary_data":false}}]`), a, totalBin + "," + sumJSON, total},
		"mixed by default": {two(`,"outputs":[{"name":"total","parameters":{"binary_data":false}},{"name":"sum"}],"parameters":{"binary_data_output":true}`), a, totalJSON + "," + sumBin, bin},
	} {
		t.Run(what, func(t *testing.T) {
			id := ""
			if strings.Contains(c.text, `"id"`) {
				id = `"id":"é\"",`
			}
			for _, encoding := range []string{"", "gzip", "deflate"} {
				for _, accept := range []string{"", "gzip", "deflate", "gzip, deflate, br"} {
					body := append([]byte(c.text), c.in...)
					headers := []string{"Accept-Encoding", accept}
					if c.in != nil {
						headers = append(headers, headerLength, strconv.Itoa(len(c.text)))
					}
					if encoding != "" {
						headers = append(headers, "Content-Encoding", encoding)
						body = compressed(t, encoding, body)
					}
					r := v.do("POST", "/v2/models/sum/infer", body, headers...)
					r.body = plain(t, r)
					text, out := r.tensors(t)
					require.JSONEq(t, `{"model_name":"sum","model_version":"1",`+id+`"outputs":[`+c.want+`]}`, text)
					require.Equal(t, c.out, out)
				}
			}
		})
	}
	r := v.do("POST", "/v2/models/sum/versions/1/infer", []byte(`{`+js+`}`))
	require.Contains(t, string(r.body), `"model_version":"1"`)
}

func compressed(t testing.TB, how string, p []byte) []byte {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if how == "deflate" {
		w = zlib.NewWriter(&b)
	}
	_, err := w.Write(p)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// plain is the body uncompressed.
func plain(t testing.TB, r response) []byte {
	var from io.Reader
	var err error
	switch r.header.Get("Content-Encoding") {
	case "":
		return r.body
	case "gzip":
		from, err = gzip.NewReader(bytes.NewReader(r.body))
	case "deflate":
		from, err = zlib.NewReader(bytes.NewReader(r.body))
	}
	require.NoError(t, err)
	b, err := io.ReadAll(from)
	require.NoError(t, err)
	return b
}

// Large tensors come back whole by every way, compressed where one coding is asked for.
func TestLarge(t *testing.T) {
	v := serve(t, setup{})
	const n = 300_000
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i%1000) / 7
	}
	data := floats(values...)
	list, err := json.Marshal(values)
	require.NoError(t, err)
	for _, out := range []string{"true", "false"} {
		for _, accept := range []string{"", "gzip", "deflate", "gzip, deflate"} {
			for _, in := range []string{"binary", "json"} {
				text, body := fmt.Sprintf(`{"parameters":{"binary_data_output":%s},"inputs":[{"name":"x","shape":[%d],"datatype":"FP32","data":%s}]}`, out, n, list), []byte(nil)
				if in == "binary" {
					text, body = strings.ReplaceAll(binaryFloats(n), "true", out), data
				}
				r := v.inference("identity", text, body, "Accept-Encoding", accept)
				require.Equal(t, map[string]string{"gzip": "gzip", "deflate": "deflate"}[accept], r.header.Get("Content-Encoding"))
				r.body = plain(t, r)
				text, back := r.tensors(t)
				if out == "true" {
					require.Equal(t, data, back)
					continue
				}
				var got struct{ Outputs []struct{ Data []float32 } }
				require.NoError(t, json.Unmarshal([]byte(text), &got))
				require.Equal(t, values, got.Outputs[0].Data)
			}
		}
	}
	none := serve(t, setup{rest: Options{NoEncoder: true}})
	r := none.inference("identity", binaryFloats(n), data, "Accept-Encoding", "gzip")
	require.Empty(t, r.header.Get("Content-Encoding"))
	_, back := r.tensors(t)
	require.Equal(t, data, back)
}

func TestDatatypes(t *testing.T) {
	v := serve(t, setup{})
	values := map[string]string{"BOOL": "true,false", "UINT8": "0,255", "UINT16": "0,65535", "UINT32": "0,4294967295", "UINT64": "0,18446744073709551615",
		"INT8": "-128,127", "INT16": "-32768,32767", "INT32": "-2147483648,2147483647", "INT64": "-9223372036854775808,9223372036854775807",
		"FP32": "0.1,NaN", "FP64": "-Infinity,0.1"}
	var in, want []string
	for _, m := range kinds().Meta.Inputs {
		d := m.Datatype.String()
		in = append(in, fmt.Sprintf(`{"name":%q,"shape":[2],"datatype":%q,"data":[%s]}`, m.Name, d, values[d]))
		want = append(want, fmt.Sprintf(`{"name":"out_%s","datatype":%q,"shape":[2],"data":[%s]}`, d, d, values[d]))
	}
	text, _ := v.inference("kinds", `{"inputs":[`+strings.Join(in, ",")+`]}`, nil).tensors(t)
	require.Equal(t, `{"model_name":"kinds","model_version":"1","outputs":[`+strings.Join(want, ",")+`]}`, text)

	const half = `{"inputs":[{"name":"a","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}},{"name":"b","shape":[1],"datatype":"BF16","parameters":{"binary_data_size":2}}]`
	_, data := v.inference("halves", half+`,"parameters":{"binary_data_output":true}}`, []byte("aabb")).tensors(t)
	require.Equal(t, "aabb", string(data))
	require.Contains(t, v.inference("halves", half+`}`, []byte("aabb")).message(t, 400), "no JSON")
	require.Contains(t, v.inference("halves", `{"parameters":{"binary_data_output":true},"inputs":[{"name":"a","shape":[1],"datatype":"FP16","data":[1]}]}`, nil).message(t, 400), "no JSON")

	// No elements at all.
	text, data = v.inference("identity", binaryFloats(0), []byte{}).tensors(t)
	require.Contains(t, text, `"shape":[0],"parameters":{"binary_data_size":0}`)
	require.Empty(t, data)
	text, _ = v.inference("identity", `{"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":[]}]}`, nil).tensors(t)
	require.Contains(t, text, `"shape":[0],"data":[]`)
}

// What is wrong with a request is said, and costs nothing.
func TestRefusedRequests(t *testing.T) {
	v := serve(t, setup{rest: Options{MaxBody: 1 << 20, MaxJSON: 1 << 16}, engine: engine.Options{Limit: 1 << 22}})
	x := func(more string) string { return `{"inputs":[{"name":"x","datatype":"FP32",` + more + `}]}` }
	for what, c := range map[string]struct {
		text    string
		tensors []byte
		headers []string
		status  int
		says    string
	}{
		"nothing":                 {"", nil, nil, 400, "it ends"},
		"no object":               {"[]", nil, nil, 400, "expected {"},
		"another input":           {`{"inputs":[{"name":"z","shape":[1],"datatype":"FP32","data":[1]}]}`, nil, nil, 400, `no input "z"`},
		"no input":                {`{"inputs":[]}`, nil, nil, 400, "missing"},
		"an input twice":          {`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]},{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`, nil, nil, 400, "twice"},
		"another datatype":        {`{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[1]}]}`, nil, nil, 400, "FP32"},
		"no datatype":             {`{"inputs":[{"name":"x","shape":[1],"datatype":"float","data":[1]}]}`, nil, nil, 400, "datatype"},
		"another rank":            {x(`"shape":[1,1],"data":[1]`), nil, nil, 400, "shape"},
		"a negative extent":       {x(`"shape":[-1],"data":[1]`), nil, nil, 400, "negative"},
		"more than there can be":  {x(`"shape":[9223372036854775807],"data":[1]`), nil, nil, 413, "counted"},
		"more than the limit":     {x(`"shape":[1048577],"parameters":{"binary_data_size":4194308}`), []byte{}, nil, 413, "may have"},
		"too few elements":        {x(`"shape":[2],"data":[1]`), nil, nil, 400, "fewer"},
		"too many elements":       {x(`"shape":[1],"data":[1,2]`), nil, nil, 400, "more"},
		"text":                    {x(`"shape":[1],"data":["1"]`), nil, nil, 400, "number"},
		"another output":          {`{"outputs":[{"name":"z"}],` + x(`"shape":[1],"data":[1]`)[1:], nil, nil, 400, `no output "z"`},
		"an output twice":         {`{"outputs":[{"name":"y"},{"name":"y"}],` + x(`"shape":[1],"data":[1]`)[1:], nil, nil, 400, "twice"},
		"bytes that are short":    {binaryFloats(2), floats(1), nil, 400, "binary_data_size are 8"},
		"bytes that are long":     {binaryFloats(1), floats(1, 2), nil, 400, "has 8 bytes behind"},
		"another size":            {x(`"shape":[1],"parameters":{"binary_data_size":8}`), floats(1, 2), nil, 400, "has 4 bytes"},
		"no header's length":      {binaryFloats(1) + "1234", nil, nil, 400, "follows the value"},
		"a header's length of 0":  {binaryFloats(1), nil, []string{headerLength, "0"}, 400, "it ends"},
		"too long a header":       {binaryFloats(1), nil, []string{headerLength, "100000"}, 400, "more than the Content-Length"},
		"a negative length":       {binaryFloats(1), nil, []string{headerLength, "-1"}, 400, "no length"},
		"a length of letters":     {binaryFloats(1), nil, []string{headerLength, "1x"}, 400, "no length"},
		"a length that overflows": {binaryFloats(1), nil, []string{headerLength, "18446744073709551616"}, 400, "no length"},
		"much JSON":               {strings.Repeat(" ", 1<<16+1), nil, nil, 413, "JSON of"},
		"a large body":            {"{}", make([]byte, 1<<20), nil, 413, "a body of"},
		"another coding":          {"{}", nil, []string{"Content-Encoding", "br"}, 415, `"br"`},
		"two codings":             {"{}", nil, []string{"Content-Encoding", "gzip, gzip"}, 415, "gzip"},
		"not compressed":          {"{}{}{}{}{}{}{}{}", nil, []string{"Content-Encoding", "gzip"}, 400, "not compressed"},
		"not compressed, zlib":    {"{}{}{}{}{}{}{}{}", nil, []string{"Content-Encoding", "deflate"}, 400, "not compressed"},
		"no region":               {x(`"shape":[1],"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}`), nil, nil, 404, `no region "r"`},
		"deep":                    {`{"inputs":` + strings.Repeat("[", 60000), nil, nil, 400, ""},
		"many keys":               {"{" + strings.Repeat(`"a":1,`, 9000) + `"b":1}`, nil, nil, 400, "too many members"},
	} {
		t.Run(what, func(t *testing.T) {
			r := v.inference("identity", c.text, c.tensors, c.headers...)
			require.Contains(t, r.message(t, c.status), c.says)
		})
	}
	for _, how := range []string{"gzip", "deflate"} {
		good := append([]byte(binaryFloats(2)), floats(1, 2)...)
		whole := compressed(t, how, good)
		length := strconv.Itoa(len(binaryFloats(2)))
		send := func(body []byte, headers ...string) response {
			return v.do("POST", "/v2/models/identity/infer", body, append(headers, "Content-Encoding", how)...)
		}
		require.Equal(t, 200, send(whole, headerLength, length).status)
		for cut := 0; cut < len(whole); cut += 7 {
			send(whole[:cut], headerLength, length).message(t, 400)
		}
		flipped := bytes.Clone(whole)
		flipped[len(flipped)-1] ^= 1
		require.Contains(t, send(flipped, headerLength, length).message(t, 400), "corrupt")
		require.Contains(t, send(compressed(t, how, append(good, 1)), headerLength, length).message(t, 400), "longer")
		require.Contains(t, send(compressed(t, how, good[:len(good)-1]), headerLength, length).message(t, 400), "shorter")
		// A bomb: some hundred bytes that are many more.
		bomb := compressed(t, how, bytes.Repeat([]byte(" "), 8<<20))
		require.Contains(t, send(bomb).message(t, 413), "uncompressed")
		require.Contains(t, send(bomb, headerLength, "1000").message(t, 400), "it ends")
		require.Contains(t, send(bomb, headerLength, "70000000").message(t, 413), "JSON of")
		large := compressed(t, how, []byte(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}`+strings.Repeat(" ", 20000)))
		require.Equal(t, 200, send(large).status)
	}
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1)).status)
}

// What is refused is counted by kind, once, wherever it is refused; what a probe is told is not.
func TestRefusalsAreCounted(t *testing.T) {
	v := serve(t, setup{rest: Options{MaxBody: 1 << 20}})
	var want [oip.Kinds]uint64
	for _, c := range []struct {
		model, text string
		headers     []string
		kind        oip.Kind
	}{
		{"identity", "[]", nil, oip.Invalid},
		{"identity", `{"inputs":[]}`, nil, oip.Invalid}, // by Run
		{"none", "{}", nil, oip.NotFound},
		{"identity", strings.Repeat(" ", 1<<20+1), nil, oip.TooLarge},
		{"identity", "{}", []string{"Content-Encoding", "br"}, oip.Unsupported},
		{"identity", "{}", []string{"Origin", "https://elsewhere.example"}, oip.Invalid},
	} {
		require.GreaterOrEqual(t, v.inference(c.model, c.text, nil, c.headers...).status, 400)
		want[c.kind]++
		require.Equal(t, want, v.engine.Stats().Refused, "%.20s", c.text)
	}
	v.runner.SetHealth(errors.New("bad"))
	for _, path := range []string{"/v2/health/ready", "/v2/models/identity/ready"} {
		require.Equal(t, 503, v.do("GET", path, nil).status)
	}
	v.runner.SetHealth(nil)
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1)).status)
	require.Equal(t, want, v.engine.Stats().Refused)
}

func TestChunked(t *testing.T) {
	v := serve(t, setup{})
	r, err := http.NewRequest("POST", "http://"+v.address+"/v2/models/identity/infer", io.MultiReader(strings.NewReader("{}")))
	require.NoError(t, err)
	answer, err := v.client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 411, answer.StatusCode)
}

// Memory of a client is input and output in place, and says where it is.
func TestSharedMemory(t *testing.T) {
	v := serve(t, setup{})
	f, err := os.CreateTemp("/dev/shm", "usmbridge-rest-")
	require.NoError(t, err)
	defer func() { _, _ = os.Remove(f.Name()), f.Close() }()
	_, err = f.Write(append(floats(1, 2, 3, 4), make([]byte, 16)...))
	require.NoError(t, err)
	key := filepath.Base(f.Name())
	ok := func(method, path, body string) []byte {
		r := v.do(method, path, []byte(body))
		require.Equal(t, 200, r.status, "%s", r.body)
		return r.body
	}
	const at = "/v2/systemsharedmemory"
	ok("POST", at+"/region/in%2F%C3%A9/register", `{"key":"/`+key+`","offset":0,"byte_size":16,"more":[]}`)
	ok("POST", at+"/region/out/register", `{"key":"`+key+`","offset":16,"byte_size":16}`)
	want := `{"name":"in/é","key":"/` + key + `","offset":0,"byte_size":16}`
	require.JSONEq(t, "["+want+`,{"name":"out","key":"`+key+`","offset":16,"byte_size":16}]`, string(ok("GET", at+"/status", "")))
	require.JSONEq(t, "["+want+"]", string(ok("GET", at+"/region/in%2F%C3%A9/status", "")))

	text := `{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","parameters":{"shared_memory_region":"in/é","shared_memory_byte_size":12,"shared_memory_offset":4}}],
		"outputs":[{"name":"y","parameters":{"binary_data":false,"shared_memory_region":"out","shared_memory_byte_size":12,"shared_memory_offset":4}}]}`
	got, data := v.inference("identity", text, nil).tensors(t)
	require.Nil(t, data)
	require.JSONEq(t, `{"model_name":"identity","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[3],
		"parameters":{"shared_memory_region":"out","shared_memory_byte_size":12,"shared_memory_offset":4}}]}`, got)
	b := make([]byte, 32)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, floats(1, 2, 3, 4, 0, 2, 3, 4), b)

	for _, c := range []struct {
		what, body string
		status     int
	}{
		{"/region/out/register", `{"key":"` + key + `","byte_size":1}`, 400},
		{"/region/n/register", `{"key":"` + key + `"}`, 400},
		{"/region/n/register", `{"byte_size":1}`, 400},
		{"/region/n/register", ``, 400},
		{"/region/n/register", `{"key":"` + key + `","byte_size":-1}`, 400},
		{"/region/n/register", `{"key":"` + key + `","byte_size":33}`, 400},
		{"/region/n/register", `{"key":"../` + key + `","byte_size":1}`, 400},
		{"/region/n/register", `{"key":"` + key + `","key":"a","byte_size":1}`, 400},
		{"/region/n/register", `{"key":7,"byte_size":1}`, 400},
		{"/region/n/register", strings.Repeat(" ", 1<<17), 413},
		{"/region/n/unregister", ``, 404},
	} {
		v.do("POST", at+c.what, []byte(c.body)).message(t, c.status)
	}
	v.do("GET", at+"/region/n/status", nil).message(t, 404)
	require.NoError(t, f.Truncate(16))
	require.Contains(t, v.inference("identity", text, nil).message(t, 400), "cut off")
	ok("POST", at+"/region/out/unregister", "")
	ok("POST", at+"/unregister", "{}")
	require.Equal(t, "[]", string(ok("GET", at+"/status", "")))
}

// A region in use stays.
func TestSharedMemoryInUse(t *testing.T) {
	m, began, release := enginetest.Blocking("identity")
	v := serve(t, setup{models: []*enginetest.Model{m}})
	f, err := os.CreateTemp("/dev/shm", "usmbridge-rest-")
	require.NoError(t, err)
	defer func() { _, _ = os.Remove(f.Name()), f.Close() }()
	require.NoError(t, f.Truncate(64))
	key := filepath.Base(f.Name())
	require.NoError(t, v.regions.Register("r", key, 0, 64))
	answers := make(chan response, 1)
	go func() {
		answers <- v.inference("identity", `{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","parameters":{"shared_memory_region":"r","shared_memory_byte_size":12}}]}`, nil)
	}()
	<-began
	require.Contains(t, v.do("POST", "/v2/systemsharedmemory/region/r/unregister", nil).message(t, 409), "in use")
	v.do("POST", "/v2/systemsharedmemory/unregister", nil).message(t, 409)
	close(release)
	require.Equal(t, 200, (<-answers).status)
	require.Eventually(t, func() bool { return v.do("POST", "/v2/systemsharedmemory/region/r/unregister", nil).status == 200 }, 30*time.Second, time.Millisecond)
}

// What a request runs into is the status and the message that its kind has.
func TestFailures(t *testing.T) {
	v := serve(t, setup{models: []*enginetest.Model{enginetest.Failing(errors.New("at /secret/path 0x1234"))}})
	r := v.inference("failing", binaryFloats(1), floats(1))
	require.NotContains(t, r.message(t, 500), "secret")
}

func TestBusyAndDeadline(t *testing.T) {
	m, began, release := enginetest.Blocking("identity")
	v := serve(t, setup{models: []*enginetest.Model{m}, engine: engine.Options{Turns: 1, Requests: 2, PerTenant: 2}})
	answers := make(chan response, 2)
	for range 2 {
		go func() { answers <- v.inference("identity", binaryFloats(1), floats(1)) }()
	}
	<-began
	require.Eventually(t, func() bool { return v.engine.Stats().Requests == 2 }, 30*time.Second, time.Millisecond)
	// A body of some size is read to its end, so that its sender sees the answer.
	r := v.inference("identity", binaryFloats(1<<18), make([]byte, 1<<20))
	r.message(t, 503)
	require.Equal(t, "1", r.header.Get("Retry-After"))
	close(release)
	for range 2 {
		require.Equal(t, 200, (<-answers).status)
	}

	m, _, _ = enginetest.Blocking("identity")
	v = serve(t, setup{models: []*enginetest.Model{m}})
	text := strings.Replace(binaryFloats(1), `{"binary_data_output":true}`, `{"timeout":20000}`, 1)
	require.Contains(t, v.inference("identity", text, floats(1)).message(t, 504), "time")
	text = strings.Replace(binaryFloats(1), `{"binary_data_output":true}`, `{"timeout":9223372036854775807}`, 1)
	ctx, cancel := context.WithCancel(context.Background())
	q, err := http.NewRequestWithContext(ctx, "POST", "http://"+v.address+"/v2/models/identity/infer", strings.NewReader(text+string(floats(1))))
	require.NoError(t, err)
	q.Header.Set(headerLength, strconv.Itoa(len(text)))
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = v.client.Do(q)
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
}

// JSON of all requests together is bounded.
func TestGate(t *testing.T) {
	m, began, release := enginetest.Blocking("identity")
	v := serve(t, setup{models: []*enginetest.Model{m, enginetest.Sum()}, rest: Options{MaxJSON: 1 << 16, JSON: 1 << 16, Grace: time.Minute}})
	c := v.dial()
	text := binaryFloats(1)
	half := strings.Repeat(" ", 40000)
	c.send(fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s", len(half)+len(text)+4, headerLength, len(half)+len(text), half))
	require.Eventually(t, func() bool { return v.handler.JSONInFlight() > 0 }, 30*time.Second, time.Millisecond)
	r := v.do("POST", "/v2/models/sum/infer", []byte(half))
	require.Contains(t, r.message(t, 503), "JSON")
	require.Equal(t, "1", r.header.Get("Retry-After"))
	c.send(text + string(floats(1)))
	<-began
	require.Zero(t, v.handler.JSONInFlight(), "the JSON is gone before the model runs")
	close(release)
	require.Equal(t, 200, c.answer().StatusCode)
}

// link is a connection by hand.
type link struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func (v *service) dial() *link {
	c, err := net.Dial("tcp", v.address)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { c.Close() })
	require.NoError(v.t, c.SetDeadline(time.Now().Add(time.Minute)))
	return &link{v.t, c, bufio.NewReader(c)}
}

func (c *link) send(text string) {
	c.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
}

func (c *link) answer() *http.Response {
	c.t.Helper()
	r, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(c.t, err)
	r.Body = io.NopCloser(bytes.NewReader(b))
	return r
}

// A body that comes too slowly, or not at all, ends its request with what it holds.
func TestSlowBodies(t *testing.T) {
	v := serve(t, setup{rest: Options{Grace: 3 * time.Second, MinRate: 1 << 30}})
	text := binaryFloats(1000)
	head := fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n", len(text)+4000, headerLength, len(text))
	for what, sent := range map[string]string{"no body": head, "half the JSON": head + text[:10], "the JSON": head + text, "half the tensor": head + text + strings.Repeat("x", 2000)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := v.dial()
			c.send(sent)
			r := c.answer()
			require.Equal(t, 408, r.StatusCode)
			require.True(t, r.Close, "the connection is of no use any more")
			require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
		})
	}
	t.Run("half the headers", func(t *testing.T) {
		t.Parallel()
		c := v.dial()
		c.send("POST /v2/models/identity/inf")
		said, err := io.ReadAll(c.in)
		require.NoError(t, err, "slow headers end the connection")
		require.NotContains(t, string(said), " 200 ")
	})
}

// Clients that go away, or close half of their connection, in the midst of anything leave
// nothing behind.
func TestCutOff(t *testing.T) {
	m, began, _ := enginetest.Blocking("blocking")
	v := serve(t, setup{models: []*enginetest.Model{m, enginetest.Identity()}})
	text := binaryFloats(1000)
	request := func(model string) string {
		return fmt.Sprintf("POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n", model, len(text)+4000, headerLength, len(text)) + text + strings.Repeat("x", 4000)
	}
	for _, half := range []bool{false, true} {
		for _, n := range []int{1, 20, 120, 150, 200, 300, 1000, 4000} {
			whole := request("identity")
			n = min(n, len(whole)-1)
			c := v.dial()
			c.send(whole[:n])
			if half {
				require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
				_, _ = io.ReadAll(c)
			}
			require.NoError(t, c.Close())
		}
		c := v.dial()
		c.send(request("blocking"))
		<-began
		if half {
			require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
		} else {
			require.NoError(t, c.Close())
		}
		require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
	}
	// One that does not read what it asked for is cut off too, and its memory comes back.
	v = serve(t, setup{rest: Options{Grace: 100 * time.Millisecond, MinRate: 1 << 30}})
	const n = 16 << 20
	c := v.dial()
	text = binaryFloats(n)
	c.send(fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n", len(text)+4*n, headerLength, len(text)))
	c.send(text)
	_, _ = c.Write(make([]byte, 4*n)) // which the server may cut off too
	require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
}

// A connection serves many requests, those that are refused among them.
func TestKeepAlive(t *testing.T) {
	v := serve(t, setup{})
	c := v.dial()
	text := binaryFloats(1)
	good := fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s1234", len(text)+4, headerLength, len(text), text)
	bad := fmt.Sprintf("POST /v2/models/nothing/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 100000, strings.Repeat("x", 100000))
	for range 3 {
		for _, s := range []struct {
			text   string
			status int
		}{{good, 200}, {bad, 404}, {"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n", 200}, {"GET /v2?x=%zz HTTP/1.1\r\nHost: x\r\n\r\n", 200}} {
			c.send(s.text)
			require.Equal(t, s.status, c.answer().StatusCode)
		}
	}
	c.send("GET * HTTP/1.1\r\nHost: x\r\n\r\n")
	require.GreaterOrEqual(t, c.answer().StatusCode, 400)
}

// Browsers let any page post anywhere: pages of others, and of names that point here, do nothing.
func TestWebPages(t *testing.T) {
	v := serve(t, setup{rest: Options{Hosts: []string{"models.example"}}})
	for _, c := range []struct {
		method, host, origin, site string
		status                     int
	}{
		{"POST", "", "", "", 200},
		{"POST", "any.example", "", "", 200},
		{"POST", "", "https://elsewhere.example", "cross-site", 403},
		{"POST", "", "https://elsewhere.example", "", 403},
		{"POST", "", "null", "", 403},
		{"POST", "", "", "cross-site", 403},
		{"POST", "rebound.example", "http://rebound.example", "same-origin", 403},
		{"POST", "rebound.example", "http://rebound.example", "", 403},
		{"POST", "models.example:80", "http://models.example:80", "same-origin", 200},
		{"POST", "Models.Example", "http://Models.Example", "", 200},
		{"POST", "models.example.", "http://models.example.", "", 200},
		{"POST", "localhost:1", "http://localhost:1", "", 200},
		{"POST", "[::1]:1", "http://[::1]:1", "same-origin", 200},
		{"POST", "127.0.0.1", "http://127.0.0.1", "same-origin", 200},
		{"DELETE", "", "https://elsewhere.example", "", 403},
		{"GET", "", "https://elsewhere.example", "cross-site", 405},
	} {
		r, err := http.NewRequest(c.method, "http://"+v.address+"/v2/repository/index", nil)
		require.NoError(t, err)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		answer, err := v.client.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, c.status, answer.StatusCode, "%+v", c)
	}
}

func TestTenants(t *testing.T) {
	v := serve(t, setup{rest: Options{Tenant: "x-tenant"}})
	names := func() (all []string) {
		for _, s := range v.engine.Stats().Tenants {
			all = append(all, s.Name)
		}
		return all
	}
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1)).status)
	require.Equal(t, []string{"127.0.0.1"}, names())
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1), "X-Tenant", "somebody").status)
	require.ElementsMatch(t, []string{"127.0.0.1", "somebody"}, names())
	v.inference("identity", binaryFloats(1), floats(1), "X-Tenant", strings.Repeat("x", 200)).message(t, 400)
}

// Connections of all, and of one address, are bounded.
func TestConnections(t *testing.T) {
	v := serve(t, setup{connections: Connections{Most: 4, PerAddress: 2}})
	var open []*link
	for range 2 {
		c := v.dial()
		c.send("GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
		require.Equal(t, 200, c.answer().StatusCode)
		open = append(open, c)
	}
	c := v.dial()
	_, err := c.in.ReadByte()
	require.Error(t, err, "one too many of this address is closed")
	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", v.address)
		require.NoError(t, err)
		defer c.Close()
		_, _ = io.WriteString(c, "GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err = bufio.NewReader(c).ReadByte()
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
}

func TestUnixSocket(t *testing.T) {
	e := enginetest.New(t, engine.Options{}, enginetest.Identity())
	h, err := New(Options{Engine: e, Log: quiet()})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := h.Server()
	go func() { _ = server.Serve(Listen(l, Connections{Most: 2, PerAddress: 1})) }()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	r, err := client.Post("http://x/v2/models/identity/infer", "application/json", strings.NewReader(`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`))
	require.NoError(t, err)
	defer r.Body.Close()
	require.Equal(t, 200, r.StatusCode)
	require.Equal(t, "local", e.Stats().Tenants[0].Name)
}

func TestOptions(t *testing.T) {
	_, err := New(Options{})
	require.Error(t, err)
	e := enginetest.New(t, engine.Options{}, enginetest.Identity())
	for _, o := range []Options{{MaxBody: -1}, {MaxJSON: -1}, {JSON: -1}, {MinRate: -1}, {Grace: -1}, {Timeout: -1}} {
		o.Engine = e
		_, err := New(o)
		require.Error(t, err)
	}
	require.Positive(t, perBytes(math.MaxInt64, 1))
	memmgr.Flush()
}

// A panic costs its own request, and is counted.
func TestPanic(t *testing.T) {
	m := enginetest.Identity()
	m.Infer = func(context.Context, []*usmarray.Array, []*usmarray.Array) ([]*usmarray.Array, error) {
		panic("the model's runner")
	}
	v := serve(t, setup{models: []*enginetest.Model{m}})
	_, err := v.client.Post("http://"+v.address+"/v2/models/identity/infer", "application/json",
		strings.NewReader(`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`))
	require.Error(t, err, "its connection ends")
	require.EqualValues(t, 1, v.engine.Stats().Refused[oip.Internal])
	require.Equal(t, 200, v.do("GET", "/v2", nil).status)
}
