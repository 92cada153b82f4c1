//go:build cgo && linux

package rest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestRefusedPaths checks the status of unsupported paths and methods, and that the error contains
// no internals of the server.
func TestRefusedPaths(t *testing.T) {
	v := serve(t, setup{noRegions: true})
	for _, c := range []struct {
		method, path string
		status       int
		message      string
	}{
		{"GET", "/", 404, "begin with /v2"},
		{"GET", "/v1", 404, "/v2"},
		{"GET", "//v2", 404, "/v2"},
		{"GET", "/v2//health/live", 404, "/v2"},
		{"GET", "/v2/health/live/", 404, "/v2"},
		{"GET", "/v2/models", 404, "/v2"},
		{"GET", "/v2/models/nothing", 404, `no model is called "nothing"`},
		{"GET", "/v2/models/no%2Fthing", 404, `"no/thing"`},
		{"GET", "/v2/models/%2e%2e", 404, `".."`},
		{"GET", "/v2/models/..%2fidentity", 404, `"../identity"`},
		{"GET", "/v2/models/%00", 404, `"\x00"`},
		{"GET", "/v2/models/" + strings.Repeat("x", 5000), 404, "xxx"},
		{"GET", "/v2/models/identity/versions/2", 404, `no version "2"`},
		{"GET", "/v2/models/identity/versions/01/ready", 404, `no version "01"`},
		{"POST", "/v2/models/identity/versions/-1/infer", 404, `no version "-1"`},
		{"GET", "/v2/models/identity/infer", 405, "POST"},
		{"POST", "/v2/models/identity", 405, "GET"},
		{"DELETE", "/v2", 405, "GET"},
		{"GET", "/v2/repository/index", 405, "POST"},
		{"POST", "/v2/models/nothing/infer", 404, "no model"},
		{"POST", "/v2/repository/models/identity/load", 400, "-model-control"},
		{"POST", "/v2/repository/models/identity/unload", 400, "-model-control"},
		{"POST", "/v2/cudasharedmemory/region/a/register", 404, "/v2"},
		{"POST", "/v2/systemsharedmemory/region/a/unregister", 404, "no region"},
		{"GET", "/v2/systemsharedmemory/region/a/status", 404, "no region"},
		{"POST", "/v2/systemsharedmemory/region//register", 404, "/v2"},
	} {
		t.Run(c.method+" "+c.path[:min(len(c.path), 60)], func(t *testing.T) {
			r := v.do(c.method, c.path, nil)
			require.Contains(t, r.message(t, c.status), c.message)
			require.Less(t, len(r.body), 500)
			if c.status == 405 {
				require.Equal(t, map[string]string{"GET": "GET, HEAD", "POST": "POST"}[c.message], r.header.Get("Allow"))
			}
		})
	}
	require.Equal(t, "[]", string(v.do("GET", "/v2/systemsharedmemory/status", nil).body))
	require.Equal(t, 200, v.do("POST", "/v2/cudasharedmemory/unregister", nil).status)
	require.Contains(t, v.do("POST", "/v2/systemsharedmemory/region/a/register", []byte(`{"key":"/a","byte_size":1}`)).message(t, 400), "not served over TCP")
}

