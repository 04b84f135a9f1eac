package inspect

import (
	"cmp"
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/registry"
)

// explain adds to an answer of a proxy what its resources do not have: why each missing secret is missing, why a
// gateway does not listen, why no authorizer can be asked, and which field sets the TLS of each cluster.
func (h *hops) explain(a *trace.Answer, p *node.Proxy) {
	if reason := h.unheard(a, p); reason != "" {
		a.Reason += ": " + reason
	}
	for _, resource := range a.Waits {
		reason, fix := h.absence(p, resource)
		note := fmt.Sprintf("changes of this listener of %s.%s come into force 15 seconds late, as Envoy waits for a secret that another filter "+
			"chain names: %s; %s", p.Name, p.Namespace, reason, fix)
		if !slices.Contains(h.notes, note) {
			h.notes = append(h.notes, note)
		}
	}
	for _, resource := range a.Secrets() {
		reason, fix := h.absence(p, resource)
		by := h.namedBy(p, resource)
		a.ExplainSecret(resource, reason, h.wheres(by), fix, keysOf(by)...)
	}
	for n := range a.Steps {
		s := &a.Steps[n]
		if !s.Unasked {
			continue
		}
		if reason := h.unasked(p, a.HTTP)[h.key(s.Origin)]; reason != "" {
			s.Details = append(s.Details, reason)
		}
	}
	for n := range a.Targets {
		t := &a.Targets[n]
		if reason := h.unserved(p, t); reason != "" && a.Status != 200 {
			a.Reason += ": " + reason
		}
		rule, field, tls := h.tlsOf(p, t.Cluster)
		if rule == nil {
			continue
		}
		t.TLSBy = h.Where(rule.Key, field)
		if origin := h.world.Origin(rule.Key); origin != nil && origin.Key != rule.Key {
			t.TLSBy = h.Where(origin.Key, "")
		}
		at := slices.IndexFunc(a.Steps, func(s trace.Step) bool { return s.What == "cluster" && s.Name == t.Cluster })
		if at >= 0 && rule.Path() != t.Origin.Path {
			a.Steps[at].Details = append(a.Steps[at].Details, fmt.Sprintf("TLS is %s by %s", tls.GetMode(), t.TLSBy))
		}
	}
}

// unserved returns why a proxy gets none of the endpoints that the service of a cluster has, or "" if there are none or
// that is not the reason.
func (h *hops) unserved(p *node.Proxy, t *trace.Target) string {
	name, ok := names.ParseCluster(t.Cluster)
	if !ok || len(t.Endpoints) > 0 {
		return ""
	}
	scope, _ := h.translator.Visible(h.Snapshot, p)
	s := scope.ServiceByHost(name.Host)
	if s == nil {
		return ""
	}
	ready, callable := false, false
	for _, e := range h.Snapshot.Endpoints(s.Key()).List {
		if e.Health == registry.Healthy {
			ready, callable = true, callable || e.CallableFrom(cmp.Or(p.Cluster, h.Snapshot.Cluster))
		}
	}
	switch {
	case ready && !callable:
		lacking := "export"
		if clusterset.IsHost(s.Host) {
			lacking = "both export and import"
		}
		return fmt.Sprintf("its ready endpoints are in other clusters than %s.%s, which do not %s %s", p.Name, p.Namespace, lacking,
			h.objectOf(s))
	case ready && s.NodeLocal:
		return fmt.Sprintf("%s has internalTrafficPolicy Local, and its ready endpoints are on other nodes than %s.%s", h.objectOf(s), p.Name,
			p.Namespace)
	}
	return ""
}

// unasked says of each policy of a workload why its authorizer cannot be asked, so that what the policy matches is
// denied. It has no entry for a policy whose authorizer can be asked.
func (i *Inspection) unasked(p *node.Proxy, http bool) map[kinds.Key]string {
	said := map[kinds.Key]string{}
	for _, o := range i.translator.Selected(i.Snapshot, p, kinds.AuthorizationPolicy) {
		providers := slices.Collect(i.translator.SelectionWith(i.Snapshot, p, o).Providers.All)
		name := o.Spec.(*securityv1.AuthorizationPolicy).GetProvider().GetName()
		if reason := feature.Unasked(providers, name, http); reason != "" {
			said[o.Key] = "no authorizer can be asked: " + reason
		}
	}
	return said
}

// unaskedAt is unasked for the workload of a line, as notes.
func (i *Inspection) unaskedAt(workload string, http bool) (notes []string) {
	if p := i.sender(workload); p != nil {
		for key, reason := range i.unasked(p.Proxy, http) {
			notes = append(notes, i.Where(key, "spec.provider.name")+": "+reason)
		}
	}
	slices.Sort(notes)
	return notes
}

// tlsOf returns the DestinationRule whose TLS settings are in force for a cluster of a proxy, with their field. The
// rule is nil if no rule has any. Several rules of a host are merged, so that it may not be the first of them.
func (i *Inspection) tlsOf(p *node.Proxy, cluster string) (*kinds.Object, string, *networkingv1alpha3.ClientTLSSettings) {
	name, ok := names.ParseCluster(cluster)
	if !ok {
		return nil, "", nil
	}
	scope, rulesOf := i.translator.Visible(i.Snapshot, p)
	s := scope.ServiceByHost(name.Host)
	if s == nil {
		return nil, "", nil
	}
	all := rulesOf(s)
	rule, _ := traffic.Merge(frozen.ListOf(all...)).Rule(name.Subset)
	tls := rule.Policy(name.Port).TLS
	for _, o := range all {
		spec := o.Spec.(*networkingv1.DestinationRule)
		if field := fieldOfTLS(spec.GetTrafficPolicy(), tls); field != "" {
			return o, "spec.trafficPolicy" + field, tls
		}
		for n, subset := range spec.GetSubsets() {
			if field := fieldOfTLS(subset.GetTrafficPolicy(), tls); field != "" {
				return o, fmt.Sprintf("spec.subsets[%d].trafficPolicy%s", n, field), tls
			}
		}
	}
	return nil, "", nil
}

// fieldOfTLS returns the field of a policy that holds TLS settings, or "".
func fieldOfTLS(t *networkingv1alpha3.TrafficPolicy, tls *networkingv1alpha3.ClientTLSSettings) string {
	switch {
	case tls == nil:
		return ""
	case t.GetTls() == tls:
		return ".tls"
	}
	for n, port := range t.GetPortLevelSettings() {
		if port.GetTls() == tls {
			return fmt.Sprintf(".portLevelSettings[%d].tls", n)
		}
	}
	return ""
}
