package debug

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/registry"
)

// shards are the endpoints of one service in one namespace.
type shards struct {
	Shards          map[string][]endpoint // by registry and cluster, such as Kubernetes/Kubernetes
	ServiceAccounts map[string]struct{}
}

// endpoint is one endpoint with istiod's keys.
type endpoint struct {
	Labels                 map[string]string
	Addresses              []string
	ServicePortName        string
	LegacyClusterPortKey   uint32 // number of the service's port, for a ServiceEntry
	ServiceAccount         string
	Network                string
	Locality               endpointLocality
	EndpointPort           uint32
	LbWeight               uint32
	TLSMode                string
	Namespace              string
	WorkloadName           string
	HostName               string
	SubDomain              string
	HealthStatus           int
	SendUnhealthyEndpoints bool
	NodeName               string
}

type endpointLocality struct{ Label, ClusterID string }

// endpointShardz returns endpoints by host, namespace, and registry with cluster. endpointz is the same page, as in
// istiod.
func (a *API) endpointShardz(url.Values) (any, error) {
	out := map[string]map[string]*shards{}
	s := a.o.World.Snapshot()
	if s == nil {
		return out, nil
	}
	for _, svc := range s.Services() {
		list := s.Endpoints(svc.Key()).List
		if len(list) == 0 {
			continue
		}
		sh := &shards{map[string][]endpoint{}, map[string]struct{}{}}
		for _, e := range list {
			from := provider(svc) + "/" + e.Cluster
			sh.Shards[from] = append(sh.Shards[from], describeEndpoint(svc, e))
			if e.Identity != "" {
				sh.ServiceAccounts[e.Identity] = struct{}{}
			}
		}
		lists.PutIn(out, svc.Host, svc.Namespace, sh)
	}
	return out, nil
}

func describeEndpoint(svc *registry.Service, e *registry.Endpoint) endpoint {
	d := endpoint{
		Labels: e.Labels, Addresses: []string{e.Address}, ServicePortName: e.ServicePort, ServiceAccount: e.Identity, Network: e.Network,
		Locality: endpointLocality{locality(e.Locality), e.Cluster}, EndpointPort: e.Port, LbWeight: e.Weight, TLSMode: e.TLSMode,
		Namespace:    e.Namespace,
		WorkloadName: e.Workload, HostName: e.HostName, SubDomain: e.SubDomain, SendUnhealthyEndpoints: svc.SendDraining, NodeName: e.NodeName,
	}
	d.TLSMode = cmp.Or(d.TLSMode, "disabled")
	if e.HealthKnown || e.Health != registry.Healthy {
		d.HealthStatus = health(e.Health)
	}
	if svc.Provider == registry.External {
		for i := range svc.Ports {
			if svc.Ports[i].Name == e.ServicePort {
				d.LegacyClusterPortKey = svc.Ports[i].Number
			}
		}
	}
	return d
}

// health returns the number of a HealthStatus in Envoy's API.
func health(h registry.Health) int {
	switch h {
	case registry.Unhealthy:
		return 2
	case registry.Draining:
		return 3
	}
	return 1
}

// locality returns region/zone/subzone up to the first unknown part.
func locality(l registry.Locality) string {
	parts := []string{l.Region, l.Zone, l.SubZone}
	for i, part := range parts {
		if part == "" {
			parts = parts[:i]
			break
		}
	}
	return strings.Join(parts, "/")
}
