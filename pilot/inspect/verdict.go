package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// dependencies returns what the answer depends on and what may be the cause of a line.
func dependencies(l *Log, w *Way) (list []string) {
	add := func(of string, depends []trace.Dependency) {
		for _, d := range depends {
			if d.Status != 0 && d.Status == l.Code || d.Cause != accesslog.Unknown && slices.Contains(l.Causes(), d.Cause) {
				list = append(list, of+d.Text)
			}
		}
	}
	var arrivals func([]Arrival)
	arrivals = func(all []Arrival) {
		for _, a := range all {
			if a.Answer == nil {
				continue
			}
			add(a.Pod+": ", a.Answer.Depends)
			if end := outcomeOf(a.Answer); !end.reaches() && w.mayReach() {
				add("", []trace.Dependency{{Text: fmt.Sprintf("Envoy may choose %s, where %s", a.Pod, end), Status: a.Answer.Status}})
			}
			arrivals(a.Next)
		}
	}
	add("", w.Outbound.Depends)
	arrivals(w.Arrivals)
	return lists.Unique(list)
}

// end is the part of an answer with which a line is compared.
type end struct {
	outcome
	causes []accesslog.Cause // what the access log of this proxy would have; empty if it is not known
	rules  []trace.Origin    // rules of AuthorizationPolicies that refuse the request
}

