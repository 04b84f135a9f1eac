package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
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

// placesOf returns the places of rules, as one text.
func (i *Inspection) placesOf(rules []place) string {
	return strings.Join(lists.Map(rules, func(p place) string { return i.Where(p.Key, p.field) }), " or ")
}

// replaced returns the error in a rule because of which a route answers instead of it, or "" if there is none.
func (i *Inspection) replaced(s *trace.Step, rules []place) string {
	if s.Origin.Route.GetDirectResponse() == nil {
		return ""
	}
	for _, p := range rules {
		rule, _, _ := strings.Cut(p.field, ".match[")
		for _, d := range i.problems() {
			if d.Object == p.String() && d.Severity == diag.Error && strings.HasPrefix(d.Field+".", rule+".") {
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
// NAMESPACE.NAME.PLACE of the route. Two routes of different kinds may have the same name.
func (i *Inspection) madeOf(origin, derived kinds.Key, rule int) (found []place) {
	vs, _ := i.world.Object(derived).Spec.(*networkingv1alpha3.VirtualService)
	if rule < len(vs.GetHttp()) {
		name := vs.GetHttp()[rule].GetName()
		for _, kind := range []*kinds.Kind{kinds.HTTPRoute, kinds.GRPCRoute} {
			for _, o := range i.world.ObjectsOf(kind) {
				for n, own := range namesOfRules(o) {
					if cmp.Or(own, fmt.Sprintf("%s.%s.%d", o.Namespace, o.Name, n)) == name {
						made := place{o.Key, fmt.Sprintf("spec.rules[%d]", n)}
						if o.Key == origin && own != "" {
							return []place{made} // routes of other hosts may use the name as well
						}
						found = append(found, made)
					}
				}
			}
		}
	}
	if len(found) == 0 || len(found) > 2 {
		return []place{{origin, ""}}
	}
	return found
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
