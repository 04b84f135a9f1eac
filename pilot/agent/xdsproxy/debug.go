package xdsproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/status/v3" // the types in the response of syncz
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// debugType is the prefix of the types of debug pages.
const debugType = names.DebugType

// debugTimeout bounds one request for a page.
const debugTimeout = 30 * time.Second

// debugServer serves the control plane's debug pages on one local port: as JSON to browsers and curl, and by gRPC to
// istioctl.
type debugServer struct {
	p        *Proxy
	listener net.Listener
	http     *http.Server
	grpc     *grpc.Server
}

func newDebug(p *Proxy) (*debugServer, error) {
	address, err := netip.ParseAddrPort(strings.Replace(p.o.Debug, "localhost:", "127.0.0.1:", 1))
	if err != nil || !address.Addr().IsLoopback() {
		return nil, fmt.Errorf("address %q of debug pages: write a loopback address, for example 127.0.0.1:15004", p.o.Debug)
	}
	d := &debugServer{p: p, grpc: p.server(true)}
	if d.listener, err = net.Listen("tcp", address.String()); err != nil { //nolint:noctx // it does not wait
		return nil, fmt.Errorf("failed to listen for debug pages: %w", err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	d.http = &http.Server{
		ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10, Protocols: protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				d.grpc.ServeHTTP(w, r)
				return
			}
			// Browsers do not use HTTP/2 without TLS. HTTP/1 requests may come from a web page.
			if !safe.NotRebound(r.Host) || safe.CrossOrigin(r) {
				http.Error(w, "only requests to localhost are allowed, and not from web pages of other origins", http.StatusForbidden)
				return
			}
			d.page(w, r)
		}),
	}
	return d, nil
}

func (d *debugServer) serve() error {
	if err := d.http.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("failed to serve debug pages: %w", err)
	}
	return nil
}

func (d *debugServer) stop() {
	d.grpc.Stop()
	_ = d.http.Close()
}

// page serves GET /debug/PAGE?QUERY. The control plane sends each page as JSON, so that the agent need not know the
// types in it. Only syncz has a type of its own, which istioctl expects.
func (d *debugServer) page(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/debug/")
	if r.Method != http.MethodGet || !ok || name == "" {
		http.Error(w, "write GET /debug/PAGE, for example /debug/syncz", http.StatusNotFound)
		return
	}
	request := &discoveryv3.DiscoveryRequest{Node: d.p.o.Node, TypeUrl: debugType, ResourceNames: []string{name}}
	switch {
	case name == "syncz":
		request.TypeUrl, request.ResourceNames = debugType+"/syncz", nil
	case r.URL.RawQuery != "":
		request.ResourceNames[0] += "?" + r.URL.RawQuery
	}
	ctx, cancel := context.WithTimeout(r.Context(), debugTimeout)
	defer cancel()
	a, err := d.ask(ctx, request)
	if err != nil {
		http.Error(w, "failed to get the page from the control plane: "+status.Convert(err).Message(), http.StatusBadGateway)
		return
	}
	text, err := pages(a.GetResources())
	if err != nil {
		http.Error(w, "failed to get the page from the control plane: "+err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text)
}

func (d *debugServer) ask(ctx context.Context, r *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.p.o.Upstream.Conn()).StreamAggregatedResources(d.p.o.Upstream.Context(ctx))
	if err != nil {
		return nil, err
	}
	if err := s.Send(r); err != nil {
		_, err = s.Recv()
		return nil, err
	}
	return s.Recv()
}

// pages returns resources as JSON, several of them as an array. A value that is JSON stays unchanged, and other text
// becomes a JSON string. A message of a type that this program does not know is an error.
func pages(list []*anypb.Any) ([]byte, error) {
	values := make([]json.RawMessage, 0, len(list))
	for _, a := range list {
		text := a.GetValue()
		if !json.Valid(text) {
			var err error
			if a.GetTypeUrl() == debugType {
				text, err = json.Marshal(string(text))
			} else {
				text, err = protojson.Marshal(a)
			}
			if err != nil {
				return nil, fmt.Errorf("failed to decode the response: %w", err)
			}
		}
		values = append(values, text)
	}
	if len(values) == 1 {
		return append(values[0], '\n'), nil
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}
