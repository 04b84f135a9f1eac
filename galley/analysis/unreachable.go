package analysis

import (
	"google.golang.org/protobuf/proto"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/matches"
)

// unreachable reports routes of a VirtualService that never match, because an earlier route takes all their requests.
func (a *analysis) unreachable() {
	for _, o := range a.judged {
		spec := o.Spec.(*networkingv1.VirtualService)
		a.unreachableHTTP(o)
		tls := shadows{analysis: a, object: o, path: "spec.tls"}
		for i, t := range spec.Tls {
			if len(t.Match) > 0 { // a route without a match is an error already
				tls.route(i, texts(t.Match))
			}
		}
		tcp := shadows{analysis: a, object: o, path: "spec.tcp"}
		for i, t := range spec.Tcp {
			tcp.route(i, texts(t.Match))
		}
	}
}

// unreachableHTTP compares the matches of each HTTP rule with those of the rules before it.
func (a *analysis) unreachableHTTP(o *kinds.Object) {
	if byIngress(o) {
		return
	}
	var before matches.Index[int]
	compared := comparisons{most: maxComparisons}
	compared.begin()
	http := shadows{analysis: a, object: o, path: "spec.http"}
	for i, h := range o.Spec.(*networkingv1.VirtualService).Http {
		if http.all {
			http.behindAll(i)
			continue
		}
		requests := requestsOf(h, o.Namespace)
		hidden := map[int]int{} // rules that take all of a match
		for j, r := range requests {
			if by, found := before.Containing(r, compared.more); found {
				hidden[j] = by
			}
		}
		http.hidden(i, len(requests), hidden)
		if h.Delegate != nil {
			continue // it takes only the requests that the delegate takes
		}
		http.all, http.by = len(h.Match) == 0, i
		for j, r := range requests {
			if _, found := hidden[j]; !found {
				before.Add(r, i)
			}
		}
	}
	if compared.refused {
		a.report(o, diag.Info, codeLimit, "spec.http", "divide it among delegates",
			"it has too many matches: not all of them are compared with each other")
	}
}

// byIngress reports whether the prefixes of a VirtualService match whole segments of paths, as those of an Ingress do.
func byIngress(o *kinds.Object) bool {
	return o.Annotations[kinds.AnnotationRouteSemantics] == kinds.RoutesOfIngress
}

// requestsOf returns the requests of each match of a rule of a VirtualService in a namespace, or of all requests.
func requestsOf(h *networkingv1alpha3.HTTPRoute, namespace string) []*matches.Request {
	if len(h.Match) == 0 {
		return []*matches.Request{matches.RequestOf(nil, namespace)}
	}
	return lists.Map(h.Match, func(m *networkingv1alpha3.HTTPMatchRequest) *matches.Request { return matches.RequestOf(m, namespace) })
}

// texts returns each match of a route as text.
func texts[M proto.Message](matches []M) []string {
	var list []string
	for _, m := range matches {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return nil
		}
		list = append(list, string(text))
	}
	return list
}

// shadows checks the routes of one protocol in order.
type shadows struct {
	*analysis
	object *kinds.Object
	path   string

	all  bool // an earlier route takes everything
	by   int  // index of that route
	seen map[string]int
}

// behindAll reports a route behind one that takes everything.
func (s *shadows) behindAll(i int) {
	s.report(s.object, diag.Warning, codeUnreachableRule, indexed(s.path, i), "give that one a match, or remove this one",
		"the route is never reached: %s has no match and takes everything", indexed(s.path, s.by))
}

// route checks the next route of connections by its matches.
func (s *shadows) route(i int, matches []string) {
	if s.all {
		s.behindAll(i)
		return
	}
	if len(matches) == 0 {
		s.all, s.by = true, i
		return
	}
	hidden := map[int]int{}
	for j, m := range matches {
		if by, known := s.seen[m]; known {
			hidden[j] = by
		}
	}
	s.hidden(i, len(matches), hidden)
	for j, m := range matches {
		if _, known := hidden[j]; !known {
			lists.Put(&s.seen, m, i)
		}
	}
}

// hidden reports a route of which earlier routes take some matches, or all. by has the index of such a route by the
// index of the match.
func (s *shadows) hidden(i, matches int, by map[int]int) {
	field := indexed(s.path, i)
	if len(by) == matches {
		s.report(s.object, diag.Warning, codeUnreachableRule, field, "move it before that one, change its match, or remove it",
			"the route is never reached: %s takes all that it matches", indexed(s.path, by[0]))
		return
	}
	for j := range matches {
		if first, hidden := by[j]; hidden {
			s.report(s.object, diag.Info, codeIneffectiveMatch, indexed(field+".match", j), "remove it, or move the route before that one",
				"the match has no effect: %s takes all that it matches", indexed(s.path, first))
		}
	}
}
