package traffic

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

// The ports of the collector's pod.
const (
	telemetryGRPCPort = 4317
	telemetryHTTPPort = 4318
)

// collector collects the data that proxies send.
type collector struct {
	alsv3.UnimplementedAccessLogServiceServer

	mu      sync.Mutex
	http    []*httpEntry
	tcp     []*tcpEntry
	names   map[string]bool // names of the access logs from Envoy's service
	records []*logsv1.LogRecord
	spans   []span
}

type (
	httpEntry = alsdatav3.HTTPAccessLogEntry
	tcpEntry  = alsdatav3.TCPAccessLogEntry
)

// span is one span of a trace, from any protocol.
type span struct {
	protocol string // zipkin, grpc or http
	service  string
	tags     map[string]string
}

// startCollector starts the collectors in a pod.
func startCollector(t *testing.T, pod *world.Running) *collector {
	t.Helper()
	c := &collector{names: map[string]bool{}}
	rpc, web := grpc.NewServer(), &http.Server{Handler: http.HandlerFunc(c.serveHTTP)} //nolint:gosec // no stranger reaches it
	alsv3.RegisterAccessLogServiceServer(rpc, c)
	rpc.RegisterService(export("opentelemetry.proto.collector.logs.v1.LogsService",
		func(_ context.Context, r *logsv1.LogsData) { c.addLogs(r) }), c)
	rpc.RegisterService(export("opentelemetry.proto.collector.trace.v1.TraceService", func(ctx context.Context, r *tracev1.TracesData) {
		if slices.Equal(metadata.ValueFromIncomingContext(ctx, "x-collector"), []string{"test"}) {
			c.addTraces("grpc", r)
		}
	}), c)
	suite.Serve(t, pod, telemetryGRPCPort, rpc.Serve, rpc.Stop)
	suite.Serve(t, pod, telemetryHTTPPort, web.Serve, func() { _ = web.Close() })
	return c
}

// export returns a service of OTLP. A request has the form of the data that it brings, and the answer may be empty.
func export[M any, P interface {
	*M
	proto.Message
}](name string, add func(context.Context, P)) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Export",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			r := P(new(M))
			if err := decode(r); err != nil {
				return nil, err
			}
			add(ctx, r)
			return P(new(M)), nil
		},
	}}}
}

// StreamAccessLogs implements alsv3.AccessLogServiceServer.
func (c *collector) StreamAccessLogs(s grpc.ClientStreamingServer[alsv3.StreamAccessLogsMessage, alsv3.StreamAccessLogsResponse]) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.names[m.GetIdentifier().GetLogName()] = true
		c.http = append(c.http, m.GetHttpLogs().GetLogEntry()...)
		c.tcp = append(c.tcp, m.GetTcpLogs().GetLogEntry()...)
		c.mu.Unlock()
	}
}

func (c *collector) addLogs(d *logsv1.LogsData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range d.ResourceLogs {
		for _, s := range r.ScopeLogs {
			c.records = append(c.records, s.LogRecords...)
		}
	}
}

func (c *collector) addTraces(protocol string, d *tracev1.TracesData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range d.ResourceSpans {
		service := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.Key == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, s := range r.ScopeSpans {
			for _, one := range s.Spans {
				tags := map[string]string{}
				for _, a := range one.Attributes {
					tags[a.Key] = a.GetValue().GetStringValue()
				}
				c.spans = append(c.spans, span{protocol, service, tags})
			}
		}
	}
}

// serveHTTP accepts OTLP and Zipkin's JSON.
func (c *collector) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch r.URL.Path {
	case "/v1/traces":
		d := &tracev1.TracesData{}
		if err := proto.Unmarshal(body, d); err != nil || r.Header.Get("x-collector") != "test" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.addTraces("http", d)
	case "/api/v2/spans":
		var list []struct {
			LocalEndpoint struct{ ServiceName string }
			Tags          map[string]string
		}
		if err := json.Unmarshal(body, &list); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range list {
			c.spans = append(c.spans, span{"zipkin", s.LocalEndpoint.ServiceName, s.Tags})
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// has reports whether the function finds some data in the collector.
func (c *collector) has(f func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}
