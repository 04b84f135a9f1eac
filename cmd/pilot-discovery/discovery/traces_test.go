package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Nobody is sent spans unless the environment asks for them in a way that is known.
func TestTracerIsOff(t *testing.T) {
	for _, quiet := range []string{"", "OTEL_TRACES_EXPORTER=none", "OTEL_SDK_DISABLED=true"} {
		e := env.New([]string{quiet})
		if quiet == "OTEL_SDK_DISABLED=true" {
			e = env.New([]string{quiet, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"})
		}
		if spans, _, err := tracer(t.Context(), &e, slog.New(slog.DiscardHandler)); spans != nil || err != nil {
			t.Errorf("%q: %v, %v", quiet, spans, err)
		}
	}
	for _, wrong := range []string{"OTEL_TRACES_EXPORTER=zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"} {
		e := env.New([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", wrong})
		if _, _, err := tracer(t.Context(), &e, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// Spans reach a collector, over HTTP and gRPC, with what they say of this server.
func TestTracer(t *testing.T) {
	got := make(chan *tracev1.ExportTraceServiceRequest, 1)
	overHTTP := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m tracev1.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			http.Error(w, "no traces", http.StatusBadRequest)
			return
		}
		got <- &m
	}))
	defer overHTTP.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	overGRPC := grpc.NewServer()
	tracev1.RegisterTraceServiceServer(overGRPC, traceCollector{got: got})
	go func() { _ = overGRPC.Serve(listener) }()
	defer overGRPC.Stop()
	for protocol, endpoint := range map[string]string{"": overHTTP.URL, "grpc": "http://" + listener.Addr().String()} {
		t.Run(protocol, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint) // the SDK reads it itself
			e := env.New([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol, "POD_NAME=istiod-0"})
			spans, flush, err := tracer(t.Context(), &e, slog.New(slog.DiscardHandler))
			must.Succeed(t, err)
			must.Succeed(t, sendSpan(t, spans, flush))
			text := (<-got).String()
			for _, want := range []string{`"push"`, `"istiod"`, `"istiod-0"`} {
				if !strings.Contains(text, want) {
					t.Errorf("no %s in %s", want, text)
				}
			}
		})
	}
}

// What the exporter complains of is a line of the server's log, in the log's format.
func TestTracerLogs(t *testing.T) {
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refuses.URL)
	e := env.New([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + refuses.URL})
	var log bytes.Buffer
	spans, flush, err := tracer(t.Context(), &e, slog.New(slog.NewJSONHandler(&log, nil)))
	must.Succeed(t, err)
	_ = sendSpan(t, spans, flush) // which may say the same
	var line struct{ Level, Msg, Err string }
	if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Level != "WARN" || !strings.Contains(line.Err, "404") {
		t.Errorf("%v: %s", err, &log)
	}
}

// traceCollector takes spans over gRPC.
type traceCollector struct {
	tracev1.UnimplementedTraceServiceServer
	got chan<- *tracev1.ExportTraceServiceRequest
}

func (c traceCollector) Export(_ context.Context, m *tracev1.ExportTraceServiceRequest) (*tracev1.ExportTraceServiceResponse, error) {
	c.got <- m
	return &tracev1.ExportTraceServiceResponse{}, nil
}

// sendSpan has the exporter send a span.
func sendSpan(t *testing.T, spans trace.Tracer, flush func(context.Context) error) error {
	_, span := spans.Start(t.Context(), "push")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return flush(ctx)
}
