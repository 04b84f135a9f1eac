package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
)

// place is a field of an object.
type place struct {
	kinds.Key
	field string
}

// wheres returns the positions of places, as one text.
func (i *Inspection) wheres(rules []place) string {
	return strings.Join(lists.Map(rules, func(p place) string { return i.Where(p.Key, p.field) }), " or ")
}

// faultIn returns what is wrong with a rule, so that a proxy answers instead of it, or "" if nothing is.
func (i *Inspection) faultIn(rules []place) string {
	for _, p := range rules {
		rule, _, _ := strings.Cut(p.field, ".match[")
		for _, d := range i.problems() { // the status of a route of the Gateway API is a finding of its kind's name
			if d.Object == p.String() && (d.Severity == diag.Error || d.Code == p.Kind.Name) && strings.HasPrefix(d.Field+".", rule+".") {
				return i.Where(p.Key, d.Field) + ": " + d.Message
			}
		}
	}
	return ""
}

// rulesOf returns the rule of an object that a route is made from, or none if it is not known. The rules of a delegate
// are the delegate's, and those of a VirtualService that is made from routes of the Gateway API are theirs: then there
// may be two.
func (i *Inspection) rulesOf(from trace.Origin, sent trace.Config) []place {
	if from.Route == nil || from.Path == "" {
		return nil
	}
	at := slices.IndexFunc(sent[envoy.RouteType], func(r *envoy.Resource) bool { return r.Name == from.Routes })
	if at < 0 {
		return nil
	}
	rule := ruleOf(i.translator.Rules(sent[envoy.RouteType][at], from.Host), from)
	if rule == nil {
		return nil
	}
	if o := i.world.Origin(rule.Object); o != nil && o.Key != rule.Object {
		return i.madeOf(o.Key, rule.Object, rule.Rule)
	}
	k, n := i.translator.RuleOrigin(i.Snapshot, rule.Object, rule.Rule)
	field, o := fmt.Sprintf("spec.http[%d]", n), i.world.Object(k)
	if o == nil {
		return nil
	}
	if k == rule.Object && rule.Match >= 0 { // a match of a delegate's rule may be merged with several of the root's
		field += fmt.Sprintf(".match[%d]", rule.Match)
	}
	return []place{{k, field}}
}

// ruleOf returns the rule of a route, or nil. Patches may have added, moved or changed routes.
func ruleOf(made []rds.Made, from trace.Origin) *feature.Rule {
	is := func(r rds.Made) bool {
		return r.GetName() == from.Route.GetName() && proto.Equal(r.GetMatch(), from.Route.GetMatch())
	}
	if from.Place < len(made) && is(made[from.Place]) {
		return &made[from.Place].Rule
	}
	if at := slices.IndexFunc(made, is); at >= 0 {
		return &made[at].Rule
	}
	return nil
}

// madeOf returns the rule of a Gateway API route from which a rule of a derived VirtualService was made. Several routes
// may be merged into one VirtualService: its rule has the name of the route's rule, or else the name
// NAMESPACE.NAME.PLACE of the route. Two routes of different kinds may share a name; the one with the destinations of
// the rule is meant.
func (i *Inspection) madeOf(origin, derived kinds.Key, rule int) []place {
	var found, fitting []place
	vs, _ := i.world.Object(derived).Spec.(*networkingv1alpha3.VirtualService)
	if rule < len(vs.GetHttp()) {
		name := vs.GetHttp()[rule].GetName()
		for _, kind := range []*kinds.Kind{kinds.HTTPRoute, kinds.GRPCRoute} {
			for _, o := range i.objectsOf(kind) {
				for n, own := range namesOfRules(o) {
					if cmp.Or(own, fmt.Sprintf("%s.%s.%d", o.Namespace, o.Name, n)) == name {
						made := place{o.Key, fmt.Sprintf("spec.rules[%d]", n)}
						if o.Key == origin && own != "" {
							return []place{made} // routes of other hosts may use the name as well
						}
						if found = append(found, made); leadsTo(o, n, vs.GetHttp()[rule].GetRoute()) {
							fitting = append(fitting, made)
						}
					}
				}
			}
		}
	}
	switch {
	case len(fitting) == 1:
		return fitting
	case len(found) == 0 || len(found) > 2:
		return []place{{origin, ""}}
	}
	return found
}

