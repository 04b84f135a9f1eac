package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// assumption is something about the request of a line that the line does not have, and that may explain it.
type assumption struct {
	note  string
	query Query
}

// assumptions returns what may explain a line that contradicts the configuration. The proxy writes the line at the end
// of the request, with the host that its route gave it, and without the client's certificate.
func (i *Inspection) assumptions(l *Log, q Query) (list []assumption) {
	if l.Side == sideGateway && l.ServerName != "" && !q.Certificate {
		with := q
		with.Certificate = true
		list = append(list, assumption{"the client has shown a certificate: without one, the answer would be another", with})
	}
	to, _ := splitAuthority(l.Authority)
	from := i.sender(q.Source)
	if l.Side == sideInbound && l.ofMesh() && from != nil {
		if s := i.serviceOf(to, from); s != nil && s.Host != q.Host {
			for _, p := range s.Ports {
				with := q
				with.Host, with.Port = to, p.Number
				note := fmt.Sprintf("the request was for %s:%d, from where a route leads to %s:%d", to, p.Number, q.Host, q.Port)
				list = append(list, assumption{note, with})
			}
		}
	}
	if l.Side == sideInbound || to == "" || from == nil || !from.proxied {
		return list
	}
	h := hops{Inspection: i, query: q}
	sent, err := h.sentTo(from.Proxy, "")
	if err != nil {
		return list
	}
	for _, host := range hostsRewrittenTo(sent[envoy.RouteType], sent[envoy.VirtualHostType], to) {
		with := q
		if with.Host == to {
			with.Host = host
		}
		with.Headers = maps.Clone(q.Headers)
		with.Headers["host"] = host
		list = append(list, assumption{"the request was for " + host + ": the line has the host " + to + ", which a route writes", with})
	}
	return list
}

// hostsRewrittenTo returns the hosts of virtual hosts that have a route which gives requests a host.
func hostsRewrittenTo(routes, virtualHosts []*envoy.Resource, to string) (list []string) {
	configurations, err := envoy.Decode[routev3.RouteConfiguration](routes)
	if err != nil {
		return nil
	}
	hosts, err := envoy.Decode[routev3.VirtualHost](virtualHosts)
	if err != nil {
		return nil
	}
	for _, c := range configurations {
		hosts = append(hosts, c.GetVirtualHosts()...)
	}
	for _, h := range hosts {
		if !slices.ContainsFunc(h.GetRoutes(), func(r *routev3.Route) bool { return rewritesTo(r.GetRoute(), to) }) {
			continue
		}
		for _, domain := range h.GetDomains() {
			host, _ := splitAuthority(domain)
			list = append(list, strings.Replace(host, "*", "any", 1))
		}
	}
	return lists.Unique(list)
}

// rewritesTo reports whether a route gives requests a host, for one of its clusters at least.
func rewritesTo(r *routev3.RouteAction, host string) bool {
	return r.GetHostRewriteLiteral() == host || slices.ContainsFunc(r.GetWeightedClusters().GetClusters(),
		func(w *routev3.WeightedCluster_ClusterWeight) bool { return w.GetHostRewriteLiteral() == host })
}
