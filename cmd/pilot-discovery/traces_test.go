package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Spans reach a collector, with what they say of this server, and only where the environment asks for them.
func TestTracer(t *testing.T) {
	for _, quiet := range []string{"", "OTEL_TRACES_EXPORTER=none", "OTEL_SDK_DISABLED=true"} {
		e := newEnv([]string{quiet})
		if quiet == "OTEL_SDK_DISABLED=true" {
			e = newEnv([]string{quiet, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"})
		}
		if spans, _, err := tracer(t.Context(), &e); spans != nil || err != nil {
			t.Errorf("%q: %v, %v", quiet, spans, err)
		}
	}
	for _, wrong := range []string{"OTEL_TRACES_EXPORTER=zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"} {
		e := newEnv([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", wrong})
		if _, _, err := tracer(t.Context(), &e); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	got := make(chan *tracev1.ExportTraceServiceRequest, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL) // the SDK reads it itself
	e := newEnv([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "POD_NAME=istiod-0"})
	spans, flush, err := tracer(t.Context(), &e)
	if err != nil {
		t.Fatal(err)
	}
	_, span := spans.Start(t.Context(), "push")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := flush(ctx); err != nil {
		t.Fatal(err)
	}
	text := (<-got).String()
	for _, want := range []string{`"push"`, `"istiod"`, `"istiod-0"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
