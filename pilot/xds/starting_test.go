package xds

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

func envoyNode(pod string) *corev3.Node {
	n := xdstest.Node(pod)
	n.Metadata = nil
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{
		UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}},
	}
	return n
}

// envoy is the stream of an Envoy that asks for its clusters.
func (r *rig) envoy(pod string) *deltaClient {
	r.t.Helper()
	c := r.silent()
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: envoyNode(pod), TypeUrl: envoy.ClusterType})
	return c
}

// take reads clusters and acknowledges them.
func (c *deltaClient) take(want string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, ResponseNonce: c.expect(want).Nonce})
}

func (r *rig) waits(pod string) string {
	for _, c := range r.server.Clients() {
		if c.Proxy.ID == pod {
			return c.Waits
		}
	}
	return ""
}

// TestWaitsForCertificates: an Envoy that has its clusters and does not ask for listeners, because a cluster wants
// certificates, is a finding until it does.
func TestWaitsForCertificates(t *testing.T) {
	r := newRig(t)
	r.server.warmTime = time.Millisecond
	r.publish(true, "cds a=1", "cds b=sds-grpc")
	var clients []*deltaClient
	for _, pod := range []string{"q.a", "p.a"} {
		c := r.envoy(pod)
		clients = append(clients, c)
		eventually(t, "its clusters are sent", func() bool { return r.waits(pod) == "it has not acknowledged its clusters yet" })
		c.take("cds a=1 b=sds-grpc")
	}
	eventually(t, "both are a finding", func() bool {
		f := r.server.Findings()
		return len(f) == 1 && f[0].Object == "proxy p.a and 1 more" && strings.Contains(f[0].Message, "b uses mTLS") &&
			strings.Contains(f[0].Fix, "--sds")
	})
	if got := r.waits("p.a"); !strings.Contains(got, "cluster b is warming until the cluster sds-grpc") {
		t.Errorf("waits: %q", got)
	}
	for _, c := range clients {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ListenerType})
	}
	eventually(t, "none is a finding", func() bool { return len(r.server.Findings()) == 0 })
	if got := r.waits("p.a"); got != "" {
		t.Errorf("waits: %q", got)
	}
	if n := strings.Count(r.log.String(), "[NoCertificates]"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, r.log)
	}

	// One that leaves while it waits is forgotten. It has an agent, so that its certificates are the agent's task.
	gone := r.silent()
	n := envoyNode("gone.a")
	n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		"PROXY_CONFIG": structpb.NewStructValue(&structpb.Struct{}), "SERVICE_ACCOUNT": structpb.NewStringValue("web"),
	}}
	gone.send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: envoy.ClusterType})
	gone.take("cds a=1 b=sds-grpc")
	eventually(t, "it is a finding", func() bool { return len(r.server.Findings()) == 1 })
	if fix := r.server.Findings()[0].Fix; strings.Contains(fix, "DISABLE") || !strings.Contains(fix, "the service account a/web") {
		t.Errorf("fix of a proxy with an agent: %s", fix)
	}
	gone.cancel()
	eventually(t, "it is none", func() bool { return len(r.server.Findings()) == 0 })
}

// TestWarmingIsNoFinding: clusters that want no certificates may warm as long as they like.
func TestWarmingIsNoFinding(t *testing.T) {
	r := newRig(t)
	r.server.warmTime = 0
	r.publish(true, "cds a=1")
	c := r.envoy("p.a")
	c.take("cds a=1")
	eventually(t, "it warms", func() bool { return strings.HasSuffix(r.waits("p.a"), "they are warming") })
	if f := r.server.Findings(); len(f) > 0 {
		t.Errorf("findings %v", f)
	}
}

