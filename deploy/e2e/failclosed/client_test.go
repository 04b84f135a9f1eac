package failclosed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"github.com/istiod-lite/istiod-lite/deploy/must"
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
	return map[string]string{envoy.ClusterType: "cds", envoy.ListenerType: "lds", envoy.RouteType: "rds", envoy.EndpointType: "eds"}
}

// byName are the types that are asked for by name.
func byName() []string { return []string{envoy.EndpointType, envoy.RouteType} }

// connect starts a client, which ends with the test.
func connect(t *testing.T, address string, node *corev3.Node) *client {
	t.Helper()
	c := &client{node: node, have: emptyView(), versions: map[string]map[string]string{}}
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 20*time.Millisecond, 50*time.Millisecond
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := c.stream(ctx, discoveryv3.NewAggregatedDiscoveryServiceClient(conn)) // it ends with each server
			if ctx.Err() == nil && !errors.Is(err, io.EOF) && status.Code(err) == codes.Unknown {
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
	asked := map[string][]string{}
	for _, typ := range []string{envoy.ClusterType, envoy.EndpointType, envoy.ListenerType, envoy.RouteType} {
		r := &discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typ, InitialResourceVersions: c.versionsOf(typ)}
		if slices.Contains(byName(), typ) {
			if asked[typ] = c.namesOf(typ); len(asked[typ]) == 0 {
				continue
			}
			r.ResourceNamesSubscribe = asked[typ]
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
		for _, typ := range byName() {
			names := c.namesOf(typ)
			more, less := without(names, asked[typ]), without(asked[typ], names)
			if asked[typ] = names; len(more)+len(less) == 0 {
				continue
			}
			c.forget(typ, less)
			change := &discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typ, ResourceNamesSubscribe: more, ResourceNamesUnsubscribe: less}
			if err := stream.Send(change); err != nil {
				return err
			}
		}
	}
}

// without returns what is in list and not in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(other, name) })
}

func (c *client) take(r *discoveryv3.DeltaDiscoveryResponse) error {
	short := shortNames()[r.GetTypeUrl()]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.versions[r.GetTypeUrl()] == nil {
		c.versions[r.GetTypeUrl()] = map[string]string{}
	}
	named := c.have.namesOf(r.GetTypeUrl())
	for _, resource := range r.GetResources() {
		if slices.Contains(byName(), r.GetTypeUrl()) && !slices.Contains(named, resource.GetName()) {
			continue // it was sent before the server heard that it is not wanted any more
		}
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
		c.opened = append(c.opened, postureOf(c.have).moreOpen(c.baseline)...)
	}
	return nil
}

func (c *client) namesOf(typ string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.have.namesOf(typ)
}

// namesOf returns the route configurations that the listeners name, or the endpoints of the clusters.
func (v view) namesOf(typ string) []string {
	names := map[string]bool{}
	if typ == envoy.EndpointType {
		for name, cluster := range v["cds"] {
			if at(cluster, "type") == "EDS" {
				if service, ok := at(cluster, "eds_cluster_config", "service_name").(string); ok {
					name = service
				}
				names[name] = true
			}
		}
		return slices.Sorted(maps.Keys(names))
	}
	for _, l := range v["lds"] {
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

func (c *client) forget(typ string, list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range list {
		delete(c.have[shortNames()[typ]], name)
		delete(c.versions[typ], name)
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
