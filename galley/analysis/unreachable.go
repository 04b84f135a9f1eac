package analysis

import (
	"google.golang.org/protobuf/proto"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// unreachable reports routes of a VirtualService that never match, because an earlier route takes all their requests.
func (a *analysis) unreachable() {
	for _, o := range a.routes {
		spec := o.Spec.(*networkingv1.VirtualService)
		http := shadows{analysis: a, object: o, path: "spec.http"}
		for i, h := range spec.Http {
			http.route(i, texts(h.Match, func(m *networkingv1alpha3.HTTPMatchRequest) { m.Name = "" }), h.Delegate != nil)
		}
		tls := shadows{analysis: a, object: o, path: "spec.tls"}
		for i, t := range spec.Tls {
			if len(t.Match) > 0 { // a route without a match is an error already
				tls.route(i, texts(t.Match, nil), false)
			}
		}
		tcp := shadows{analysis: a, object: o, path: "spec.tcp"}
		for i, t := range spec.Tcp {
			tcp.route(i, texts(t.Match, nil), false)
		}
	}
}

// texts returns each match of a route as text, without the fields that clear removes.
func texts[M proto.Message](matches []M, clear func(M)) []string {
	var list []string
	for _, m := range matches {
		if clear != nil {
			m = proto.Clone(m).(M)
			clear(m)
		}
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

// route checks the next route by its matches. A route that delegates takes only the requests that the delegate takes.
func (s *shadows) route(i int, matches []string, delegates bool) {
	field := indexed(s.path, i)
	if s.all {
		s.report(s.object, diag.Warning, codeUnreachableRule, field, "give that one a match, or remove this one",
			"the route is never reached: %s has no match and takes everything", indexed(s.path, s.by))
		return
	}
	if len(matches) == 0 {
		s.all, s.by = !delegates, i
		return
	}
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	var hidden []int
	for j, m := range matches {
		if _, known := s.seen[m]; known {
			hidden = append(hidden, j)
		}
	}
	switch {
	case len(hidden) == len(matches):
		s.report(s.object, diag.Warning, codeUnreachableRule, field, "change its match, or remove it",
			"the route is never reached: %s takes all that it matches", indexed(s.path, s.seen[matches[0]]))
	case len(hidden) > 0:
		for _, j := range hidden {
			s.report(s.object, diag.Info, codeIneffectiveMatch, indexed(field+".match", j), "remove it",
				"the match has no effect: %s has the same", indexed(s.path, s.seen[matches[j]]))
		}
	}
	if delegates {
		return
	}
	for _, m := range matches {
		if _, known := s.seen[m]; !known {
			s.seen[m] = i
		}
	}
}