func TestComingsAndGoingsAreLogged(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	c := r.envoy("p.a")
	c.take("cds a=1")
	r.delta("q.a").expect("cds a=1")
	c.cancel()
	eventually(t, "it has left", func() bool { return strings.Contains(r.log.String(), "proxy disconnected") })
	r.server.Shutdown()
	log := r.log.String()
	for _, want := range []string{
		`msg="proxy connected" conn=p.a-1 name=p.a address=127.0.0.1:`, "type=sidecar version=envoy-1.40.0 delta=true", "version=1.31.0",
		`reason="the client closed the connection"`, `msg="proxy disconnected" conn=q.a-2 name=q.a`, `reason="the server is shutting down"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
}

// TestDebugPages: a tool is answered as often as it asks, whatever its node, and is no client in any list. A peer that
// may not read a page learns that. A stream is either for pages or for a proxy.
func TestDebugPages(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Identifier = "here"
		o.World = debugging{pages: func(peer identity.Peer, typeURL string, names []string) ([]*anypb.Any, error) {
			if !peer.Address.IsValid() || slices.Contains(names, "secret") {
				return nil, &authorize.Denied{Message: "not to you"}
			}
			return []*anypb.Any{{TypeUrl: typeURL, Value: []byte(strings.Join(names, ","))}}, nil
		}}
	})
	r.publish(true, "cds a=1")
	c := r.silent()
	for range 2 {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNamesSubscribe: []string{"edsz?proxyID=p.a"}})
		m, err := c.stream.Recv()
		must.Succeed(t, err)
		if m.TypeUrl != "istio.io/debug" || len(m.Resources) != 1 || string(m.Resources[0].Resource.Value) != "edsz?proxyID=p.a" ||
			m.ControlPlane.GetIdentifier() != "here" {
			t.Errorf("answer %v", m)
		}
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	}
	sotw, err := r.dial().StreamAggregatedResources(t.Context())
	must.Succeed(t, err)
	// The first request of istioctl has a nonce: the time.
	must.Succeed(t, sotw.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "istio.io/debug/syncz", ResponseNonce: time.Now().String()}))
	if m, err := sotw.Recv(); err != nil || len(m.Resources) != 1 || m.Resources[0].TypeUrl != "istio.io/debug/syncz" ||
		m.ControlPlane.GetIdentifier() != "here" {
		t.Errorf("answer %v, %v", m, err)
	}
	if n := len(r.server.Clients()); n != 0 {
		t.Errorf("%d clients", n)
	}
	ends := func(c *deltaClient, m *discoveryv3.DeltaDiscoveryRequest, code codes.Code, says string) {
		t.Helper()
		c.send(m)
		if _, err := c.stream.Recv(); status.Code(err) != code || !strings.Contains(err.Error(), says) {
			t.Errorf("the stream ends with %v", err)
		}
	}
	ends(c, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType}, codes.InvalidArgument, "this stream is for debug pages")
	ends(
		r.silent(), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNamesSubscribe: []string{"secret"}},
		codes.PermissionDenied, "not to you",
	)
	p := r.delta("p.a")
	p.expect("cds a=1")
	ends(p, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug/syncz"}, codes.InvalidArgument, "needs a stream of its own")
	none := newRig(t)
	none.publish(true, "cds a=1")
	ends(none.silent(), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug/syncz"}, codes.Unimplemented, "is not served")
}

// TestDebugPagesAfterARevocation judges a tool again each time that it asks.
func TestDebugPagesAfterARevocation(t *testing.T) {
	var revoked atomic.Bool
	r := newRig(t, func(o *Options) {
		o.World = debugging{pages: func(identity.Peer, string, []string) ([]*anypb.Any, error) { return nil, nil }}
		o.Authenticate = func(context.Context) (identity.Peer, error) {
			if revoked.Load() {
				return identity.Peer{}, status.Error(codes.Unauthenticated, "no")
			}
			return identity.Peer{ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}, Proof: identity.Token}, nil
		}
	})
	r.publish(true, "cds a=1")
	c := r.silent()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug/syncz"})
	if _, err := c.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	revoked.Store(true)
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug/syncz"})
	if _, err := c.stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a tool whose proof is revoked: %v", err)
	}
}

// TestDebugAnswersOfOneIdentity checks that an identity whose pages are made, or are not read, has one answer of all at
// a time and is refused another one after a while, that another identity is answered meanwhile, and that there is room
// again when the page has been read.
func TestDebugAnswersOfOneIdentity(t *testing.T) {
	made, gate := make(chan string, 100), make(chan struct{})
	r := newRig(t, accounts(1000), func(o *Options) {
		o.Limits = limits.Default()
		o.World = debugging{pages: func(p identity.Peer, _ string, _ []string) ([]*anypb.Any, error) {
			made <- p.ID.ServiceAccount
			if p.ID.ServiceAccount == "flood" {
				<-gate
			}
			return nil, nil
		}}
	})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	r.publish(true, "cds a=1")
	ask := func(account string) discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
		t.Helper()
		stream, err := r.dial().DeltaAggregatedResources(metadata.AppendToOutgoingContext(t.Context(), "account", account))
		must.Succeed(t, err)
		// Recv says whether it has ended
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("tool.a"), TypeUrl: "istio.io/debug/syncz"})
		return stream
	}
	wait := func(d time.Duration) { r.server.o.Limits.DebugWait = d } // of requests from now on
	first := ask("flood")
	<-made
	for range 3 {
		wait(time.Millisecond)
		if _, err := ask("flood").Recv(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more page for the identity: %v", err)
		}
		wait(time.Hour)
		if _, err := ask("web").Recv(); err != nil {
			t.Errorf("a page for another identity: %v", err)
		}
		<-made
	}
	open()
	if _, err := first.Recv(); err != nil {
		t.Error(err)
	}
	if _, err := ask("flood").Recv(); err != nil {
		t.Errorf("after the page was read: %v", err)
	}
}

// TestUnknownTypesAreIgnored: a proxy that asks for a type that nobody serves goes on.
func TestUnknownTypesAreIgnored(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	c := r.delta("p.a")
	c.expect("cds a=1")
	for _, typeURL := range []string{envoy.NameTableType, envoy.ExtensionType, envoy.SecretType, "type.googleapis.com/no.such.Type"} {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: []string{"x"}})
	}
	r.publish(true, "cds a=2")
	c.expect("cds a=2")
}

// TestMetadataIsNoticed checks that an entry of a proxy's metadata without an effect is logged for the first stream of
// the proxy, and again for another proxy or another value.
func TestMetadataIsNoticed(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	logged := func() int { return strings.Count(r.log.String(), "an entry of the proxy's metadata has no effect") }
	for _, c := range []struct {
		pod, timeout string
		want         int
	}{{"web.a", "4h", 0}, {"web.a", "four hours", 1}, {"web.a", "four hours", 1}, {"db.a", "four hours", 2}, {"web.a", "-1h", 3}} {
		n := xdstest.Node(c.pod)
		n.Metadata.Fields["IDLE_TIMEOUT"] = structpb.NewStringValue(c.timeout)
		r.as(n).expect("cds a=1") // the line is written before the answer
		if got := logged(); got != c.want {
			t.Errorf("%+v: logged %d times:\n%s", c, got, r.log)
		}
	}
	if !strings.Contains(r.log.String(), `entry=IDLE_TIMEOUT value="four hours" fix="write a duration`) {
		t.Errorf("logged:\n%s", r.log)
	}
}
