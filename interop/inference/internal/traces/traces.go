// Package traces exports OpenTelemetry spans of inference requests: one for each request of REST and each
// call of gRPC, below the client's own span (traceparent).
//
// It is off unless the standard environment enables it: OTEL_EXPORTER_OTLP_ENDPOINT (or
// …_TRACES_ENDPOINT), or OTEL_TRACES_EXPORTER=otlp. OTEL_SDK_DISABLED=true and
// OTEL_TRACES_EXPORTER=none disable it, OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf or grpc, and the
// other variables, of names, samplers and batches, are those of the SDK. A nil *Traces does nothing.
package traces

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// Traces makes and exports spans. Its methods may be called from any goroutine.
type Traces struct{ provider *sdk.TracerProvider }

// FromEnv returns the traces that the environment enables; nil for none. Errors: unsupported values.
func FromEnv(ctx context.Context, env func(string) string) (*Traces, error) {
	asked := env("OTEL_TRACES_EXPORTER")
	switch {
	case strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || asked == "none":
		return nil, nil
	case asked == "" && env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "":
		return nil, nil
	case asked != "" && asked != "otlp":
		return nil, fmt.Errorf("traces: OTEL_TRACES_EXPORTER is %q: otlp and none are known", asked)
	}
	var exporter sdk.SpanExporter
	var err error
	switch p := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); p {
	case "http/protobuf":
		exporter, err = otlptracehttp.New(ctx)
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("traces: OTEL_EXPORTER_OTLP_PROTOCOL is %q: http/protobuf and grpc are known", p)
	}
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return &Traces{sdk.NewTracerProvider(sdk.WithBatcher(exporter))}, nil
}

// Close exports the remaining spans, until the context ends.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// HTTP adds spans to the inferences of a handler.
func (t *Traces) HTTP(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(t.provider), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/infer")
		}))
}

// GRPC returns the options by which a server adds spans to calls of the methods, which have the form
// "/service/method".
func (t *Traces) GRPC(methods ...string) []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagation.TraceContext{}), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return slices.Contains(methods, info.FullMethodName) })))}
}
