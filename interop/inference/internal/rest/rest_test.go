//go:build cgo && linux

package rest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/usmarray"
)

// service is a server under test.
type service struct {
	t       testing.TB
	engine  *engine.Engine
	runner  *enginetest.Runner
	regions *region.Registry
	handler *Handler
	address string
	client  *http.Client
}

// setup holds the options of a test that differ from the defaults.
type setup struct {
	engine    engine.Options
	hosts     []string
	limits    func(*limits)
	models    []*enginetest.Model
	noRegions bool
}

// uncharged reports whether n bytes of the budget of JSON are free.
func uncharged(h *Handler, n int64) bool {
	if !h.heap.TryAcquire(n) {
		return false
	}
	h.heap.Release(n)
	return true
}

// quiet returns a logger that discards its records.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve starts a server on a real port and closes it when the test ends. The test fails if any
// request or memory is left then.
func serve(t testing.TB, s setup) *service {
	t.Helper()
	if s.models == nil {
		s.models = []*enginetest.Model{enginetest.Identity(), enginetest.Sum(), kinds(), halves()}
	}
	v := &service{t: t, runner: enginetest.NewRunner(s.models...)}
	if !s.noRegions {
		v.regions = region.New(region.Options{Prefix: "usmbridge-rest-"})
		t.Cleanup(func() { require.NoError(t, v.regions.Close()) })
		s.engine.Regions = v.regions
	}
	s.engine.Log, s.engine.Name, s.engine.Version = quiet(), "test", "7"
	v.engine = enginetest.With(t, v.runner, s.engine, s.models...)
	v.handler = New(v.engine, nil, s.hosts)
	if s.limits != nil {
		s.limits(&v.handler.limits)
	}
	l := testenv.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := v.handler.Server()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	v.address = l.Addr().String()
	v.client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
	t.Cleanup(func() {
		v.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, server.Shutdown(ctx))
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
		require.True(t, uncharged(v.handler, maxJSON))
	})
	return v
}

// kinds returns a model that copies inputs of all datatypes that have a JSON representation.
func kinds() *enginetest.Model {
	m := &enginetest.Model{Meta: oip.Model{Name: "kinds", Versions: []string{"1"}, Platform: "go"}, Bound: true}
	for _, d := range []oip.Datatype{oip.BOOL, oip.UINT8, oip.UINT16, oip.UINT32, oip.UINT64, oip.INT8, oip.INT16, oip.INT32, oip.INT64, oip.FP32, oip.FP64} {
		m.Meta.Inputs = append(m.Meta.Inputs, oip.Tensor{Name: "in_" + d.String(), Datatype: d, Shape: []int64{-1}})
		m.Meta.Outputs = append(m.Meta.Outputs, oip.Tensor{Name: "out_" + d.String(), Datatype: d, Shape: []int64{-1}})
	}
	m.Infer = copyAll
	return m
}

// halves returns a model that copies 16-bit floats.
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

// response is the status, header and body of a response.
type response struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request; body may be nil. If there is no response, do marks the test as failed and
// continues, so that any goroutine can call it.
func (v *service) do(method, path string, body []byte, headers ...string) response {
	v.t.Helper()
	var from io.Reader
	if body != nil {
		from = bytes.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+v.address+path, from)
	if err != nil {
		v.t.Error(err)
		return response{}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := v.client.Do(r)
	if err != nil {
		v.t.Error(err)
		return response{}
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Error(err)
	}
	return response{answer.StatusCode, answer.Header, b}
}

// message returns the error text of the response, which must have the given status.
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

// inference sends a request in JSON followed by binary tensors.
func (v *service) inference(model, text string, tensors []byte, headers ...string) response {
	v.t.Helper()
	if tensors != nil {
		headers = append(headers, headerLength, strconv.Itoa(len(text)))
	}
	return v.do("POST", "/v2/models/"+model+"/infer", append([]byte(text), tensors...), headers...)
}

// tensors splits a successful response into its JSON and binary tensors, like a client.
func (r response) tensors(t testing.TB) (text string, data []byte) {
	t.Helper()
	require.Equal(t, 200, r.status, "%s", r.body)
	if length := r.header.Get(headerLength); length != "" {
		n := testenv.Must(strconv.Atoi(length))(t)
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