// chainOrigin returns the rule of tls or tcp of a VirtualService that a filter chain is made from, or nil if it is not
// known: the one rule with the chain's server names and clusters.
func (i *Inspection) chainOrigin(from trace.Origin) []place {
	k := i.key(from)
	if from.Chain == nil || k.Kind != kinds.VirtualService {
		return nil
	}
	if o := i.world.Origin(k); o != nil && o.Key != k {
		return nil
	}
	spec, ok := i.world.Object(k).Spec.(*networkingv1.VirtualService)
	if !ok {
		return nil
	}
	clusters, servers := from.Clusters(), from.Chain.GetFilterChainMatch().GetServerNames()
	leads := func(to []*networkingv1alpha3.RouteDestination) bool {
		return len(to) > 0 && !slices.ContainsFunc(clusters, func(cluster string) bool {
			name, _ := names.ParseCluster(cluster)
			return !slices.ContainsFunc(to, func(d *networkingv1alpha3.RouteDestination) bool {
				x := d.GetDestination()
				return names.FQDN(strings.ToLower(x.GetHost()), k.Namespace, i.o.Domain) == name.Host && x.GetSubset() == name.Subset &&
					(x.GetPort() == nil || x.GetPort().GetNumber() == name.Port)
			})
		})
	}
	var found []string
	for n, rule := range spec.GetTls() {
		for m, match := range rule.GetMatch() {
			if leads(rule.GetRoute()) && slices.Equal(sorted(match.GetSniHosts()), sorted(servers)) {
				found = append(found, fmt.Sprintf("spec.tls[%d].match[%d]", n, m))
			}
		}
	}
	for n, rule := range spec.GetTcp() {
		if leads(rule.GetRoute()) && len(servers) == 0 {
			found = append(found, fmt.Sprintf("spec.tcp[%d]", n))
		}
	}
	if len(found) != 1 {
		return nil
	}
	return []place{{k, found[0]}}
}

// sorted returns names in lower case and in order.
func sorted(list []string) []string {
	return slices.Sorted(slices.Values(lists.Map(list, strings.ToLower)))
}

// leadsTo reports whether the backends of a rule are the Services of some destinations.
func leadsTo(o *kinds.Object, rule int, to []*networkingv1alpha3.HTTPRouteDestination) bool {
	var backends []gatewayv1.BackendRef
	switch r := o.Spec.(type) {
	case *gatewayv1.HTTPRoute:
		backends = lists.Map(r.Spec.Rules[rule].BackendRefs, func(b gatewayv1.HTTPBackendRef) gatewayv1.BackendRef { return b.BackendRef })
	case *gatewayv1.GRPCRoute:
		backends = lists.Map(r.Spec.Rules[rule].BackendRefs, func(b gatewayv1.GRPCBackendRef) gatewayv1.BackendRef { return b.BackendRef })
	}
	return !slices.ContainsFunc(to, func(d *networkingv1alpha3.HTTPRouteDestination) bool {
		return !slices.ContainsFunc(backends, func(b gatewayv1.BackendRef) bool {
			namespace := o.Namespace
			if b.Namespace != nil {
				namespace = string(*b.Namespace)
			}
			return strings.HasPrefix(d.GetDestination().GetHost()+".", string(b.Name)+"."+namespace+".")
		})
	})
}

// namesOfRules returns the names of the rules of a HTTPRoute or a GRPCRoute. A rule without a name has an empty one.
func namesOfRules(o *kinds.Object) []string {
	text := func(name *gatewayv1.SectionName) string {
		if name == nil {
			return ""
		}
		return string(*name)
	}
	switch r := o.Spec.(type) {
	case *gatewayv1.HTTPRoute:
		return lists.Map(r.Spec.Rules, func(r gatewayv1.HTTPRouteRule) string { return text(r.Name) })
	case *gatewayv1.GRPCRoute:
		return lists.Map(r.Spec.Rules, func(r gatewayv1.GRPCRouteRule) string { return text(r.Name) })
	}
	return nil
}