// judge says whether the configuration explains a line.
func (i *Inspection) judge(l *Log, w *Way) {
	now, at := endOf(w), w.Outbound
	if l.Kind != accesslog.Line { // what a client saw, which any proxy on the way may have answered
		there := refusals(w.Arrivals)
		now.causes, now.rules = append(now.causes, there.causes...), append(now.rules, there.rules...)
	}
	if l.Side == sideInbound {
		a := arrivalAt(w.Arrivals, l.Of)
		if a == nil && l.gone != "" {
			if a = firstProxied(w.Arrivals); a != nil {
				l.Of = a.Pod
				l.note("the Pod of the line, %s, is not there any longer: %s of the same service is taken", l.gone, l.Of)
			}
		}
		if a == nil && l.Kind == accesslog.Line && l.Method == "" {
			l.Verdict = "The line has no request, so that the way to " + cmp.Or(l.Of, "the workload") + " is not known. " + firstSays(l)
			return
		} else if a == nil {
			l.note("the line is of %s, and the request does not come there by the configuration as it is now", cmp.Or(l.Of, "a workload"))
		} else if a.Answer != nil {
			now, at = endOfAnswer(a.Answer), a.Answer
		}
	}
	policy := i.policyOf(l)
	causes, first := l.Causes(), accesslog.Unknown // the most specific cause
	if len(causes) > 0 {
		first = causes[0]
	}
	line := cmp.Or(l.Answer(), "no flags")
	runtime := len(causes) > 0 && !slices.ContainsFunc(causes, func(c accesslog.Cause) bool { return !c.Runtime() })
	contradict := func(now string) {
		l.contradicts = true
		l.Verdict = fmt.Sprintf("The line is of another state of the configuration, or of another request: it has %s%s", line, now)
	}
	refusesTokens := slices.ContainsFunc(at.Steps, func(s trace.Step) bool { return s.What == "token" })
	inPlaintext := l.Side != sideInbound && len(at.Targets) > 0 && !slices.ContainsFunc(at.Targets, func(t trace.Target) bool {
		return t.TLS != "" || slices.ContainsFunc(t.Endpoints, func(e trace.Endpoint) bool { return e.TLS != "" })
	})
	// Envoy answers requests of gRPC with status 200 and grpc-status. Other requests that fail have their status.
	sameStatus := !l.HasCode || l.Code == now.status || l.Code == 200 && now.status != 0
	unevaluated := slices.ContainsFunc(at.Depends, func(d trace.Dependency) bool { return d.Cause == accesslog.Direct })
	ejects := func(t trace.Target) bool { return t.Ejects }
	ejected := first == accesslog.NoEndpoint && slices.ContainsFunc(at.Targets, ejects)
	unread := now.status == 0 && slices.Contains(causes, accesslog.Client) // the answer to what is not HTTP
	switch {
	case l.Side != sideInbound && l.leadsElsewhere(at):
		contradict(fmt.Sprintf(" from cluster %s, and now such requests go to %s.", l.UpstreamCluster, strings.Join(lists.Map(at.Targets,
			func(t trace.Target) string { return t.Cluster }), ", ")))
	case !l.Failed && now.reaches():
		l.Verdict = "The line shows no failure, and the request reaches the application by the configuration as it is now."
		if len(w.Depends) > 0 {
			l.Verdict = "The line shows no failure, and the request reaches the application by the configuration as it is now, if none of " +
				"the above prevents it."
		}
	case !l.Failed && l.IsConnection() && now.status == 0 && (now.has(accesslog.TLS) || l.Side != sideInbound && at.Status == 200):
		l.Explained = true // Envoy has no flag for a handshake that fails, and none for a connection that the other side closes
		l.Verdict = "The configuration explains the line: " + now.reason + "."
	case !l.Failed && l.Code == 200 && l.mayBeGRPC() && now.status != 0:
		l.Verdict = fmt.Sprintf("The line has status 200, which gRPC has for errors too: the line does not show grpc-status. Now %s.", now)
	case !l.Failed:
		contradict(fmt.Sprintf(", and now %s.", now))
	case first == accesslog.Token && refusesTokens && !now.has(accesslog.Token):
		l.Explained = true
		l.Verdict = "The configuration explains the line, if the request had a token that is refused: lines do not show tokens. Give it by --jwt."
	case len(dependencies(l, w)) > 0:
		l.Explained = true
		l.Verdict = "The configuration explains the line, if this was so: " + strings.Join(dependencies(l, w), "; ") + "."
	case now.reaches() && slices.Contains(causes, accesslog.Application):
		l.Verdict = "The answer is not by the proxy that wrote the line: it comes from where the request was passed on to, and the " +
			"configuration lets the request through there. The application answered so, or the proxy beside it, whose log has the line."
	case now.reaches() && l.Kind == accesslog.Line && at.HTTP && !at.Timeout && slices.Contains(l.Flags, "UT"):
		contradict(", and the route has no timeout now. A request may bring its own, by the header x-envoy-upstream-rq-timeout-ms.")
	case now.reaches() && l.Kind == accesslog.Line && inPlaintext && first == accesslog.TLS:
		contradict(", and the proxy calls in plaintext now.")
	case now.reaches() && (runtime || unevaluated || ejected):
		l.Verdict = "The configuration lets the request through. It failed for what the configuration does not decide: " + firstSays(l)
	case now.reaches() && policy != "":
		contradict(". By the configuration as it is now, the request reaches the application. " + policy)
	case now.reaches():
		contradict(". By the configuration as it is now, the request reaches the application.")
	case !sameStatus && !unread || policy != "" && !now.refusedBy(l.Policy()),
		first != accesslog.Unknown && len(now.causes) > 0 && !now.has(first) && !unread:
		contradict(fmt.Sprintf(", and now %s.", now))
	default:
		l.Explained = true
		l.Verdict = "The configuration explains the line: " + now.reason + "."
	}
	if a := firstProxied(w.Arrivals); a != nil && l.Side != sideInbound && first == accesslog.Connect && now.reaches() {
		l.note("%s has a proxy, which takes connections to all ports: a connection that is refused says that the Pod's proxy does not run", a.Pod)
	}
	l.note("%s", policy)
	if l.Unasked() {
		l.Notes = append(l.Notes, i.unaskedAt(l.Of, !l.IsConnection())...)
	}
	if l.Kind == accesslog.Line && l.Failed == now.reaches() && !(now.reaches() && runtime) {
		l.note("the line does not have all headers of the request: if routes or policies read them, give them by --header, --claim or --jwt")
	}
	l.Notes = slices.DeleteFunc(l.Notes, func(s string) bool { return s == "" || strings.Contains(l.Verdict, s) })
}

// has reports whether a log may have a cause for the end.
func (e end) has(c accesslog.Cause) bool {
	return slices.ContainsFunc(e.causes, func(own accesslog.Cause) bool { return c.SaidOf(own) })
}

// refusedBy reports whether the rule that details of a response name refuses the request. Control planes name the rules
// of one policy of action CUSTOM differently.
func (e end) refusedBy(name string) bool {
	rule := trace.PolicyOrigin(name)
	return slices.ContainsFunc(e.rules, func(o trace.Origin) bool { return o.Path == rule.Path && o.Field == rule.Field })
}

// leadsElsewhere reports whether the line names a cluster of a service that the request cannot go to.
func (l *Log) leadsElsewhere(a *trace.Answer) bool {
	cluster := strings.TrimSuffix(l.UpstreamCluster, ";")
	_, ofService := names.ParseCluster(cluster)
	return ofService && l.Kind == accesslog.Line && len(a.Targets) > 0 && len(a.Depends) == 0 &&
		!slices.ContainsFunc(a.Targets, func(t trace.Target) bool { return t.Cluster == cluster })
}

