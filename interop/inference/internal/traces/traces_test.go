package traces_test

import (
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	telemetry "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// spans is a collector that records the spans that it receives over HTTP.
type spans struct {
	mu  sync.Mutex
	all []*telemetry.Span
}

// ServeHTTP implements http.Handler.
func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	q := new(collector.ExportTraceServiceRequest)
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			s.all = append(s.all, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// named returns the spans with the given name.
func (s *spans) named(name string) (found []*telemetry.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.GetName() == name {
			found = append(found, x)
		}
	}
	return found
}

const (
	parent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	text     = `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`
	restName = "POST /v2/models/{model}/infer"
	grpcName = "inference.GRPCInferenceService/ModelInfer"
)

// TestSpans checks the spans of each transport. The span of a request has the client's span as its parent, and the
// status.
func TestSpans(t *testing.T) {
	got := new(spans)
	server := httptest.NewServer(got)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	tr, err := traces.FromEnv(t.Context(), os.Getenv)
	require.NoError(t, err)
	requests(t, tr)
	require.NoError(t, tr.Close(t.Context()))
	for _, name := range []string{restName, grpcName} {
		all := got.named(name)
		require.Len(t, all, 2, name)
		for _, x := range all {
			require.Equal(t, "0af7651916cd43dd8448eb211c80319c", hex.EncodeToString(x.GetTraceId()))
			require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(x.GetParentSpanId()))
			attributes := map[string]*common.AnyValue{}
			for _, a := range x.GetAttributes() {
				attributes[a.GetKey()] = a.GetValue()
			}
			served := attributes["http.response.status_code"].GetIntValue() == 200 || attributes["rpc.response.status_code"].GetStringValue() == "OK"
			require.Equal(t, served, attributes["inference.model"].GetStringValue() == "identity", "%v", attributes)
		}
	}
}

// requests sends one valid and one invalid request over each transport.
func requests(t *testing.T, tr *traces.Traces) {
	e := enginetest.New(t, engine.Options{}, enginetest.Identity())
	h := rest.New(e, tr, nil)
	web := httptest.NewServer(h)
	defer web.Close()
	for model, status := range map[string]int{"identity": 200, "nobody": 404} {
		r, err := http.NewRequest(http.MethodPost, web.URL+"/v2/models/"+model+"/infer", strings.NewReader(text))
		require.NoError(t, err)
		r.Header.Set("Traceparent", parent)
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		a.Body.Close()
		require.Equal(t, status, a.StatusCode)
	}
	s := rpc.New(e, tr)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent)
	for _, model := range []string{"identity", "nobody"} {
		err := conn.Invoke(ctx, "/"+grpcName, &pb.ModelInferRequest{ModelName: model,
			Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1}}},
			RawInputContents: [][]byte{make([]byte, 4)}}, new(pb.ModelInferResponse))
		require.Equal(t, model == "identity", err == nil, err)
	}
	require.NoError(t, s.Drain(t.Context())) // a call ends after its answer was sent
}

// Traces are off unless the environment enables them.
func TestFromEnv(t *testing.T) {
	type env map[string]string
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, c := range []struct {
		env     env
		on, bad bool
	}{
		{env{}, false, false},
		{env{endpoint: "http://127.0.0.1:1"}, true, false},
		{env{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, false},
		{env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, true, false},
		{env{"OTEL_TRACES_EXPORTER": "otlp"}, true, false},
		{env{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}, false, false},
		{env{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		{env{"OTEL_TRACES_EXPORTER": "zipkin"}, false, true},
		{env{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, false, true},
	} {
		tr, err := traces.FromEnv(t.Context(), func(name string) string { return c.env[name] })
		require.Equal(t, c.bad, err != nil, "%v: %v", c.env, err)
		require.Equal(t, c.on, tr != nil, "%v", c.env)
		require.NoError(t, tr.Close(t.Context()))
	}
	var off *traces.Traces
	require.Empty(t, off.GRPC())
}
