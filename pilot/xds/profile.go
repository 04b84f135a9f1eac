package xds

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// profile describes a kind of client. It is chosen at the stream's first request, and holds all differences between
// kinds of clients.
type profile struct {
	session.Profile
	translator session.Translator
	name       string // name in log lines
	urgent     bool   // takes precedence over other streams
	workload   bool   // serves a workload
	warms      bool   // warms its clusters before it requests listeners
	reads      bool   // reads objects of configuration, which needs permission
}

// apiGenerator is the GENERATOR in the node metadata of a client that wants objects of configuration instead of a
// proxy's resources: another control plane, or a tool.
const apiGenerator = "api"

// profileOf returns the profile of a client.
func (s *Server) profileOf(p *node.Proxy, delta bool) *profile {
	if p.Generator == apiGenerator {
		return &profile{Profile: session.Profile{Whole: true}, translator: s.o.Objects, name: "reader of configuration", reads: true}
	}
	if p.Generator == node.GRPC {
		return &profile{Profile: session.Profile{Named: true, Grouped: true}, translator: s.o.Translator, name: "gRPC", workload: true}
	}
	gateway := p.Type == node.Router
	return &profile{
		Profile: session.Profile{
			Divided: delta && !s.o.NoVirtualHosts && p.Capabilities.Has(node.VHDS),
			Grouped: !gateway, // gateways are few, and other proxies depend on them
		},
		translator: s.o.Translator,
		name:       "proxy",
		urgent:     gateway,
		workload:   true,
		warms:      p.Envoy != [3]uint32{},
	}
}

// healthType is the type of health reports, which have no response.
const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// authorize returns an error if a peer may not open a stream of a profile as a proxy. The namespace in the proxy's ID,
// which pages and logs show, must match its metadata. A token's binding takes precedence over metadata.
func (s *Server) authorize(p *profile, peer identity.Peer, proxy *node.Proxy) error {
	err := s.o.Authorizer.Proxy(peer, proxy.Namespace)
	if of, ok := strings.CutPrefix(proxy.ID, proxy.Name+"."); ok && err == nil {
		err = s.o.Authorizer.Proxy(peer, of)
	}
	if err == nil {
		err = s.o.Authorizer.Workload(peer, proxy.Name, proxy.Cluster)
	}
	if p.reads {
		err = s.o.Authorizer.ReadConfig(peer)
	}
	return denied(err)
}

// authorizeAccount returns an error if the pod of a proxy runs as another service account than the peer's. It returns
// nil while the pod is unknown. A token that is bound to a pod has been compared with the pod before.
func (s *Server) authorizeAccount(peer identity.Peer, proxy *node.Proxy) error {
	if !peer.Proved() || peer.Bound.Pod != "" {
		return nil
	}
	newest := s.newest()
	if newest == nil {
		return nil
	}
	return denied(s.o.Authorizer.Account(peer, s.o.World.ServiceAccount(newest, proxy)))
}

// denied converts an *authorize.Denied to a gRPC status.
func denied(err error) error {
	var no *authorize.Denied
	if errors.As(err, &no) {
		return status.Error(codes.PermissionDenied, no.Message)
	}
	return err
}

// authenticate identifies the peer of a stream.
func (s *Server) authenticate(ctx context.Context) (p identity.Peer, err error) {
	if s.o.Authenticate != nil {
		return s.o.Authenticate(ctx)
	}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		p.Address, _ = netip.ParseAddrPort(from.Addr.String())
	}
	return p, nil
}
