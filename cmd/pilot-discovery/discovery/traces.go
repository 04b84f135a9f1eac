package discovery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/version"
)

// flushTime is the time limit for exporting the last spans when the server stops.
const flushTime = 2 * time.Second

// tracer returns a tracer and a function that exports its last spans. Both are nil unless OpenTelemetry's variables ask
// for traces: OTEL_TRACES_EXPORTER=otlp, or an endpoint. The OpenTelemetry library reads the other variables itself:
// headers, timeouts, certificates, the sampler, the attributes of the resource. Its errors are logged.
func tracer(ctx context.Context, e *env.Env, logger *slog.Logger) (trace.Tracer, func(context.Context) error, error) {
	exporter := e.Getenv("OTEL_TRACES_EXPORTER")
	endpoint := cmp.Or(e.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), e.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	off, _ := strconv.ParseBool(e.Getenv("OTEL_SDK_DISABLED"))
	switch {
	case off, exporter == "none", exporter == "" && endpoint == "":
		return nil, nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: write otlp or none", exporter)
	}
	otel.SetLogger(logr.FromSlogHandler(logger.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("failed to export traces", "err", err) }))
	var to sdktrace.SpanExporter
	var err error
	switch protocol := cmp.Or(e.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), e.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf"); protocol {
	case "grpc":
		to, err = otlptracegrpc.New(ctx)
	case "http/protobuf":
		to, err = otlptracehttp.New(ctx)
	default:
		return nil, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: write grpc or http/protobuf", protocol)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("export traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "istiod"), attribute.String("service.version", version.Tag()),
		attribute.String("service.instance.id", e.Getenv("POD_NAME"))), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("read the resource attributes of traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(to), sdktrace.WithResource(about))
	return provider.Tracer("github.com/istiod-lite/istiod-lite"), provider.Shutdown, nil
}
