package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
)

// ruleOrigin returns the rule of an object that a route is made from, or "" if it is not known. The rules of a
// delegate are the delegate's, and those of a VirtualService that is made from routes of the Gateway API are theirs.
func (i *Inspection) ruleOrigin(from trace.Origin, sent trace.Config) string {
	if from.Route == nil || from.Path == "" {
		return ""
	}
	at := slices.IndexFunc(sent[envoy.RouteType], func(r *envoy.Resource) bool { return r.Name == from.Routes })
	if at < 0 {
		return ""
	}
	rule := ruleOf(i.translator.Rules(sent[envoy.RouteType][at], from.Host), from)
	if rule == nil {
		return ""
	}
	if o := i.world.Origin(rule.Object); o != nil && o.Key != rule.Object {
		return i.madeOf(o.Key, rule.Object, rule.Rule)
	}
	k, n := i.translator.RuleOrigin(i.Snapshot, rule.Object, rule.Rule)
	field, o := fmt.Sprintf("spec.http[%d]", n), i.world.Object(k)
	if o == nil {
		return ""
	}
	if k == rule.Object && rule.Match >= 0 { // a match of a delegate's rule may be merged with several of the root's
		field += fmt.Sprintf(".match[%d]", rule.Match)
	}
	return i.Where(k, field)
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

// madeOf returns the place of the rule of a Gateway API route from which a rule of a derived VirtualService was made.
// Several routes may be merged into one VirtualService: its rule has the name of the route's rule, or else the name
// NAMESPACE.NAME.PLACE of the route.
func (i *Inspection) madeOf(origin, derived kinds.Key, rule int) string {
	var found []string
	ofOrigin := ""
	vs, _ := i.world.Object(derived).Spec.(*networkingv1alpha3.VirtualService)
	if rule < len(vs.GetHttp()) {
		name := vs.GetHttp()[rule].GetName()
		for _, kind := range []*kinds.Kind{kinds.HTTPRoute, kinds.GRPCRoute} {
			for _, o := range i.world.ObjectsOf(kind) {
				for n, own := range namesOfRules(o) {
					if cmp.Or(own, fmt.Sprintf("%s.%s.%d", o.Namespace, o.Name, n)) == name {
						place := i.Where(o.Key, fmt.Sprintf("spec.rules[%d]", n))
						if found = append(found, place); o.Key == origin && own != "" {
							ofOrigin = place // routes of other hosts may use the name as well
						}
					}
				}
			}
		}
	}
	switch {
	case ofOrigin != "":
		return ofOrigin
	case len(found) == 0 || len(found) > 2:
		return i.Where(origin, "")
	}
	return strings.Join(found, " or ") // two routes of one name, of different kinds
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
