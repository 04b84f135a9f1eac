package failclosed

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	_ "github.com/istiod-lite/istiod-lite/pilot/bootstrap" // whose imports know the types of all that is sent
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// client is a client of ADS that asks as Envoy does, over delta. It connects again after each end of its stream, with
// the versions that it has, and looks at each state that it passes through.
type client struct {
	node *corev3.Node

	mu       sync.Mutex
	have     view
	versions map[string]map[string]string // by type and name
	baseline posture                      // nil: nothing is held against it
	opened   []string                     // what was more open than the baseline
}

// shortNames are those of view.
func shortNames() map[string]string {
	return map[string]string{envoy.ClusterType: "cds", envoy.ListenerType: "lds", envoy.RouteType: "rds"}
}

// connect starts a client, which ends with the test.
func connect(t *testing.T, address string, node *corev3.Node) *client {
	t.Helper()
	c := &client{node: node, have: view{"cds": {}, "lds": {}, "rds": {}}, versions: map[string]map[string]string{}}
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 20*time.Millisecond, 50*time.Millisecond
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := c.stream(ctx, discoveryv3.NewAggregatedDiscoveryServiceClient(conn)) // it ends with each server
			if ctx.Err() == nil && status.Code(err) == codes.Unknown {
				t.Errorf("%s: %v", c, err)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = conn.Close()
	})
	return c
}

func (c *client) stream(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := ads.DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	asked := c.routeNames()
	for _, typ := range []string{envoy.ClusterType, envoy.ListenerType, envoy.RouteType} {
		r := &discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typ, InitialResourceVersions: c.versionsOf(typ)}
		if typ == envoy.RouteType {
			if r.ResourceNamesSubscribe = asked; len(asked) == 0 {
				continue
			}
		}
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := c.take(r); err != nil {
			return err
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}); err != nil {
			return err
		}
		names := c.routeNames()
		var more, less []string
		for _, n := range names {
			if !slices.Contains(asked, n) {
				more = append(more, n)
			}
		}
		for _, n := range asked {
			if !slices.Contains(names, n) {
				less = append(less, n)
			}
		}
		if asked = names; len(more)+len(less) == 0 {
			continue
		}
		c.forget(less)
		change := &discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: envoy.RouteType, ResourceNamesSubscribe: more, ResourceNamesUnsubscribe: less}
		if err := stream.Send(change); err != nil {
			return err
		}
	}
}

func (c *client) take(r *discoveryv3.DeltaDiscoveryResponse) error {
	short := shortNames()[r.GetTypeUrl()]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.versions[r.GetTypeUrl()] == nil {
		c.versions[r.GetTypeUrl()] = map[string]string{}
	}
	for _, resource := range r.GetResources() {
		m, err := resource.GetResource().UnmarshalNew()
		if err != nil {
			return err
		}
		b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			return err
		}
		var parsed any
		if err := json.Unmarshal(b, &parsed); err != nil {
			return err
		}
		c.have[short][resource.GetName()] = parsed
		c.versions[r.GetTypeUrl()][resource.GetName()] = resource.GetVersion()
	}
	for _, name := range r.GetRemovedResources() {
		delete(c.have[short], name)
		delete(c.versions[r.GetTypeUrl()], name)
	}
	if c.baseline != nil {
		for _, what := range postureOf(c.have).moreOpen(c.baseline) {
			c.opened = append(c.opened, what)
		}
	}
	return nil
}

// routeNames returns the route configurations that the listeners name.
func (c *client) routeNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]bool{}
	for _, l := range c.have["lds"] {
		walk(l, func(key string, value any) {
			if name, ok := value.(string); ok && key == "route_config_name" {
				names[name] = true
			}
		})
	}
	return slices.Sorted(maps.Keys(names))
}

func (c *client) versionsOf(typ string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.versions[typ])
}

func (c *client) forget(routes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range routes {
		delete(c.have["rds"], name)
		delete(c.versions[envoy.RouteType], name)
	}
}

// hold says from which state on nothing may open; nil is none. It returns what has opened since the last call.
func (c *client) hold(baseline posture) (opened []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	opened, c.opened, c.baseline = c.opened, nil, baseline
	return opened
}

func (c *client) view(context.Context) (view, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := view{}
	for typ, all := range c.have {
		v[typ] = maps.Clone(all)
	}
	return v, nil
}

func (c *client) String() string { return fmt.Sprintf("client %s", c.node.GetId()) }
