// Package traces exports OpenTelemetry spans of inference requests: one for each request of REST and each
// call of gRPC, below the client's own span (traceparent), and in it one for the wait for a place (queue)
// and one for the call of the model (infer).
//
// It is off unless the standard environment enables it: OTEL_EXPORTER_OTLP_ENDPOINT (or
// …_TRACES_ENDPOINT), or OTEL_TRACES_EXPORTER=otlp. OTEL_SDK_DISABLED=true and
// OTEL_TRACES_EXPORTER=none disable it, OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf or grpc, and the
// other variables, of names, samplers and batches, are those of the SDK. A nil *Traces and a nil *Span do
// nothing.
package traces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// Traces makes and exports spans. Its methods may be called from any goroutine.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

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
	own := resource.NewSchemaless(attribute.String("service.name", cmp.Or(env("OTEL_SERVICE_NAME"), "usmbridge")))
	about, err := resource.Merge(resource.Default(), own)
	if err != nil {
		about = own
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return &Traces{provider, provider.Tracer("github.com/usmbridge/usmbridge/interop/inference")}, nil
}

// Close exports the remaining spans, until the context ends.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Span is one request, or one call.
type Span struct {
	t    *Traces
	span trace.Span
	ctx  context.Context
}

var parents = propagation.TraceContext{}

// Begin begins a span, below that of the client if from has one. End ends it.
func (t *Traces) Begin(ctx context.Context, name string, from propagation.TextMapCarrier) *Span {
	if t == nil {
		return nil
	}
	ctx, span := t.tracer.Start(parents.Extract(ctx, from), name, trace.WithSpanKind(trace.SpanKindServer))
	return &Span{t, span, ctx}
}

// Ran adds the stages of a request that the engine ran.
func (s *Span) Ran(r *engine.Request) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	meta := r.Model().Meta()
	model := attribute.String("inference.model", meta.Name)
	s.span.SetAttributes(model, attribute.String("inference.version", meta.Versions[0]))
	stages := r.Stages()
	s.stage("queue", stages.Ready, stages.Turn, model)
	s.stage("infer", stages.Turn, stages.Called, model)
}

func (s *Span) stage(name string, from, to time.Time, about attribute.KeyValue) {
	if from.IsZero() || to.IsZero() {
		return // the request did not reach the stage
	}
	_, span := s.t.tracer.Start(s.ctx, name, trace.WithTimestamp(from), trace.WithAttributes(about))
	span.End(trace.WithTimestamp(to))
}

// End ends the span, with the error that the client got; nil for none.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		message := err.Error()
		if e, ok := errors.AsType[*oip.Error](err); ok { // Error() is for the log
			message = e.Message
		}
		s.span.SetStatus(codes.Error, message)
	}
	s.span.End()
}