// mayBeGRPC reports whether the request of a line has the form of gRPC: POST /SERVICE/METHOD by HTTP/2.
func (l *Log) mayBeGRPC() bool {
	return l.Method == "POST" && l.Protocol == "HTTP/2" && strings.Count(l.Path, "/") == 2
}

// firstSays returns what the first meaning of a line with a cause says.
func firstSays(l *Log) string {
	for _, m := range l.Meanings {
		if m.Cause != accesslog.Unknown {
			return m.Says + " " + m.Look
		}
	}
	return "see the meaning above."
}

// endOf returns the end of a request for the proxy of its sender.
func endOf(w *Way) end {
	e := end{outcome: outcome{status: w.Status, reason: w.Reason, answered: w.Answered}}
	switch {
	case e.reaches():
	case w.Outbound.Status != 200 || w.Outbound.Answered:
		at := endOfAnswer(w.Outbound)
		e.causes, e.rules = at.causes, at.rules
	default:
		e.causes = causesBehind(w.Arrivals)
	}
	return e
}

// causesBehind returns the causes that the log of a proxy has for requests that fail where they arrive.
func causesBehind(list []Arrival) (causes []accesslog.Cause) {
	for _, a := range list {
		switch {
		case a.Failure != "":
			causes = append(causes, accesslog.Connect)
			if a.tls {
				causes = append(causes, accesslog.TLS, accesslog.Broken)
			}
		case a.Answer == nil || outcomeOf(a.Answer).reaches() && len(a.Next) == 0:
		case a.Answer.Status != 0:
			causes = append(causes, accesslog.Application)
		case a.tls && a.Answer.Cause != accesslog.Policy: // policies are judged after the handshake
			causes = append(causes, accesslog.Connect, accesslog.TLS, accesslog.Broken)
		default: // a listener takes a connection before it closes it
			causes = append(causes, accesslog.Broken)
		}
	}
	return lists.Unique(causes)
}

// endOfAnswer returns the end of a request at one proxy.
func endOfAnswer(a *trace.Answer) end {
	e := end{outcome: outcomeOf(a)}
	if a.Cause != accesslog.Unknown {
		e.causes = append(e.causes, a.Cause)
	}
	if a.Rule.Path != "" {
		e.rules = append(e.rules, a.Rule)
	}
	return e
}

// refusals returns the causes and the rules by which a request is refused where it arrives.
func refusals(list []Arrival) (all end) {
	for _, a := range list {
		there := refusals(a.Next)
		if a.Answer != nil {
			own := endOfAnswer(a.Answer)
			there.causes, there.rules = append(there.causes, own.causes...), append(there.rules, own.rules...)
		}
		all.causes, all.rules = append(all.causes, there.causes...), append(all.rules, there.rules...)
	}
	return all
}

// firstProxied returns the first workload with a proxy where a request arrives, or nil.
func firstProxied(list []Arrival) *Arrival {
	for n := range list {
		if a := firstProxied(list[n].Next); a != nil {
			return a
		}
		if list[n].Answer != nil && len(list[n].Next) == 0 {
			return &list[n]
		}
	}
	return nil
}

// arrivalAt returns the arrival of a request at a workload, or at an endpoint that gives the same answer, or nil.
func arrivalAt(list []Arrival, name string) *Arrival {
	for n := range list {
		if list[n].Pod == name || slices.Contains(list[n].Others, name) {
			return &list[n]
		}
		if a := arrivalAt(list[n].Next, name); a != nil {
			return a
		}
	}
	return nil
}

// policyOf returns where the rule of the AuthorizationPolicy is that the details of a line name, as a sentence, or "".
func (i *Inspection) policyOf(l *Log) string {
	from := trace.PolicyOrigin(l.Policy())
	if from.Path == "" {
		return ""
	}
	key := policyKey(from)
	if i.world.Object(key) == nil {
		return fmt.Sprintf("%s, which refused the request, does not exist any more.", key)
	}
	return fmt.Sprintf("The request was refused by %s.", i.Where(key, from.Field))
}

// policyKey returns the key of the AuthorizationPolicy at an origin.
func policyKey(from trace.Origin) kinds.Key {
	part := strings.Split(from.Path, "/")
	return kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: part[len(part)-3], Name: part[len(part)-1]}
}
