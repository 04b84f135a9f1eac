package patch

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
)

// routeKey is the whole input of a patched route configuration.
type routeKey struct {
	header, head *envoy.Resource
	hosts        *envoy.Set
	content      envoy.Content // content of hosts
}

func buildRoute(k routeKey) *envoy.Resource {
	return envoy.NewRoute(k.header, k.head, k.hosts, k.content)
}

// routeConfiguration returns the patched form of a route configuration, with its patched and its added virtual hosts.
func (t target) routeConfiguration(r *envoy.Resource) *envoy.Resource {
	t.Name, t.Servers = r.Name, t.servers
	header, head := r, r.Head
	if r.Header != nil {
		header = r.Header
	}
	k := routeKey{header: t.patched(header), hosts: r.Hosts}
	if head != nil {
		k.head = t.patched(head)
	}
	hosts := t
	hosts.Type, hosts.list = envoy.VirtualHostType, nil
	version := engine.Derive(t.cache, engine.Key{Type: envoy.VirtualHostType, Part: r.Name, Client: t.cohort.Client.Weak(),
		Patches: t.cohort.Patches.Weak()},
		t.view.Revision, nil, r.Hosts, hosts.prepared())
	k.hosts, k.content = version.Set, version.Content
	if k.head != nil && k.hosts.Len() == 0 { // Envoy 1.37 crashes if a configuration whose virtual hosts came by VHDS becomes empty
		none := envoy.NewHost(r.Name, &routev3.VirtualHost{Name: names.BlockAll, Domains: []string{"*"}})
		k.hosts, k.content = envoy.NewSet([]*envoy.Resource{none}), envoy.Content{}
		k.content.Add(none)
	}
	if k.header == header && k.head == head && k.hosts.Equal(r.Hosts) {
		return r
	}
	if k.hosts.Len() == 0 { // the configuration consists of its header alone
		return k.header
	}
	return t.routes.Get(k)
}

// servers returns the servers of a gateway that have a route configuration.
func (t target) servers(route string) []feature.GatewayServer {
	var list []feature.GatewayServer
	for _, s := range t.view.Gateways.ServersOf(t.cohort.Client.Value(), route) {
		list = append(list, feature.GatewayServer{
			Gateway: s.Gateway.Namespace + "/" + s.Gateway.Name, Port: s.GetPort().GetNumber(), PortName: s.GetPort().GetName(),
		})
	}
	return list
}

// virtualHost returns the patched form of a virtual host.
func (t target) virtualHost(r *envoy.Resource) *envoy.Resource {
	t.Host = envoy.HostOf(strings.TrimPrefix(r.Name, t.Name+"/"))
	return t.patched(r)
}
