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
	_ "github.com/envoyproxy/go-control-plane/envoy/service/status/v3" // what syncz answers with
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// debugType begins the types of debug pages.
const debugType = names.DebugType

// debugTime bounds one request for a page.
const debugTime = 30 * time.Second

// debugServer serves debug pages of the control plane on a local port: to browsers and curl as JSON, and to istioctl by
// gRPC, both on the one port.
type debugServer struct {
	p        *Proxy
	listener net.Listener
	http     *http.Server
	grpc     *grpc.Server
}

func newDebug(p *Proxy) (*debugServer, error) {
	at, err := netip.ParseAddrPort(strings.Replace(p.o.Debug, "localhost:", "127.0.0.1:", 1))
	if err != nil || !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("address %q of debug pages: write one of this host alone, for example 127.0.0.1:15004", p.o.Debug)
	}
	d := &debugServer{p: p, grpc: p.server(true)}
	if d.listener, err = net.Listen("tcp", at.String()); err != nil {
		return nil, fmt.Errorf("listen for debug pages: %w", err)
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
			// No browser speaks HTTP/2 without TLS. With HTTP/1 it may obey a web page.
			if !safe.NotRebound(r.Host) || safe.CrossOrigin(r) {
				http.Error(w, "only requests to localhost are allowed, and none of a web page of another origin", http.StatusForbidden)
				return
			}
			d.page(w, r)
		}),
	}
	return d, nil
}

func (d *debugServer) serve() error {
	if err := d.http.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("debug pages: %w", err)
	}
	return nil
}

func (d *debugServer) stop() {
	d.grpc.Stop()
	_ = d.http.Close()
}

// page answers GET /debug/PAGE?QUERY. The control plane sends each page as JSON, so that the agent need not know the
// types in it; but syncz in its type of its own, as istioctl reads it.
func (d *debugServer) page(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/debug/")
	if r.Method != http.MethodGet || !ok || name == "" {
		http.Error(w, "write GET /debug/PAGE, for example /debug/syncz", http.StatusNotFound)
		return
	}
	ask := &discoveryv3.DiscoveryRequest{Node: d.p.o.Node, TypeUrl: debugType, ResourceNames: []string{name}}
	switch {
	case name == "syncz":
		ask.TypeUrl, ask.ResourceNames = debugType+"/syncz", nil
	case r.URL.RawQuery != "":
		ask.ResourceNames[0] += "?" + r.URL.RawQuery
	}
	ctx, cancel := context.WithTimeout(r.Context(), debugTime)
	defer cancel()
	a, err := d.ask(ctx, ask)
	if err != nil {
		http.Error(w, "the control plane: "+status.Convert(err).Message(), http.StatusBadGateway)
		return
	}
	text, err := pages(a.GetResources())
	if err != nil {
		http.Error(w, "the control plane: "+err.Error(), http.StatusBadGateway)
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

// pages returns resources as JSON: one alone as it is, several as a list. JSON stays as it is, and another text of a
// page becomes a string. A message of a type that this program does not know is an error.
func pages(list []*anypb.Any) ([]byte, error) {
	all := make([]json.RawMessage, 0, len(list))
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
				return nil, fmt.Errorf("failed to read the answer: %w", err)
			}
		}
		all = append(all, text)
	}
	if len(all) == 1 {
		return append(all[0], '\n'), nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}