// TestRefusedRequests checks the errors of invalid requests, and that such requests leave no state.
func TestRefusedRequests(t *testing.T) {
	v := serve(t, setup{limits: func(l *limits) { l.body, l.json = 1<<20, 1<<16 }, engine: engine.Options{Memory: engine.Pool{Limit: 1 << 22}}})
	x := func(more string) string { return `{"inputs":[{"name":"x","datatype":"FP32",` + more + `}]}` }
	for what, c := range map[string]struct {
		text    string
		tensors []byte
		headers []string
		status  int
		message string
	}{
		"empty":                   {"", nil, nil, 400, "unexpected end"},
		"array":                   {"[]", nil, nil, 400, "another type"},
		"unknown input":           {`{"inputs":[{"name":"z","shape":[1],"datatype":"FP32","data":[1]}]}`, nil, nil, 400, `no input "z"`},
		"unknown output":          {`{"outputs":[{"name":"z"}],` + x(`"shape":[1],"data":[1]`)[1:], nil, nil, 400, `no output "z"`},
		"missing input":           {`{"inputs":[]}`, nil, nil, 400, "missing"},
		"overflowing extent":      {x(`"shape":[9223372036854775807],"data":[1]`), nil, nil, 413, "counted"},
		"over the limit":          {x(`"shape":[1048577],"parameters":{"binary_data_size":4194308}`), []byte{}, nil, 413, "may have"},
		"too few elements":        {x(`"shape":[2],"data":[1]`), nil, nil, 400, "fewer"},
		"too many elements":       {x(`"shape":[1],"data":[1,2]`), nil, nil, 400, "more"},
		"string element":          {x(`"shape":[1],"data":["1"]`), nil, nil, 400, "not a valid FP32"},
		"short tensor":            {binaryFloats(2), floats(1), nil, 400, "binary_data_size are 8"},
		"long tensor":             {binaryFloats(1), floats(1, 2), nil, 400, "has 8 bytes after"},
		"wrong size":              {x(`"shape":[1],"parameters":{"binary_data_size":8}`), floats(1, 2), nil, 400, "has 4 bytes"},
		"no JSON length":          {binaryFloats(1) + "1234", nil, nil, 400, "after top-level value"},
		"JSON length of 0":        {binaryFloats(1), nil, []string{headerLength, "0"}, 400, "unexpected end"},
		"long JSON length":        {binaryFloats(1), nil, []string{headerLength, "100000"}, 400, "more than the Content-Length"},
		"negative JSON length":    {binaryFloats(1), nil, []string{headerLength, "-1"}, 400, "not a length"},
		"JSON length in letters":  {binaryFloats(1), nil, []string{headerLength, "1x"}, 400, "not a length"},
		"overflowing JSON length": {binaryFloats(1), nil, []string{headerLength, "18446744073709551616"}, 400, "not a length"},
		"long JSON":               {strings.Repeat(" ", 1<<16+1), nil, nil, 413, "JSON of"},
		"large body":              {"{}", make([]byte, 1<<20), nil, 413, "a body of"},
		"unknown coding":          {"{}", nil, []string{"Content-Encoding", "br"}, 415, `"br"`},
		"two codings":             {"{}", nil, []string{"Content-Encoding", "gzip, gzip"}, 415, "gzip"},
		"not compressed":          {"{}{}{}{}{}{}{}{}", nil, []string{"Content-Encoding", "gzip"}, 400, "not compressed"},
		"unknown region":          {x(`"shape":[1],"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}`), nil, nil, 404, `no region "r"`},
		"deep nesting":            {`{"inputs":` + strings.Repeat("[", 60000), nil, nil, 400, ""},
	} {
		t.Run(what, func(t *testing.T) {
			r := v.inference("identity", c.text, c.tensors, c.headers...)
			require.Contains(t, r.message(t, c.status), c.message)
		})
	}
	c := v.dial() // two lines of one header are combined
	c.send("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
	require.Equal(t, 415, c.answer().StatusCode)
	good := append([]byte(binaryFloats(2)), floats(1, 2)...)
	whole := compressed(t, good)
	length := strconv.Itoa(len(binaryFloats(2)))
	send := func(body []byte, headers ...string) response {
		return v.do("POST", "/v2/models/identity/infer", body, append(headers, "Content-Encoding", "gzip")...)
	}
	require.Equal(t, 200, send(whole, headerLength, length).status)
	for cut := 0; cut < len(whole); cut += 7 {
		send(whole[:cut], headerLength, length).message(t, 400)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	require.Contains(t, send(flipped, headerLength, length).message(t, 400), "corrupt")
	require.Contains(t, send(compressed(t, append(good, 1)), headerLength, length).message(t, 400), "longer")
	require.Contains(t, send(compressed(t, good[:len(good)-1]), headerLength, length).message(t, 400), "shorter")
	for _, trailing := range []string{"x", "0123456789abcdef", string(whole[:5])} {
		require.Contains(t, send(append(bytes.Clone(whole), trailing...), headerLength, length).message(t, 400), "bytes after its compressed data")
	}
	parts := append(compressed(t, good[:30]), compressed(t, good[30:])...) // RFC 1952 allows several members
	require.Equal(t, 200, send(parts, headerLength, length).status)
	require.Equal(t, 200, send(append(bytes.Clone(whole), compressed(t, nil)...), headerLength, length).status)
	// A decompression bomb: a few hundred bytes that expand to 8 MiB.
	bomb := compressed(t, bytes.Repeat([]byte(" "), 8<<20))
	require.Contains(t, send(bomb).message(t, 413), "JSON of more than")
	require.Contains(t, send(bomb, headerLength, "1000").message(t, 400), "unexpected end")
	require.Contains(t, send(bomb, headerLength, "70000000").message(t, 413), "JSON of")
	large := compressed(t, []byte(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}`+strings.Repeat(" ", 20000)))
	require.Equal(t, 200, send(large).status)
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1)).status)
}

// TestRefusalCounts checks that each rejected request is counted once by kind, independently
// of the stage that rejects it. Results of health probes are not counted.
func TestRefusalCounts(t *testing.T) {
	v := serve(t, setup{limits: func(l *limits) { l.body = 1 << 20 }})
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

// TestInternalErrors checks that the response to an internal error does not contain the error's text.
func TestInternalErrors(t *testing.T) {
	v := serve(t, setup{models: []*enginetest.Model{enginetest.Failing(errors.New("at /secret/path 0x1234"))}})
	r := v.inference("failing", binaryFloats(1), floats(1))
	require.NotContains(t, r.message(t, 500), "secret")
}

// TestBusyAndDeadline checks the responses of a full server and of requests whose time ends, and that a client can cancel.
func TestBusyAndDeadline(t *testing.T) {
	m, began, release := enginetest.Blocking("identity")
	v := serve(t, setup{models: []*enginetest.Model{m}, engine: engine.Options{MaxCalls: 2}})
	answers := make(chan response, 2)
	for range 2 {
		go func() { answers <- v.inference("identity", binaryFloats(1), floats(1)) }()
	}
	<-began
	require.Eventually(t, func() bool { return v.engine.Stats().Requests == 2 }, 30*time.Second, time.Millisecond)
	// A body of moderate size is read to its end, so that the client receives the response.
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
	q := testenv.Must(http.NewRequestWithContext(ctx, "POST", "http://"+v.address+"/v2/models/identity/infer", strings.NewReader(text+string(floats(1)))))(t)
	q.Header.Set(headerLength, strconv.Itoa(len(text)))
	time.AfterFunc(50*time.Millisecond, cancel)
	require.ErrorIs(t, testenv.ErrorOf(v.client.Do(q)), context.Canceled)
	require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
}

// TestPanic checks that a panic fails only its own request and is counted.
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
