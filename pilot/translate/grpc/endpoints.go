package grpc

import (
	"cmp"
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate/eds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Endpoints makes the endpoints of clusters. Safe for concurrent use.
type Endpoints struct {
	cache     *engine.Cache
	envoys    *eds.Assignments
	endpoints *envoy.MemoTable[endpointsKey]
}

// NewEndpoints returns Endpoints that are made from the assignments of Envoys.
func NewEndpoints(m *envoy.Memo, c *engine.Cache, envoys *eds.Assignments) *Endpoints {
	return &Endpoints{cache: c, envoys: envoys, endpoints: envoy.NewMemoTable(m, buildEndpoints)}
}

// endpointsKey is the whole input of an assignment: the one for an Envoy.
type endpointsKey struct{ envoys *envoy.Resource }

// own identifies the Sets of assignments that depend on the application's location.
type own struct {
	node     string
	location cohort.Location
}

// Get returns the assignments of a list of names, in the same halves as for Envoys.
func (m *Endpoints) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	full, err := m.envoys.Get(v, c, list)
	get := func(k engine.Key, from *envoy.Set) (*envoy.Set, error) {
		s := engine.GetByName(m.cache, k, v.Revision, list, engine.ByName{
			Affected: eds.Affected,
			Build: func(name string) *envoy.Resource {
				if r := from.Get(name); r != nil {
					return m.endpoints.Get(endpointsKey{r})
				}
				return nil
			},
		})
		return s.Set, s.Err()
	}
	k := client(envoy.EndpointType, c)
	k.Part = marker{}
	u := envoy.Union{Empty: full.Empty, Failed: full.Failed}
	var failed error
	u.Shared, failed = get(k, full.Shared)
	if err = errors.Join(err, failed); full.Own != nil {
		k.Part = own{c.Node, c.Location}
		u.Own, failed = get(k, full.Own)
		err = errors.Join(err, failed)
	}
	return u, err
}

// place is a locality of one priority.
type place struct {
	priority              uint32
	region, zone, subZone string
}

// buildEndpoints returns an assignment without what gRPC rejects: addresses other than TCP, duplicate addresses and
// localities, and gaps between priorities. Unhealthy endpoints are left out as well, with their weight: gRPC calls none
// of them, and, unlike an Envoy, does not lower the weight of their locality.
func buildEndpoints(k endpointsKey) *envoy.Resource {
	var full endpointv3.ClusterLoadAssignment
	read(k.envoys.Value(), &full)
	slices.SortStableFunc(full.Endpoints, func(a, b *endpointv3.LocalityLbEndpoints) int { return cmp.Compare(a.Priority, b.Priority) })
	a := &endpointv3.ClusterLoadAssignment{ClusterName: full.ClusterName}
	taken, places := map[string]bool{}, map[place]*endpointv3.LocalityLbEndpoints{}
	var priorities []uint32 // priorities that have endpoints
	for _, l := range full.Endpoints {
		// whether the weight is the endpoints' sum, and not a configured share
		own := weigh(l.LbEndpoints) == l.GetLoadBalancingWeight().GetValue()
		list := slices.DeleteFunc(l.LbEndpoints, func(e *endpointv3.LbEndpoint) bool {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			if at == nil || e.HealthStatus != corev3.HealthStatus_UNKNOWN && e.HealthStatus != corev3.HealthStatus_HEALTHY {
				return true
			}
			key := at.String()
			gone := taken[key]
			taken[key] = true
			return gone
		})
		if own {
			l.LoadBalancingWeight = envoy.UInt32(weigh(list))
		}
		if len(list) == 0 || l.GetLoadBalancingWeight().GetValue() == 0 {
			continue
		}
		at := place{l.Priority, l.Locality.GetRegion(), l.Locality.GetZone(), l.Locality.GetSubZone()}
		if first := places[at]; first != nil {
			first.LbEndpoints = append(first.LbEndpoints, list...)
			first.LoadBalancingWeight = envoy.UInt32(first.LoadBalancingWeight.Value + l.LoadBalancingWeight.Value)
			continue
		}
		if !slices.Contains(priorities, l.Priority) {
			priorities = append(priorities, l.Priority)
		}
		if l.Locality == nil {
			l.Locality = &corev3.Locality{}
		}
		l.LbEndpoints, l.Priority = list, uint32(len(priorities)-1)
		places[at] = l
		a.Endpoints = append(a.Endpoints, l)
	}
	return envoy.NewResource(a.ClusterName, a)
}

// weigh returns the sum of the weights of endpoints.
func weigh(list []*endpointv3.LbEndpoint) (sum uint32) {
	for _, e := range list {
		if w := e.LoadBalancingWeight; w != nil {
			sum += w.Value
		} else {
			sum++
		}
	}
	return sum
}
