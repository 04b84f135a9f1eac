package xds

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestPeersAreAuthenticated serves a stream as its peer alone: who could not be authenticated, or is a proxy of another
// namespace, is refused.
func TestPeersAreAuthenticated(t *testing.T) {
	web := identity.Peer{
		ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}, Proof: identity.Token,
		Address: netip.MustParseAddrPort("10.0.0.1:1"),
	}
	for _, c := range []struct {
		name string
		peer identity.Peer
		err  error
		node string
		code codes.Code
	}{
		{"nobody", identity.Peer{Address: web.Address}, nil, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", codes.OK},
		{"a workload", web, nil, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", codes.OK},
		{"another namespace", web, nil, "sidecar~10.1.1.1~web-0.b~b.svc.cluster.local", codes.PermissionDenied},
		{"another namespace in the domain", web, nil, "sidecar~10.1.1.1~web-0.a~b.svc.cluster.local", codes.PermissionDenied},
		{"another namespace in the name", web, nil, "sidecar~10.1.1.1~web-0.b~a.svc.cluster.local", codes.PermissionDenied},
		{"a name without namespace", web, nil, "sidecar~10.1.1.1~web-0~a.svc.cluster.local", codes.OK},
		{
			"a bad token", identity.Peer{}, status.Error(codes.Unauthenticated, "no"), "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local",
			codes.Unauthenticated,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			connections := make(clients, 1)
			r := newRig(t, func(o *Options) {
				o.Connections = connections
				o.Authenticate = func(context.Context) (identity.Peer, error) { return c.peer, c.err }
			})
			r.publish(true)
			stream, err := r.dial().StreamAggregatedResources(t.Context())
			must.Succeed(t, err)
			// a stream that was refused may have ended
			_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: c.node}})
			if _, err := stream.Recv(); status.Code(err) != c.code {
				t.Fatalf("%v, want %v", err, c.code)
			}
			if c.code != codes.OK {
				return
			}
			if got := <-connections; got.Peer != c.peer {
				t.Errorf("%#v", got.Peer)
			}
		})
	}
}

// clients are the streams that a server reports.
type clients chan Client

func (c clients) Connected(_ context.Context, client Client) error {
	c <- client
	return nil
}
func (clients) Disconnected(Client)         {}
func (clients) Health(Client, bool, string) {}

// TestStreamEndsWithItsCredential ends a stream when its peer's proof expires, and no other.
func TestStreamEndsWithItsCredential(t *testing.T) {
	expires := time.Now().Add(2 * time.Second)
	r := newRig(t, func(o *Options) {
		o.Authenticate = func(context.Context) (identity.Peer, error) { return identity.Peer{Expires: expires}, nil }
	})
	r.publish(true)
	stream, err := r.dial().StreamAggregatedResources(t.Context())
	must.Succeed(t, err)
	must.Succeed(t, stream.Send(
		&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"}},
	))
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if status.Code(err) != codes.Unauthenticated || time.Now().Before(expires) {
		t.Errorf("%v, %s before the credential expires", err, time.Until(expires))
	}
}

// TestStreamEndsWhenItsProofIsRevoked ends a stream soon after what its peer presented would not open a new one, and no
// other. While nobody can judge it the stream goes on.
func TestStreamEndsWhenItsProofIsRevoked(t *testing.T) {
	const account = "account"
	var mu sync.Mutex
	judge := map[string]error{}
	judged := map[string]chan error{"a": make(chan error, 100), "b": make(chan error, 100)}
	r := newRig(t, func(o *Options) {
		o.ProofTime = 20 * time.Millisecond
		o.Authenticate = func(ctx context.Context) (identity.Peer, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			who := md.Get(account)[0]
			mu.Lock()
			err := judge[who]
			mu.Unlock()
			select {
			case judged[who] <- err:
			default:
			}
			return identity.Peer{ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: who}, Proof: identity.Token}, err
		}
	})
	r.publish(true)
	service := r.dial()
	open := func(who string) discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
		t.Helper()
		stream, err := service.StreamAggregatedResources(metadata.AppendToOutgoingContext(t.Context(), account, who))
		must.Succeed(t, err)
		must.Succeed(t, stream.Send(
			&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"}},
		))
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	set := func(who string, code codes.Code) {
		mu.Lock()
		defer mu.Unlock()
		judge[who] = status.Error(code, "no")
	}
	awaitJudgement := func(who string, want codes.Code) {
		t.Helper()
		for n := 0; n < 3; {
			select {
			case err := <-judged[who]:
				if status.Code(err) == want {
					n++
				}
			case <-t.Context().Done():
				t.Fatal("it is not judged again")
			}
		}
	}
	a, b := open("a"), open("b")
	set("b", codes.Unavailable)
	awaitJudgement("a", codes.OK)
	awaitJudgement("b", codes.Unavailable)
	set("a", codes.Unauthenticated)
	if _, err := a.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream whose proof is revoked: %v", err)
	}
	awaitJudgement("b", codes.Unavailable)
	if err := b.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ListenerType}); err != nil {
		t.Error(err)
	}
	if m, err := b.Recv(); err != nil || m.GetTypeUrl() != envoy.ListenerType {
		t.Errorf("the stream that nobody can judge: %v", err)
	}
}

