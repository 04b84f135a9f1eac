package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	ingressv1 "k8s.io/api/networking/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// hostResult is the result for one host.
type hostResult struct {
	of       []*conversion
	secure   *conversion // Ingress whose certificate clients of the host see; nil if none has TLS for it
	object   derive.Derived
	findings []diag.Diagnostic
}

// mergeHosts returns a VirtualService for each host that the Ingresses name. The Ingresses are sorted by age.
func (s *stage) mergeHosts(all []*conversion) (objects []derive.Derived, found []diag.Diagnostic) {
	byHost := map[string][]*conversion{}
	for _, c := range all {
		for _, host := range c.hosts {
			byHost[host] = append(byHost[host], c)
		}
	}
	secured, found := securedHosts(all)
	before := s.hosts
	s.hosts = make(map[string]*hostResult, len(byHost))
	taken := map[kinds.Key]bool{}
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		list := byHost[host]
		h, key, secure := before[host], s.keyOf(host, list[0].object, taken), secureOf(host, secured, list)
		if h == nil || !slices.Equal(h.of, list) || h.object.Object.Key != key || h.secure != secure {
			h = s.merge(host, key, list, secure)
		}
		s.hosts[host] = h
		objects, found = append(objects, h.object), append(found, h.findings...)
	}
	return objects, found
}

// keyOf returns the key of a host's VirtualService. Its name contains the host with dashes for dots. If two hosts give
// the same name, the second one gets a number.
func (s *stage) keyOf(host string, first *kinds.Object, taken map[kinds.Key]bool) kinds.Key {
	name := first.Name + "-" + suffix
	key := kinds.Key{Kind: kinds.VirtualService, Namespace: first.Namespace, Name: strings.ReplaceAll(host, ".", "-") + "-" + name}
	for ; taken[key]; key.Name += "-2" {
	}
	taken[key] = true
	return key
}

// securedHosts returns, for each host in a tls section, the oldest Ingress that has it there. The servers of other
// Ingresses for the host are not used, and a finding says so if they name another Secret.
func securedHosts(all []*conversion) (secured map[string]*conversion, found []diag.Diagnostic) {
	secured, secrets := map[string]*conversion{}, map[string]string{}
	for _, c := range all {
		for i, t := range spec(c.object).TLS {
			if t.SecretName == "" {
				continue
			}
			for _, host := range tlsHosts(t) {
				if secured[host] == nil {
					secured[host], secrets[host] = c, t.SecretName
				} else if secrets[host] != t.SecretName {
					found = append(found, finding(c.object, diag.Warning, "Ingress", fmt.Sprintf("spec.tls[%d]", i), "remove one of the two",
						"clients of host "+host+" do not see its certificate: "+secured[host].object.String()+" has another one for that host")...)
				}
			}
		}
	}
	return secured, found
}

// secureOf returns the Ingress whose certificate clients of a host see, if one of the Ingresses that name the host has
// TLS for it. The most specific host in tls sections is used.
func secureOf(host string, secured map[string]*conversion, list []*conversion) *conversion {
	secures := func(c *conversion) bool {
		return slices.ContainsFunc(spec(c.object).TLS, func(t ingressv1.IngressTLS) bool {
			return t.SecretName != "" && slices.ContainsFunc(tlsHosts(t), func(h string) bool { return names.Covers(h, host) })
		})
	}
	if !slices.ContainsFunc(list, secures) {
		return nil
	}
	for name := host; ; {
		if c := secured[name]; c != nil {
			return c
		}
		_, parent, below := strings.Cut(strings.TrimPrefix(name, "*."), ".")
		if !below {
			return secured["*"]
		}
		name = "*." + parent
	}
}

// merge makes the VirtualService of one host. If two Ingresses have the same path, the older one takes precedence.
// Default backends come after all paths. The VirtualService is bound to the Gateway of the oldest Ingress, which has
// its routes over HTTP, and to the Gateway with its certificate.
func (s *stage) merge(host string, key kinds.Key, list []*conversion, secure *conversion) *hostResult {
	h := &hostResult{of: list, secure: secure}
	out := &networkingv1.VirtualService{Hosts: []string{host}}
	type match struct {
		path  string
		exact bool
	}
	owners := map[match]*kinds.Object{}
	var routes []route
	out.Gateways = []string{list[0].gateway.Namespace + "/" + list[0].gateway.Name}
	if secure != nil && secure != list[0] {
		out.Gateways = append(out.Gateways, secure.gateway.Namespace+"/"+secure.gateway.Name)
	}
	add := func(c *conversion, rest bool) {
		for _, r := range c.routes[host] {
			if r.rest != rest {
				continue
			}
			m := match{strings.TrimSuffix(r.path, "/"), r.exact}
			if r.exact {
				m.path = r.path
			}
			if first, taken := owners[m]; taken {
				where := "path " + cmp.Or(r.path, "/")
				h.findings = append(h.findings, finding(c.object, diag.Warning, "Ingress", strings.TrimSuffix(r.field, ".backend"),
					"remove one of the two",
					"it gets no request for host "+host+": "+first.String()+" has the same "+where)...)
				continue
			}
			owners[m] = c.object
			routes = append(routes, r)
		}
	}
	for _, c := range list {
		add(c, false)
	}
	for _, c := range list {
		add(c, true)
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
		Object: &kinds.Object{Key: key, Created: list[0].object.Created,
			Annotations: map[string]string{kinds.AnnotationRouteSemantics: kinds.RoutesOfIngress}, Spec: out},
		Origin: list[0].object.Key,
	}
	return h
}
