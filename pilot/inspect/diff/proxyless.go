package diff

import (
	"net"
	"slices"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// Listeners returns the names of all listeners for which an application that uses xDS itself may ask: host:port of each
// service that it sees, and one for each port that it serves. Which of them it asks for is known only when it does.
func Listeners(t *translate.Translator, s *snapshot.Snapshot, p *node.Proxy, k cohort.Key) []string {
	var list []string
	sees, _ := t.Visible(s, p)
	for svc := range sees.Services {
		for port := range svc.ImportedPorts {
			if port.Protocol != protocols.UDP {
				list = append(list, net.JoinHostPort(svc.Host, strconv.Itoa(int(port.Number))))
			}
		}
	}
	if !k.Inbound.None() {
		for target := range k.Inbound.Value().Targets.All {
			list = append(list, names.ProxylessPort(target.TargetPort))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Proxyless returns listeners by name and the resources that they lead to, routes, clusters and endpoints, as
// applications that use xDS themselves request them. get returns the resources of a type.
func Proxyless(listeners []string, get func(typeURL string, names []string) ([]*envoy.Resource, error)) error {
	wanted := listeners
	for _, step := range [...]string{envoy.ListenerType, envoy.RouteType, envoy.ClusterType, envoy.EndpointType} {
		if len(wanted) == 0 {
			return nil
		}
		list, err := get(step, wanted)
		if err != nil {
			return err
		}
		refs := References{}
		for _, r := range list {
			if step == envoy.RouteType {
				err = refs.route(r)
			} else {
				err = refs.Add(step, r)
			}
			if err != nil {
				return err
			}
		}
		next := map[string]string{envoy.ListenerType: envoy.RouteType, envoy.RouteType: envoy.ClusterType,
			envoy.ClusterType: envoy.EndpointType}[step]
		wanted = slices.Compact(slices.Sorted(slices.Values(refs[next])))
	}
	return nil
}

// route adds the clusters that a route configuration leads to.
func (refs References) route(r *envoy.Resource) error {
	c := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(r.Value(), c); err != nil {
		return err
	}
	for _, h := range c.GetVirtualHosts() {
		for _, route := range h.GetRoutes() {
			a := route.GetRoute()
			if name := a.GetCluster(); name != "" {
				refs[envoy.ClusterType] = append(refs[envoy.ClusterType], name)
			}
			for _, w := range a.GetWeightedClusters().GetClusters() {
				refs[envoy.ClusterType] = append(refs[envoy.ClusterType], w.GetName())
			}
		}
	}
	return nil
}

// lookProxyless returns what applications that use xDS themselves are sent if they request everything.
func (c *Comparer) lookProxyless(s *snapshot.Snapshot, k cohort.Key, p *node.Proxy) (*sight, error) {
	out := &sight{key: k}
	err := Proxyless(Listeners(c.translator, s, p, k), func(typeURL string, list []string) ([]*envoy.Resource, error) {
		u, err := c.translator.Get(s, k, typeURL, c.interner.Intern(list))
		out.of[slices.Index(types[:], typeURL)] = u
		return slices.Collect(u.All), err
	})
	return out, err
}
