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
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
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
		{"a bad token", identity.Peer{}, status.Error(codes.Unauthenticated, "no"), "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", codes.Unauthenticated},
	} {
		t.Run(c.name, func(t *testing.T) {
			connections := make(clients, 1)
			r := newRig(t, func(o *Options) {
				o.Connections = connections
				o.Authenticate = func(context.Context) (identity.Peer, error) { return c.peer, c.err }
			})
			r.publish(true)
			stream, err := r.dial().StreamAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: c.node}}) // a stream that was refused may have ended
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
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"}}); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"}}); err != nil {
			t.Fatal(err)
		}
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
