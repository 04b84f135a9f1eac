package ingress

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// hostResult is what was made of one host.
type hostResult struct {
	of       []*conversion
	object   derive.Derived
	findings []diag.Diagnostic
}

// mergeHosts returns a VirtualService for each host that the Ingresses name, which are sorted by age.
func (s *stage) mergeHosts(all []*conversion) (objects []derive.Derived, found []diag.Diagnostic) {
	byHost := map[string][]*conversion{}
	for _, c := range all {
		for _, host := range c.hosts {
			byHost[host] = append(byHost[host], c)
		}
	}
	before := s.hosts
	s.hosts = make(map[string]*hostResult, len(byHost))
	taken := map[kinds.Key]bool{}
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		list := byHost[host]
		h, key := before[host], s.keyOf(host, list[0].object, taken)
		if h == nil || !slices.Equal(h.of, list) || h.object.Object.Key != key {
			h = s.merge(host, key, list)
		}
		s.hosts[host] = h
		objects, found = append(objects, h.object), append(found, h.findings...)
	}
	return objects, found
}

// keyOf returns the key of a host's VirtualService. It says the host with dashes for dots, so that two hosts may come
// to the same: then the second has a number.
func (s *stage) keyOf(host string, first *kinds.Object, taken map[kinds.Key]bool) kinds.Key {
	name := first.Name + "-" + suffix
	key := kinds.Key{Kind: kinds.VirtualService, Namespace: first.Namespace, Name: strings.ReplaceAll(host, ".", "-") + "-" + name}
	for ; taken[key]; key.Name += "-2" {
	}
	taken[key] = true
	return key
}

// gatewaysOf returns the Gateways of a host: that of the oldest Ingress, which has its routes over HTTP. If that has no
// TLS for the host, then also the first one that has.
func gatewaysOf(host string, list []*conversion) []string {
	name := func(c *conversion) string { return c.gateway.Namespace + "/" + c.gateway.Name }
	out := []string{name(list[0])}
	for i, c := range list {
		secures := func(s *networkingv1alpha3.Server) bool {
			return s.Tls != nil && slices.ContainsFunc(s.Hosts, func(h string) bool { return names.Covers(h, host) })
		}
		if slices.ContainsFunc(c.gateway.Spec.(*networkingv1.Gateway).Servers, secures) {
			if i > 0 {
				out = append(out, name(c))
			}
			break
		}
	}
	return out
}

// merge makes the VirtualService of one host. Where two Ingresses have the same path, the older one's counts.
func (s *stage) merge(host string, key kinds.Key, list []*conversion) *hostResult {
	h := &hostResult{of: list}
	out := &networkingv1.VirtualService{Hosts: []string{host}}
	type match struct {
		path  string
		exact bool
	}
	owners := map[match]*kinds.Object{}
	var routes []route
	out.Gateways = gatewaysOf(host, list)
	for _, c := range list {
		for _, r := range c.routes[host] {
			m := match{strings.TrimSuffix(r.path, "/"), r.exact}
			if r.exact {
				m.path = r.path
			}
			if first, taken := owners[m]; taken {
				where := "path " + cmp.Or(r.path, "/")
				h.findings = append(h.findings, finding(c.object, diag.Warning, "Ingress", strings.TrimSuffix(r.field, ".backend"), "remove one of the two",
					"it gets no request for host "+host+": "+first.String()+" has the same "+where)...)
				continue
			}
			owners[m] = c.object
			routes = append(routes, r)
		}
	}
	slices.SortStableFunc(routes, func(a, b route) int {
		exact := func(r route) int {
			if r.exact {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(exact(a), exact(b)))
	})
	for _, r := range routes {
		out.Http = append(out.Http, r.http)
	}
	h.object = derive.Derived{
		Object: &kinds.Object{Key: key, Annotations: map[string]string{kinds.AnnotationRouteSemantics: kinds.RoutesOfIngress}, Spec: out},
		Origin: list[0].object.Key,
	}
	return h
}
