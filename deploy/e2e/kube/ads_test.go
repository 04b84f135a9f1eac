package kube

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// guard is a text that a resource has from the first time it is sent.
type guard struct{ typ, name, text string }

// refusedText is in resources that an adsClient rejects, in delta.
const refusedText = "no-proxy-can-use-this"

// adsClient is a proxy's stream. It keeps the resources that it was sent, as a proxy would, and records the resources
// that it lost.
type adsClient struct {
	protocol string
	guards   []guard

	mu    sync.Mutex
	have  map[string]map[string][]byte // by type and name
	first map[string]bool              // types with an answer
	lost  []string                     // lost resources, in order, each time
	count int                          // of responses
	ended error
}

// connect opens a stream, and retries until a server accepts it. The stream ends with the test.
func connect(t *testing.T, protocol, address string, guards []guard) *adsClient {
	t.Helper()
	c := &adsClient{protocol: protocol, guards: guards, have: map[string]map[string][]byte{}, first: map[string]bool{}}
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 50*time.Millisecond, 200*time.Millisecond
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run := c.stateOfTheWorld
		if protocol == "delta" {
			run = c.delta
		}
		err := run(ctx, discoveryv3.NewAggregatedDiscoveryServiceClient(conn))
		c.mu.Lock()
		defer c.mu.Unlock()
		if ctx.Err() == nil {
			c.ended = err
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = conn.Close()
	})
	return c
}

func (c *adsClient) node() *corev3.Node {
	metadata := map[string]*structpb.Value{}
	for k, v := range map[string]string{"NAMESPACE": "shop", "NAME": "probe", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.31.0",
		"INSTANCE_IPS": "10.20.0.9"} {
		metadata[k] = structpb.NewStringValue(v)
	}
	return &corev3.Node{Id: "sidecar~10.20.0.9~probe.shop~shop.svc.cluster.local", Cluster: "probe.shop",
		Metadata: &structpb.Struct{Fields: metadata}}
}

// subscriptions are in the order in which a proxy subscribes. No names means all.
func (c *adsClient) subscriptions() []struct {
	typ   string
	names []string
} {
	return []struct {
		typ   string
		names []string
	}{
		{envoy.ClusterType, nil}, {envoy.EndpointType, []string{firstCluster}}, {envoy.ListenerType, nil}, {envoy.RouteType, []string{"80"}},
	}
}

func (c *adsClient) delta(ctx context.Context, client discoveryv3.AggregatedDiscoveryServiceClient) error {
	stream, err := client.DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for _, s := range c.subscriptions() {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node(), TypeUrl: s.typ, ResourceNamesSubscribe: s.names}); err != nil {
			return err
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
		if slices.ContainsFunc(r.GetResources(), func(m *discoveryv3.Resource) bool {
			return bytes.Contains(m.GetResource().GetValue(), []byte(refusedText))
		}) {
			answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: "the name " + refusedText}
		} else {
			c.takeDelta(r)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (c *adsClient) takeDelta(r *discoveryv3.DeltaDiscoveryResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	typ := r.GetTypeUrl()
	for _, res := range r.GetResources() {
		c.take(typ, res.GetName(), res.GetResource())
	}
	for _, name := range r.GetRemovedResources() {
		c.loses(typ, name)
	}
	c.answered(typ)
}

func (c *adsClient) stateOfTheWorld(ctx context.Context, client discoveryv3.AggregatedDiscoveryServiceClient) error {
	stream, err := client.StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	names := map[string][]string{}
	for _, s := range c.subscriptions() {
		names[s.typ] = s.names
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: c.node(), TypeUrl: s.typ, ResourceNames: s.names}); err != nil {
			return err
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := c.takeAll(r); err != nil {
			return err
		}
		ack := &discoveryv3.DiscoveryRequest{TypeUrl: r.GetTypeUrl(), VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce(),
			ResourceNames: names[r.GetTypeUrl()]}
		if err := stream.Send(ack); err != nil {
			return err
		}
	}
}

func (c *adsClient) takeAll(r *discoveryv3.DiscoveryResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	typ, there := r.GetTypeUrl(), map[string]bool{}
	for _, any := range r.GetResources() {
		m, err := any.UnmarshalNew()
		if err != nil {
			return err
		}
		name := nameOf(m)
		there[name] = true
		c.take(typ, name, any)
	}
	for name := range c.have[typ] {
		if !there[name] {
			c.loses(typ, name)
		}
	}
	c.answered(typ)
	return nil
}

func nameOf(m proto.Message) string {
	field := "name"
	if m.ProtoReflect().Descriptor().Name() == "ClusterLoadAssignment" {
		field = "cluster_name"
	}
	return m.ProtoReflect().Get(m.ProtoReflect().Descriptor().Fields().ByTextName(field)).String()
}

// take replaces a resource. Virtual hosts that a RouteConfiguration no longer has are lost too. The caller holds mu.
func (c *adsClient) take(typ, name string, body *anypb.Any) {
	if c.have[typ] == nil {
		c.have[typ] = map[string][]byte{}
	}
	before, now := c.have[typ][name], body.GetValue()
	c.have[typ][name] = now
	if typ == envoy.RouteType {
		there := virtualHosts(now)
		for _, h := range virtualHosts(before) {
			if !slices.Contains(there, h) {
				c.lost = append(c.lost, h)
			}
		}
	}
	for _, g := range c.guards {
		if g.typ == typ && g.name == name && !bytes.Contains(now, []byte(g.text)) {
			c.lost = append(c.lost, fmt.Sprintf("%s of %s", g.text, name))
		}
	}
}

func virtualHosts(body []byte) (names []string) {
	r := &routev3.RouteConfiguration{}
	if proto.Unmarshal(body, r) != nil {
		return nil
	}
	for _, h := range r.GetVirtualHosts() {
		names = append(names, h.GetName())
	}
	return names
}

// loses records a lost resource. The caller holds mu.
func (c *adsClient) loses(typ, name string) {
	delete(c.have[typ], name)
	c.lost = append(c.lost, name)
}

// answered checks the first response of a type for the resources that it must have. The caller holds mu.
func (c *adsClient) answered(typ string) {
	c.count++
	if c.first[typ] {
		return
	}
	c.first[typ] = true
	for _, g := range c.guards {
		if g.typ == typ && c.have[typ][g.name] == nil {
			c.lost = append(c.lost, g.name+" in the first response")
		}
	}
}

// received is the number of responses.
func (c *adsClient) received() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// types is the number of types that were answered.
func (c *adsClient) types() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.first)
}

// complete reports whether every type has been answered.
func (c *adsClient) complete() bool { return c.types() == len(c.subscriptions()) }

// has reports whether the client holds the resource and it contains the text.
func (c *adsClient) has(typ, name, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, ok := c.have[typ][name]
	return ok && bytes.Contains(body, []byte(text))
}

// check fails unless the stream is alive and exactly these resources were lost, each once.
func (c *adsClient) check(t *testing.T, what string, gone []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		t.Errorf("%s: the %s stream ended: %v", what, c.protocol, c.ended)
	}
	lost, want := slices.Sorted(slices.Values(c.lost)), slices.Sorted(slices.Values(gone))
	if !slices.Equal(lost, want) {
		t.Errorf("%s: the %s client lost\n  %s\nnot\n  %s", what, c.protocol, strings.Join(lost, "\n  "), strings.Join(want, "\n  "))
		c.lost = slices.Clone(gone) // once is enough
	}
}
