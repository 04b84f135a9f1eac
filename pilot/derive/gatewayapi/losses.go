package gatewayapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// loss is a match or a set of connections that a route loses because another route has precedence.
type loss struct {
	to     kinds.Key // key of the other route
	as     bool      // whether the other route is equally old
	port   uint32    // port of a service; 0 for a listener
	reason string    // reason of the condition in the status
	field  string    // field of the losing route
	what   string    // matches or connections that the other route has
	effect string
}

// Reasons of the condition Conflicted of a route. The Gateway API defines the first two for listeners.
const (
	hostnameConflict = string(gatewayv1.ListenerReasonHostnameConflict)
	listenerConflict = string(gatewayv1.ListenerEntryReasonListenerConflict)
	matchConflict    = "MatchConflict"
)

// loses returns the loss of a route's connections to another: those of a host, or all of them if host is empty.
func (x *route) loses(to *route, host, what string) loss {
	l := loss{to: to.object.Key, as: to.object.Created.Equal(x.object.Created), reason: listenerConflict, field: "spec.parentRefs",
		what: what, effect: "this one gets none there"}
	if host != "" {
		l.reason = hostnameConflict
	}
	return l
}

// losesMatch returns the loss of a match that another route has as well.
func (x *route) losesMatch(to *route, r httpRule, what string) loss {
	l := x.loses(to, "", what)
	l.reason, l.effect = matchConflict, "this one gets no requests by it"
	if l.field = fmt.Sprintf("spec.rules[%d]", r.rule); r.match >= 0 {
		l.field += fmt.Sprintf(".matches[%d]", r.match)
	}
	return l
}

func (l loss) String() string {
	rule := "which is older"
	if l.as {
		rule = "which is as old and sorts first"
	}
	return fmt.Sprintf("%s, %s, has %s: %s", l.to, rule, l.what, l.effect)
}

// finding returns the finding about a loss.
func (x *route) finding(l loss) diag.Diagnostic {
	fix := "name another parent, or remove one of the two"
	if l.reason == matchConflict {
		fix = "change one of the two matches, or remove it"
	}
	return finding(x.object, diag.Warning, codeConflict, l.field, fix, l.String())
}

// mostLosses limits how many losses a condition names, and how many findings there are about one field.
const mostLosses = 5

// compareLosses orders losses by their field and by what is lost.
func compareLosses(a, b loss) int {
	return cmp.Or(cmp.Compare(a.field, b.field), cmp.Compare(a.what, b.what))
}

// hostLoss is what a route loses at one of its hosts, by one of its parents.
type hostLoss struct {
	loss
	parent *parent
}

// lostAtHosts returns what a route loses at its hosts, by field and by what is lost.
func (x *route) lostAtHosts() (all []hostLoss) {
	for _, at := range x.hosts {
		for _, l := range at.host.losses(x) {
			all = append(all, hostLoss{l, at.parent})
		}
	}
	slices.SortFunc(all, func(a, b hostLoss) int { return compareLosses(a.loss, b.loss) })
	return all
}

// findingsOf returns findings about what a route loses at its hosts, as lostAtHosts returns it.
func (x *route) findingsOf(lost []hostLoss) (found []diag.Diagnostic) {
	all := slices.Compact(lists.Map(lost, func(l hostLoss) loss { return l.loss })) // the same host of several parents
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(l loss) bool { return l.field != all[0].field })
		if n < 0 {
			n = len(all)
		}
		for _, l := range all[:min(n, mostLosses)] {
			found = append(found, x.finding(l))
		}
		if n > mostLosses {
			more := x.finding(all[mostLosses])
			more.Message = fmt.Sprintf("other routes have the same for %d more hosts or ports: %s", n-mostLosses, all[mostLosses].effect)
			found = append(found, more)
		}
		all = all[n:]
	}
	return found
}

// conflicted returns the condition Conflicted of a parent at which a route loses something. lost is what lostAtHosts
// returns.
func (x *route) conflicted(p *parent, lost []hostLoss) (c condition, is bool) {
	var all []loss
	for _, s := range x.streams {
		for _, cl := range s.claims {
			if s.parent == p && cl.lost != (loss{}) {
				all = append(all, cl.lost)
			}
		}
	}
	for _, l := range lost {
		if sameParent(l.parent, p) && (l.parent.port == 0 || l.parent.port == l.port) {
			all = append(all, l.loss)
		}
	}
	if len(all) == 0 {
		return condition{}, false
	}
	slices.SortFunc(all, compareLosses)
	all = slices.Compact(all) // the same loss at two parts of a parent
	var messages []string
	for i, l := range all {
		if i == mostLosses {
			messages = append(messages, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		text := l.String()
		if l.reason == matchConflict {
			text = l.field + ": " + text
		}
		messages = append(messages, text)
	}
	return condition{metav1.ConditionTrue, all[0].reason, strings.Join(messages, "; ")}, true
}

// sameParent reports whether two parents are one entry in the status of a route. A ServiceEntry has a parent for each
// of its hosts.
func sameParent(a, b *parent) bool { return a == b || a.field == b.field }
