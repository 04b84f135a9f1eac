package destinationrule

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Rules are the DestinationRules of one host in force for one client, as scope.Index.Rules orders them. Several are read as one: the first that says
// something says it for all.
type Rules = frozen.List[*kinds.Object]

// Policy is the traffic policy of one cluster. A nil part is the mesh's default.
type Policy struct {
	LoadBalancer     *networkingv1alpha3.LoadBalancerSettings
	ConnectionPool   *networkingv1alpha3.ConnectionPoolSettings
	OutlierDetection *networkingv1alpha3.OutlierDetection
	TLS              *networkingv1alpha3.ClientTLSSettings
	Tunnel           *networkingv1alpha3.TrafficPolicy_TunnelSettings
	ProxyProtocol    *networkingv1alpha3.TrafficPolicy_ProxyProtocol
}

func spec(o *kinds.Object) *networkingv1.DestinationRule {
	return o.Spec.(*networkingv1.DestinationRule)
}

// Object is the rule that a cluster's metadata names: the first; nil without rules.
func Object(rules Rules) *kinds.Object {
	for o := range rules.All {
		return o
	}
	return nil
}

// Subsets gives the subsets of all rules; of several with one name the first.
func Subsets(rules Rules) []*networkingv1alpha3.Subset {
	var all []*networkingv1alpha3.Subset
	seen := map[string]bool{}
	for o := range rules.All {
		for _, s := range spec(o).Subsets {
			if !seen[s.Name] {
				seen[s.Name] = true
				all = append(all, s)
			}
		}
	}
	return all
}

// Repeated gives the names of subsets that a second rule of the host defines again.
func Repeated(rules Rules) []string {
	var names []string
	seen := map[string]bool{}
	for o := range rules.All {
		for _, s := range spec(o).Subsets {
			if seen[s.Name] {
				names = append(names, s.Name)
			}
			seen[s.Name] = true
		}
	}
	return names
}

// Subset gives the subset of that name, or nil.
func Subset(rules Rules, name string) *networkingv1alpha3.Subset {
	for _, s := range Subsets(rules) {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Resolve gives the policy of a port and subset ("" for the service itself). A setting of the port replaces the rule's four groups together; a subset's then
// override group by group, its own port's settings last.
func Resolve(rules Rules, port uint32, subset string) Policy {
	var p Policy
	for o := range rules.All {
		if t := spec(o).TrafficPolicy; t != nil {
			p = atPort(t, port)
			break
		}
	}
	if s := Subset(rules, subset); subset != "" && s.GetTrafficPolicy() != nil {
		if of := atPort(s.TrafficPolicy, port); hasPort(s.TrafficPolicy, port) {
			p = of // a subset's word on a port replaces everything
		} else {
			p = override(p, of)
		}
	}
	return p
}

func atPort(t *networkingv1alpha3.TrafficPolicy, port uint32) Policy {
	p := Policy{t.LoadBalancer, t.ConnectionPool, t.OutlierDetection, t.Tls, t.Tunnel, t.ProxyProtocol}
	for _, l := range t.PortLevelSettings {
		if l.GetPort().GetNumber() == port {
			p.LoadBalancer, p.ConnectionPool, p.OutlierDetection, p.TLS = l.LoadBalancer, l.ConnectionPool, l.OutlierDetection, l.Tls
		}
	}
	return p
}

func hasPort(t *networkingv1alpha3.TrafficPolicy, port uint32) bool {
	return slices.ContainsFunc(t.PortLevelSettings, func(l *networkingv1alpha3.TrafficPolicy_PortTrafficPolicy) bool {
		return l.GetPort().GetNumber() == port
	})
}

func override(p, by Policy) Policy {
	if by.LoadBalancer != nil {
		p.LoadBalancer = by.LoadBalancer
	}
	if by.ConnectionPool != nil {
		p.ConnectionPool = by.ConnectionPool
	}
	if by.OutlierDetection != nil {
		p.OutlierDetection = by.OutlierDetection
	}
	if by.TLS != nil {
		p.TLS = by.TLS
	}
	if by.Tunnel != nil {
		p.Tunnel = by.Tunnel
	}
	if by.ProxyProtocol != nil {
		p.ProxyProtocol = by.ProxyProtocol
	}
	return p
}
