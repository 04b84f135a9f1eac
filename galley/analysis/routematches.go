package analysis

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// routeMatch is a match that an HTTPRoute has for a host of a parent.
type routeMatch struct{ namespace, parent, host, match string }

// routeMatches reports matches of HTTPRoutes that an earlier HTTPRoute of the namespace has too, for the same host of
// the same parent. The oldest route comes first. Matches of one route are not compared.
func (a *analysis) routeMatches() {
	routes := slices.Clone(a.of(kinds.HTTPRoute))
	slices.SortStableFunc(routes, func(x, y *kinds.Object) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name))
	})
	claims := map[routeMatch]*kinds.Object{}
	compared := comparisons{most: maxComparisons}
	for _, o := range routes {
		compared.begin()
		spec := &o.Spec.(*gatewayv1.HTTPRoute).Spec
		for i, r := range spec.Rules {
			matches := r.Matches
			if len(matches) == 0 {
				matches = []gatewayv1.HTTPRouteMatch{{}}
			}
			for j, m := range matches {
				field := indexed(indexed("spec.rules", i)+".matches", j)
				if len(r.Matches) == 0 {
					field = indexed("spec.rules", i)
				}
				a.claimMatch(o, spec, field, matchText(m), claims, &compared)
			}
		}
		if compared.refused {
			a.report(o, diag.Info, codeLimit, "spec.rules", "divide the route",
				"its parents, times its hostnames and its matches, are too many: not all of them are compared with those of other routes")
		}
	}
}

// claimMatch claims a match for all hosts and parents of a route, and reports the first that another route has.
func (a *analysis) claimMatch(o *kinds.Object, spec *gatewayv1.HTTPRouteSpec, field, match string,
	claims map[routeMatch]*kinds.Object, compared *comparisons) {
	hosts := spec.Hostnames
	if len(hosts) == 0 {
		hosts = []gatewayv1.Hostname{"*"}
	}
	reported := false
	for _, p := range spec.ParentRefs {
		parent := parentText(p)
		for _, host := range hosts {
			if !compared.more() {
				return
			}
			key := routeMatch{o.Namespace, parent, string(host), match}
			first := claims[key]
			if first == nil {
				claims[key] = o
			} else if first != o && !reported {
				reported = true
				a.report(o, diag.Warning, codeUnreachable, field, "let the matches differ, or merge the two routes",
					"%s has the same match for host %s of %s, and comes first (%s): its requests go there, and never to this rule",
					first, host, p.Name, olderOr(first, o, "both are of the same age, and it sorts first by name"))
			}
		}
	}
}

// parentText returns a key of a parent of routes of one namespace.
func parentText(p gatewayv1.ParentReference) string {
	kind, namespace, section, port := "Gateway", "", "", ""
	if p.Kind != nil {
		kind = string(*p.Kind)
	}
	if p.Namespace != nil {
		namespace = string(*p.Namespace)
	}
	if p.SectionName != nil {
		section = string(*p.SectionName)
	}
	if p.Port != nil {
		port = strconv.Itoa(int(*p.Port))
	}
	return kind + " " + namespace + " " + string(p.Name) + " " + section + " " + port
}

// matchText returns a key that is the same for matches of the same requests. The order of headers and parameters does
// not matter.
func matchText(m gatewayv1.HTTPRouteMatch) string {
	kind, value := gatewayv1.PathMatchPathPrefix, "/"
	if m.Path != nil {
		if m.Path.Type != nil {
			kind = *m.Path.Type
		}
		if m.Path.Value != nil {
			value = *m.Path.Value
		}
	}
	m.Path = &gatewayv1.HTTPPathMatch{Type: &kind, Value: &value}
	m.Headers, m.QueryParams = slices.Clone(m.Headers), slices.Clone(m.QueryParams)
	slices.SortFunc(m.Headers, func(x, y gatewayv1.HTTPHeaderMatch) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(m.QueryParams, func(x, y gatewayv1.HTTPQueryParamMatch) int { return cmp.Compare(x.Name, y.Name) })
	text, err := json.Marshal(m)
	if err != nil { // a match holds only texts
		return ""
	}
	return string(text)
}
