package gatewayapi

import (
	"fmt"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/matches"
	"github.com/istiod-lite/istiod-lite/api/servers"
)

// maxComparisons bounds the comparisons of the matches of one route.
const maxComparisons = 1 << 16

// findUnreached reports matches of a HTTPRoute or a GRPCRoute that an earlier match of the same route takes, and
// redirects that lead clients back to the URL that they called.
func (x *route) findUnreached() {
	left := map[int]int{} // matches of each rule that are reached
	type taken struct{ rule, match, by int }
	var all []taken
	paths := map[string]*matches.Index[int]{} // matches by their path, with the index of the rule
	compared := 0
	more := func() bool { compared++; return compared <= maxComparisons }
	for _, r := range rankedRules([]*route{x}, func(x *route) *rules { return &x.rules }) {
		match := r.onlyMatch()
		request := matches.RequestOf(match, x.object.Namespace)
		index := paths[match.GetUri().String()]
		if index == nil {
			index = &matches.Index[int]{}
			paths[match.GetUri().String()] = index
		}
		if by, hidden := index.Containing(request, more); hidden {
			all = append(all, taken{r.rule, r.match, by})
		} else {
			index.Add(request, r.rule)
			left[r.rule]++
		}
	}
	if compared > maxComparisons {
		x.found("spec.rules", diag.Info, "divide it into several routes",
			"it has too many matches of one path: not all of them are compared with each other")
	}
	reported := map[int]bool{}
	for _, t := range all {
		const fix = "give the two different matches, or remove it"
		field := fmt.Sprintf("spec.rules[%d]", t.rule)
		switch by := fmt.Sprintf("spec.rules[%d]", t.by); {
		case left[t.rule] == 0 && !reported[t.rule]:
			x.found(field, diag.Warning, fix, "the rule is never reached: "+by+" takes all that it matches")
		case left[t.rule] > 0 && t.match >= 0:
			x.found(fmt.Sprintf("%s.matches[%d]", field, t.match), diag.Warning, fix, "the match is never reached: "+by+" takes all that it matches")
		}
		reported[t.rule] = true
	}
	x.findLoops(left)
}

// onlyMatch returns the match of a rule, or nil if it takes every request.
func (r httpRule) onlyMatch() *networkingv1alpha3.HTTPMatchRequest {
	if len(r.http.Match) == 0 {
		return nil
	}
	return r.http.Match[0]
}

// findLoops reports rules whose redirect leads to the URL that was called. A rule with other conditions than the path
// may not match the next request of the client.
func (x *route) findLoops(reached map[int]int) {
	looping := map[int]bool{}
	for _, r := range x.http {
		m := r.onlyMatch()
		if r.http.Redirect == nil || reached[r.rule] == 0 || m.GetMethod() != nil || len(m.GetHeaders())+len(m.GetQueryParams()) > 0 {
			continue
		}
		for _, p := range x.parents {
			for _, a := range p.attached {
				l := a.listener
				if !l.bound || looping[r.rule] || !servers.Repeats(r.http.Redirect, servers.UseOf(l.server), l.server.GetPort().GetNumber(), true) {
					continue
				}
				looping[r.rule] = true
				x.found(fmt.Sprintf("spec.rules[%d].filters", r.rule), diag.Warning,
					"attach the redirect to another listener alone, by sectionName in parentRefs, in a route of its own",
					fmt.Sprintf("at listener %s of %s the redirect leads to the URL that was called: clients are redirected without end",
						l.Name, l.owner))
			}
		}
	}
}
