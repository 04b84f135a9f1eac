package traffic

import (
	"cmp"
	"slices"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Rules are the DestinationRules of one host in force for one client, as scope.Index.DestinationRules orders them.
// Several are merged into one: each setting comes from the first rule that has it. In a rule derived from policies of
// the Gateway API, TLS settings replace those of all other rules, and a retry budget gives way to them.
type Rules = frozen.List[*kinds.Object]

// Policy is the traffic policy of one cluster. A nil part is the mesh's default.
type Policy struct {
	LoadBalancer     *networkingv1alpha3.LoadBalancerSettings
	ConnectionPool   *networkingv1alpha3.ConnectionPoolSettings
	OutlierDetection *networkingv1alpha3.OutlierDetection
	TLS              *networkingv1alpha3.ClientTLSSettings
	Tunnel           *networkingv1alpha3.TrafficPolicy_TunnelSettings
	ProxyProtocol    *networkingv1alpha3.TrafficPolicy_ProxyProtocol
	RetryBudget      *networkingv1alpha3.TrafficPolicy_RetryBudget
}

// IsMutual reports whether connections are secured by the mesh's own mutual TLS.
func (p Policy) IsMutual() bool {
	return p.TLS.GetMode() == networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL
}

// Connection is the part of a policy that applies to connections forwarded as bytes. It is comparable.
type Connection struct {
	MaxDuration time.Duration // 0 for no limit
	IdleTimeout time.Duration // 0 for Envoy's default; below 0 for none
	Tunnel      *networkingv1alpha3.TrafficPolicy_TunnelSettings
	SourceHash  bool // whether endpoints are chosen by a hash of the client's address
}

// WithDefaults returns the policy in which groups that no rule sets are the mesh's.
func (p Policy) WithDefaults(m *meshv1alpha1.MeshConfig_DefaultTrafficPolicy) Policy {
	return override(Policy{nil, m.GetConnectionPool(), m.GetOutlierDetection(), nil, nil, nil, nil}, p)
}

// Connection returns the part of the policy that applies to connections forwarded as bytes.
func (p Policy) Connection() Connection {
	tcp := p.ConnectionPool.GetTcp()
	c := Connection{MaxDuration: tcp.GetMaxConnectionDuration().AsDuration(), IdleTimeout: tcp.GetIdleTimeout().AsDuration(),
		Tunnel: p.Tunnel, SourceHash: p.LoadBalancer.GetConsistentHash().GetUseSourceIp()}
	if tcp.GetIdleTimeout() != nil && c.IdleTimeout == 0 {
		c.IdleTimeout = -1
	}
	return c
}

func spec(o *kinds.Object) *networkingv1.DestinationRule {
	return o.Spec.(*networkingv1.DestinationRule)
}

// Merged is several Rules merged into one. It is shared by all clusters of a service, which may have many subsets.
type Merged struct {
	Subsets  []*networkingv1alpha3.Subset // subsets of all rules; the first one of each name
	Repeated []string                     // names of subsets that are defined more than once

	rules   int
	service Rule
	named   map[string]int // indexes of Subsets by name
}

// Merge merges Rules into one.
func Merge(rules Rules) *Merged {
	m := &Merged{service: ServiceRule(rules)}
	for o := range rules.All {
		m.rules++
		for _, s := range spec(o).Subsets {
			if _, ok := m.named[s.Name]; ok {
				m.Repeated = append(m.Repeated, s.Name)
				continue
			}
			lists.Put(&m.named, s.Name, len(m.Subsets))
			m.Subsets = append(m.Subsets, s)
		}
	}
	return m
}

// Limit returns the rules with only the first n subsets.
func (m *Merged) Limit(n int) *Merged {
	if len(m.Subsets) <= n {
		return m
	}
	first := *m
	first.Subsets = m.Subsets[:n]
	return &first
}

// SubsetNames yields the names of the subsets. The first is the empty name, which means the whole service.
func (m *Merged) SubsetNames(yield func(string) bool) {
	if !yield("") {
		return
	}
	for _, s := range m.Subsets {
		if !yield(s.Name) {
			return
		}
	}
}

// Large reports whether merging took so much work that the result is worth caching.
func (m *Merged) Large() bool { return m.rules+len(m.named) > 8 }

// Rule returns the rule of a subset, or of the service itself if the name is empty. It reports whether there is such a
// subset.
func (m *Merged) Rule(subset string) (Rule, bool) {
	r := m.service
	if i, ok := m.named[subset]; ok && subset != "" && i < len(m.Subsets) {
		r.subset = m.Subsets[i]
	}
	return r, subset == "" || r.subset != nil
}

// Rule is the part of Rules that one cluster depends on. It is comparable, and contains nothing that only other
// clusters depend on, so that it can be part of a key.
type Rule struct {
	Object *kinds.Object // first rule, which the cluster's metadata names; nil without rules
	policy *networkingv1alpha3.TrafficPolicy
	subset *networkingv1alpha3.Subset

	backend *networkingv1alpha3.TrafficPolicy // policy derived from policies of the Gateway API, or nil

	// ClientCertificate is the credential presented to backends if such a policy secures connections. It is empty if
	// there is none.
	ClientCertificate string
}

// ServiceRule returns the rule of the service itself.
func ServiceRule(rules Rules) Rule {
	var r Rule
	for o := range rules.All {
		if e, ok := o.Extra.(*kinds.RuleExtra); ok {
			if r.backend == nil {
				r.Object, r.backend, r.ClientCertificate = o, spec(o).TrafficPolicy, e.ClientCertificate
			}
			continue
		}
		r.Object = cmp.Or(r.Object, o)
		if r.policy == nil {
			r.policy = spec(o).TrafficPolicy
		}
	}
	return r
}

// HasCredentials reports whether every proxy with the rule may have the certificates that it names, because the rule
// applies to selected workloads only, or has TLS settings derived from BackendTLSPolicies.
func (r Rule) HasCredentials() bool {
	return r.backend.GetTls() != nil || len(r.backend.GetPortLevelSettings()) > 0 || r.Object != nil && spec(r.Object).WorkloadSelector != nil
}

// PassesThrough reports whether the rule sends connections to the address that was called, at all ports of the service.
// Settings of a port or a subset do not matter.
func (r Rule) PassesThrough() bool { return Passthrough(r.policy.GetLoadBalancer()) }

// Labels returns the labels that the cluster's endpoints must have.
func (r Rule) Labels() map[string]string { return r.subset.GetLabels() }

// Policy returns the policy of a port. Settings of the port replace all of the rule's groups together, also groups that
// a port cannot have, except the tunnel: without it connections would leave the proxy untunnelled. A subset's settings
// then override group by group. If the subset has settings for the port, these replace everything.
func (r Rule) Policy(port uint32) Policy {
	var p Policy
	if r.policy != nil {
		p = atPort(r.policy, port)
	}
	if t := r.subset.GetTrafficPolicy(); t != nil {
		if of := atPort(t, port); hasPort(t, port) {
			of.Tunnel = cmp.Or(of.Tunnel, p.Tunnel)
			p = of // a subset's settings for the port replace everything
		} else {
			p = override(p, of)
		}
	}
	if r.backend != nil {
		p.TLS = cmp.Or(atPort(r.backend, port).TLS, p.TLS)
		if r.policy.GetRetryBudget() == nil { // also where settings of a port replace all others
			p.RetryBudget = cmp.Or(p.RetryBudget, r.backend.RetryBudget)
		}
	}
	return p
}

// WithoutSubset returns the rule of the whole service.
func (r Rule) WithoutSubset() Rule {
	r.subset = nil
	return r
}

// Hashes reports whether a policy balances some requests by a consistent hash.
func Hashes(t *networkingv1alpha3.TrafficPolicy) bool {
	return balances(t, func(lb *networkingv1alpha3.LoadBalancerSettings) bool { return lb.GetConsistentHash() != nil })
}

// atPort returns the policy of a port. If several settings name the port, the first is in force.
func atPort(t *networkingv1alpha3.TrafficPolicy, port uint32) Policy {
	for _, l := range t.PortLevelSettings {
		if l.GetPort().GetNumber() == port {
			return Policy{l.LoadBalancer, l.ConnectionPool, l.OutlierDetection, l.Tls, t.Tunnel, nil, nil}
		}
	}
	return Policy{t.LoadBalancer, t.ConnectionPool, t.OutlierDetection, t.Tls, t.Tunnel, t.ProxyProtocol, t.RetryBudget}
}

func hasPort(t *networkingv1alpha3.TrafficPolicy, port uint32) bool {
	return slices.ContainsFunc(t.PortLevelSettings, func(l *networkingv1alpha3.TrafficPolicy_PortTrafficPolicy) bool {
		return l.GetPort().GetNumber() == port
	})
}

// override returns p with the groups that another policy sets. Like each literal of a Policy it names no fields, so
// that code with a new field does not compile until the field is in all of them.
func override(p, by Policy) Policy {
	return Policy{
		cmp.Or(by.LoadBalancer, p.LoadBalancer), cmp.Or(by.ConnectionPool, p.ConnectionPool), cmp.Or(by.OutlierDetection, p.OutlierDetection),
		cmp.Or(by.TLS, p.TLS), cmp.Or(by.Tunnel, p.Tunnel), cmp.Or(by.ProxyProtocol, p.ProxyProtocol), cmp.Or(by.RetryBudget, p.RetryBudget),
	}
}