// TestAccountOfThePod serves a peer as the proxy of a pod of its own service account alone, also if the pod comes to be
// known later. The cluster of a token is the proxy's where its metadata name none.
func TestAccountOfThePod(t *testing.T) {
	peer := identity.Peer{
		ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}, Proof: identity.Certificate,
		Bound: identity.Bound{Cluster: "far"},
	}
	connections := make(clients, 10)
	r := newRig(t, func(o *Options) {
		o.Connections = connections
		o.ProofTime = 20 * time.Millisecond
		o.Authenticate = func(context.Context) (identity.Peer, error) { return peer, nil }
		o.World = accounting{account: func(s *snapshot.Snapshot, p *node.Proxy) string {
			switch {
			case p.Name == "web-0":
				return "web"
			case p.Name == "db-0", p.Name == "late-0" && s.Revision >= 2:
				return "db"
			}
			return ""
		}}
	})
	r.publish(true, "cds a=1")
	service := r.dial()
	open := func(name string) (discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, error) {
		t.Helper()
		stream, err := service.StreamAggregatedResources(t.Context())
		must.Succeed(t, err)
		must.Succeed(t, stream.Send(
			&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: "sidecar~10.1.1.1~" + name + ".a~a.svc.cluster.local"}},
		))
		_, err = stream.Recv()
		if got := <-connections; got.Proxy.Cluster != "far" {
			t.Errorf("%s is of cluster %q", name, got.Proxy.Cluster)
		}
		return stream, err
	}
	if _, err := open("web-0"); err != nil {
		t.Error(err)
	}
	if _, err := open("unknown-0"); err != nil {
		t.Error(err)
	}
	if _, err := open("db-0"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("served as the proxy of a pod of another account: %v", err)
	}
	late, err := open("late-0")
	must.Succeed(t, err)
	r.publish(true, "cds a=2")
	for err == nil {
		_, err = late.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("served on as the proxy of a pod of another account: %v", err)
	}
}

// TestStreamEndsWhenItsPeerIsAnother ends a stream soon after what its peer presented proves less of it, or another.
func TestStreamEndsWhenItsPeerIsAnother(t *testing.T) {
	web := identity.Peer{
		ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}, Proof: identity.Certificate,
		Bound: identity.Bound{Node: "n"},
	}
	federated, bound, other, moved := web, web, web, web
	federated.Federated, bound.Bound.Cluster, other.ID.ServiceAccount, moved.Bound.Node = true, "far", "db", ""
	for what, now := range map[string]identity.Peer{"federated": federated, "bound": bound, "another": other} {
		t.Run(what, func(t *testing.T) {
			var mu sync.Mutex
			peer := web
			judged := make(chan identity.Peer, 1)
			r := newRig(t, func(o *Options) {
				o.ProofTime = 20 * time.Millisecond
				o.Authenticate = func(context.Context) (identity.Peer, error) {
					mu.Lock()
					defer mu.Unlock()
					select {
					case judged <- peer:
					default:
					}
					return peer, nil
				}
			})
			r.publish(true)
			stream, err := r.dial().StreamAggregatedResources(t.Context())
			must.Succeed(t, err)
			must.Succeed(t, stream.Send(
				&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"}},
			))
			set := func(p identity.Peer) {
				mu.Lock()
				defer mu.Unlock()
				peer = p
			}
			set(moved)
			for n := 0; n < 3; {
				if <-judged == moved {
					n++
				}
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
			set(now)
			if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%v", err)
			}
		})
	}
}
