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

// profile is what kind of client a stream has. It is chosen at the stream's first request. Every difference between
// kinds of clients is here.
type profile struct {
	session.Profile
	translator session.Translator
	name       string // in the log
	urgent     bool   // it goes before others
	workload   bool   // a workload runs beside it
	warms      bool   // it warms its clusters before it asks for listeners
	reads      bool   // it reads objects of configuration, which not everybody may
}

// apiGenerator is the GENERATOR in the metadata of a node that wants the objects of configuration themselves, not what
// a proxy makes of them: another control plane, or a tool.
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

// healthType is that of reports of health, which are not answered.
const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// authorize returns an error to a peer that may not open a stream of a profile as a proxy. The proxy's ID, by which
// pages and logs call it, may not name another namespace than its metadata. What a token is bound to counts, not what
// metadata says.
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

// authorizeAccount returns an error to a peer that may not be served as a proxy, for the account of the proxy's pod is
// another. While the pod is not known nothing says so. A token that is bound to a pod was compared with it before.
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

// denied returns an error as a gRPC status, if it says that something is not allowed.
func denied(err error) error {
	var no *authorize.Denied
	if errors.As(err, &no) {
		return status.Error(codes.PermissionDenied, no.Message)
	}
	return err
}

// authenticate returns who is at the other end of a stream.
func (s *Server) authenticate(ctx context.Context) (p identity.Peer, err error) {
	if s.o.Authenticate != nil {
		return s.o.Authenticate(ctx)
	}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		p.Address, _ = netip.ParseAddrPort(from.Addr.String())
	}
	return p, nil
}
