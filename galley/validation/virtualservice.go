package validation

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

func virtualService(p fieldRef) {
	mesh := p.at("gateways").absent() || slices.ContainsFunc(p.at("gateways").items(), func(g fieldRef) bool { return g.is("mesh") })
	hosts := p.at("hosts").items()
	p.at("gateways").gatewayNames()
	p.at("exportTo").exportTo(false)
	seen := unique{}
	for _, h := range hosts {
		h.wildcardHostOrIP()
		seen.add(h, "host")
		if mesh && h.is("*") {
			h.bad("name the hosts, or bind the object to a gateway", "host * cannot be used for the mesh: it would take all traffic")
		}
	}
	if len(hosts) == 0 {
		// Without hosts it is a delegate: its routes are used where another one refers to it.
		for _, f := range []string{"tls", "tcp", "gateways"} {
			if !p.at(f).empty() {
				p.missing("hosts", "add the hosts", "hosts is required: without, the object is a delegate and may only have http")
				break
			}
		}
	}
	if p.at("http").empty() && p.at("tls").empty() && p.at("tcp").empty() {
		p.missing("http", "add a route", "one of http, tls and tcp is required")
	}
	named := newHostSet(hosts)
	for _, h := range hosts {
		if other := named.other(h.text()); other != "" {
			h.refuse("keep one of the two", "host %q is already covered by %q", h.text(), other)
		}
	}
	catchAll := ""
	for _, r := range p.at("http").items() {
		httpRoute(r, len(hosts) == 0, mesh)
		if catchAll != "" {
			r.warn("move it before the other, or give that one a match", "the route is never reached: %s already takes every request", catchAll)
		} else if takesAll(r) {
			catchAll = r.path
		}
	}
	written := hostSet{}
	for _, h := range hosts {
		written[h.text()] = struct{}{}
	}
	for _, r := range p.at("tls").items() {
		tlsRoute(r, named, written)
	}
	for _, r := range p.at("tcp").items() {
		tcpRoute(r)
	}
}

// takesAll reports whether a route has no condition, so that the routes after it are never reached.
func takesAll(r fieldRef) bool {
	matches := r.at("match").items()
	if len(matches) == 0 {
		return true
	}
	return slices.ContainsFunc(matches, func(m fieldRef) bool {
		for _, f := range m.node.fields {
			if f.name != "name" && f.name != "statPrefix" && f.name != "ignoreUriCase" {
				return false
			}
		}
		return true
	})
}

func httpRoute(r fieldRef, delegated, mesh bool) {
	for _, m := range r.at("match").items() {
		httpMatch(m)
		claims(m, mesh)
	}
	does := []string{"redirect", "directResponse", "delegate"}
	if p := r.at("route"); !p.absent() && p.empty() {
		p.lax = r.says(does...)
		p.bad("add a destination", "route has no destination")
	} else {
		does = append([]string{"route"}, does...)
	}
	if d := r.at("directResponse"); !d.absent() && !r.at("delegate").absent() {
		d.warn("keep one of them", "directResponse has no effect beside delegate")
		does = slices.DeleteFunc(does, func(f string) bool { return f == "directResponse" })
	}
	if does = r.exclusive(does...); len(does) == 0 && r.at("route").absent() {
		r.missing("route", "add a route, a redirect or a directResponse", "one of route, redirect, directResponse and delegate is required")
	}
	if d := r.at("delegate"); !d.absent() {
		if d.at("name").empty() {
			d.at("name").warn("add name", "without a name the delegate is not found")
		}
		if delegated {
			d.bad("write its routes here", "a delegate cannot delegate further")
		}
	}
	if r.at("route").empty() {
		for _, f := range []string{"fault", "mirror", "mirrors", "rewrite"} {
			if at := r.at(f); !at.absent() && r.at("delegate").absent() {
				if strings.HasPrefix(f, "mirror") {
					at.warn("remove it", "%s has no effect without a route", f)
				} else {
					at.bad("remove it", "%s has no meaning without a route", f)
				}
			}
		}
	}
	redirect(r.at("redirect"))
	if d := r.at("directResponse"); !d.absent() {
		if d.required("status") {
			d.at("status").status()
		}
		if body := d.at("body").at("string"); len(body.text()) > 1<<20 {
			body.bad("serve it from a backend", "the body is larger than 1 MiB")
		}
	}
	if w := r.at("rewrite"); !w.absent() {
		if w.at("uri").empty() && w.at("authority").empty() && w.at("uriRegexRewrite").absent() {
			w.bad("add uri, authority or uriRegexRewrite", "the rewrite rewrites nothing")
		}
		w.exclusive("uri", "uriRegexRewrite")
		w.at("uri").laxly().singleLine()
		w.at("authority").laxly().singleLine()
		w.at("uriRegexRewrite").at("rewrite").laxly().singleLine()
		if x := w.at("uriRegexRewrite"); !x.absent() && x.required("match") && x.required("rewrite") {
			x.at("match").regexp()
		}
		if set := r.at("headers").at("request"); !w.at("authority").empty() {
			for _, op := range []string{"set", "add"} {
				set.at(op).each(func(name string, value fieldRef) {
					if isAuthority(name) {
						value.refuse("keep one of the two", "the authority is already rewritten")
					}
				})
			}
		}
	}
	if t := r.at("timeout"); !t.absent() {
		t.timeout()
		if t.duration() == 0 {
			t.refuse("remove it: without a timeout there is none", "the duration is zero")
		}
	}
	retries(r.at("retries"))
	fault(r.at("fault"))
	cors(r.at("corsPolicy"))
	r.exclusive("mirror", "mirrors")
	mirror(r)
	headers(r.at("headers"))
	weights(r.at("route"))
	for _, d := range r.at("route").items() {
		headers(d.at("headers"))
	}
}

func httpMatch(m fieldRef) {
	for _, f := range []string{"uri", "scheme", "method", "authority"} {
		stringMatch(m.at(f))
		if at := m.at(f).at("prefix"); f != "uri" && !at.absent() && at.empty() {
			at.bad("write what to match", "prefix is empty")
		}
	}
	for _, f := range []string{"headers", "withoutHeaders", "queryParams"} {
		m.at(f).each(func(name string, match fieldRef) {
			switch {
			case f == "queryParams" && name == "":
				match.laxly().bad("name the parameter", "an empty query parameter name")
			case f != "queryParams" && strings.HasPrefix(name, "@request.auth.claims"):
				if path := strings.TrimPrefix(name, "@request.auth.claims"); !isClaim(path) {
					match.refuse("write @request.auth.claims.NAME or @request.auth.claims[NAME]", "%q names no claim", name)
				}
			case f != "queryParams":
				match.headerName(name)
			}
			// An empty match tests that the header is there.
			for _, kind := range []string{"prefix", "regex"} {
				if at := match.at(kind); !at.absent() && at.empty() {
					at.bad("write what to match, or {} for any value", "%s is empty", kind)
				}
			}
			if f == "withoutHeaders" && match.at("regex").is("*") {
				return // any value
			}
			match.at("regex").regexp()
		})
	}
	m.at("port").optionalPort()
	m.source()
	m.at("gateways").gatewayNames()
}

// isClaim reports whether a path leads to a claim: .a.b or [a][b].
func isClaim(path string) bool {
	return len(path) > 1 && path[0] == '.' || len(path) > 2 && path[0] == '[' && path[len(path)-1] == ']'
}

// source judges the conditions on the workload that a request comes from.
func (p fieldRef) source() {
	p.at("sourceLabels").workloadLabels()
	if ns := p.at("sourceNamespace"); !ns.empty() && !isLabel(ns.text()) {
		ns.bad("write the name of a namespace", "%q is not a namespace", ns.text())
	}
}

// claims judges conditions on the claims of a token, which only gateways have at hand when they route.
func claims(m fieldRef, mesh bool) {
	for _, f := range []string{"headers", "withoutHeaders"} {
		m.at(f).each(func(name string, match fieldRef) {
			if mesh && m.review && strings.HasPrefix(name, "@request.auth.claims") { // in force, the feature says so
				match.bad("bind the object to gateways alone", "claims of tokens can only be matched at gateways")
			}
		})
	}
}

func stringMatch(m fieldRef) {
	if m.absent() {
		return
	}
	if m.empty() {
		m.warn("add exact, prefix or regex", "the match has no value: it matches everything")
		return
	}
	if at := m.at("regex"); !at.absent() && at.empty() {
		at.bad("write what to match", "regex is empty")
	}
	if at := m.at("prefix"); !at.absent() && at.empty() {
		at.warn("write what to match", "prefix is empty: it matches everything")
	}
	m.at("regex").regexp()
}

func redirect(r fieldRef) {
	if r.absent() {
		return
	}
	if r.at("uri").empty() && r.at("prefixRewrite").empty() && r.at("authority").empty() && r.at("scheme").empty() && r.at("port").absent() && r.at("derivePort").absent() {
		r.bad("add uri, authority, scheme or port", "the redirect leads back to where it came from")
	}
	if code := r.at("redirectCode"); !code.absent() && !slices.Contains([]string{"0", "301", "302", "303", "307", "308"}, code.text()) {
		if code.number() >= 300 && code.number() <= 399 {
			code = code.laxly()
		}
		code.bad("use 301, 302, 303, 307 or 308", "%s is not the code of a redirect", code.text())
	}
	for _, f := range []string{"uri", "authority", "prefixRewrite"} {
		r.at(f).laxly().singleLine()
	}
	r.at("port").optionalPort()
	if s := r.at("scheme"); !s.empty() && !s.is("http") && !s.is("https") {
		s.bad("use http or https", "unknown scheme %q", s.text())
	}
	r.exclusive("uri", "prefixRewrite")
}

func retries(r fieldRef) {
	if r.absent() {
		return
	}
	r.at("attempts").atLeast(0)
	r.at("perTryTimeout").timeout()
	if t := r.at("perTryTimeout"); !t.absent() && t.duration() == 0 {
		t.refuse("remove it, or write a positive duration", "the duration is zero")
	}
	r.at("backoff").interval()
	if r.at("attempts").number() == 0 && !(r.at("perTryTimeout").absent() && r.at("retryOn").empty() && r.at("retryRemoteLocalities").absent()) {
		r.refuse("set attempts to 1 or more, or remove the rest", "there are no retries, as attempts is 0, but they are configured")
	}
	if on := r.at("retryOn"); !on.empty() {
		for cond := range strings.SplitSeq(on.text(), ",") {
			if code, err := strconv.Atoi(cond); err == nil && code >= 100 && code <= 599 {
				continue
			}
			if !slices.Contains(retryConditions(), cond) {
				on.bad(diag.UnknownName(cond, retryConditions()), "unknown retry condition %q", cond)
			}
		}
	}
}

// retryConditions are those of x-envoy-retry-on and x-envoy-retry-grpc-on.
func retryConditions() []string {
	return []string{
		"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited", "retriable-4xx", "refused-stream", "retriable-status-codes",
		"retriable-headers", "http3-post-connect-failure", "cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
	}
}

// status judges the status of an answer. Istio's webhook lets 600 through, which Envoy refuses.
func (p fieldRef) status() {
	if p.lax = p.number() == 600; !p.absent() {
		p.between(200, 599)
	}
}

func percent(p fieldRef) {
	if !p.absent() {
		p.at("value").between(0, 100)
	}
}

func fault(f fieldRef) {
	if f.absent() {
		return
	}
	if f.empty() {
		f.bad("add delay or abort", "the fault does nothing")
	}
	if d := f.at("delay"); !d.absent() {
		percent(d.at("percentage"))
		d.at("percent").laxly().between(0, 100)
		if d.at("fixedDelay").absent() && d.at("exponentialDelay").absent() {
			d.at("fixedDelay").warn("add fixedDelay", "the delay has no length, and so no effect")
		}
		d.at("fixedDelay").interval()
		if e := d.at("exponentialDelay"); !e.absent() {
			e.bad("use fixedDelay", "exponentialDelay is not supported")
		}
	}
	if a := f.at("abort"); !a.absent() {
		percent(a.at("percentage"))
		a.at("httpStatus").status()
		if s := a.at("grpcStatus"); !s.absent() && !slices.Contains(grpcStatuses(), s.text()) {
			s.bad(diag.UnknownName(s.text(), grpcStatuses()), "unknown gRPC status %q", s.text())
		}
		if e := a.at("http2Error"); !e.absent() {
			e.bad("use httpStatus or grpcStatus", "http2Error is not supported")
		}
		if a.at("httpStatus").absent() && a.at("grpcStatus").absent() && a.at("http2Error").absent() {
			a.at("httpStatus").warn("add httpStatus or grpcStatus", "the abort has no status, and so no effect")
		}
	}
}

func grpcStatuses() []string {
	return []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
		"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
}

func cors(c fieldRef) {
	if c.absent() {
		return
	}
	for _, o := range c.at("allowOrigins").items() {
		if o.at("exact").empty() && o.at("prefix").empty() && o.at("regex").empty() {
			o.bad("add exact, prefix or regex", "the origin has no value")
			continue
		}
		stringMatch(o)
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*"}
	for _, m := range c.at("allowMethods").items() {
		if !slices.Contains(methods, m.text()) {
			m.bad(diag.UnknownName(m.text(), methods), "unknown method %q", m.text())
		}
	}
	for _, f := range []string{"allowHeaders", "exposeHeaders"} {
		for _, h := range c.at(f).items() {
			h.headerName(h.text())
		}
	}
	c.at("maxAge").timeout()
	if age := c.at("maxAge"); !age.absent() && age.duration() == 0 {
		age.refuse("remove it, or write whole seconds", "the age is zero")
	}
	if age := c.at("maxAge"); age.duration()%time.Second != 0 {
		age.bad("write whole seconds", "the age is no number of whole seconds")
	}
}

func headers(h fieldRef) {
	for _, side := range []string{"request", "response"} {
		for _, op := range []string{"set", "add"} {
			h.at(side).at(op).each(func(name string, value fieldRef) {
				value.changedHeader(name)
				if side == "response" && strings.EqualFold(name, "host") {
					value.bad("remove it", "a response has no header %s", name)
				}
				if isAuthority(name) {
					value.commands()
					value.singleLine() // it is rewritten as it stands
				} else {
					value.headerValue()
				}
			})
		}
		for _, name := range h.at(side).at("remove").items() {
			name.changedHeader(name.text())
			if strings.EqualFold(name.text(), "host") {
				name.bad("set it instead", "header %s cannot be removed", name.text())
			}
		}
	}
}

// isAuthority reports whether name is one of the two names of the header that proxies rewrite with a setting of its
// own.
func isAuthority(name string) bool {
	return strings.EqualFold(name, "host") || strings.EqualFold(name, ":authority")
}

// changedHeader judges the name of a header that is to be set or removed. Other headers that begin with a colon define
// the request itself.
func (p fieldRef) changedHeader(name string) {
	if strings.HasPrefix(name, ":") && !isAuthority(name) {
		p.bad("use rewrite, redirect or directResponse", "header %s cannot be set or removed", name)
		return
	}
	if name != "" {
		p.lax = true
	}
	p.headerName(name)
}

func mirror(r fieldRef) {
	if m := r.at("mirror"); !m.absent() {
		destination(m)
	}
	for _, m := range r.at("mirrors").items() {
		if m.required("destination") {
			destination(m.at("destination"))
		}
		percent(m.at("percentage"))
	}
	percent(r.at("mirrorPercentage"))
	r.at("mirrorPercent").between(0, 100)
}

// weights judges a list of weighted destinations.
func weights(p fieldRef) {
	sum := 0.0
	for _, d := range p.items() {
		if d.required("destination") {
			destination(d.at("destination"))
		}
		d.at("weight").atLeast(0)
		sum += d.at("weight").number()
	}
	if len(p.items()) > 1 && sum <= 0 {
		p.bad("give at least one destination a weight", "the weights of the destinations add up to 0: none would get traffic")
	}
	if sum > math.MaxUint32 {
		p.bad("use smaller weights", "the weights add up to more than %d", uint32(math.MaxUint32))
	}
}

func destination(d fieldRef) {
	if d.required("host") {
		d.at("host").host()
	}
	if s := d.at("subset"); !s.empty() {
		s.subsetName()
	}
	if port := d.at("port"); !port.absent() {
		port.at("number").port()
	}
}

func tlsRoute(r fieldRef, hosts, written hostSet) {
	r.required("match")
	for _, m := range r.at("match").items() {
		m.required("sniHosts")
		for _, sni := range m.at("sniHosts").items() {
			sni.wildcardHostOrIP()
			sni.serverName()
			if isIP(sni.text()) {
				sni.warn("write a DNS name", "%q is an address, which clients do not send as server name", sni.text())
			} else if !hosts.covers(strings.ToLower(sni.text())) || sni.review && !written.covers(sni.text()) {
				sni.refuse("add it to hosts", "SNI host %q is none of the object's hosts", sni.text())
			}
		}
		l4Match(m)
	}
	l4Route(r)
}

// longestPattern bounds the hosts whose wildcards are looked for, since that takes the square of their length. What is
// longer is no host, and an error where it is written.
const longestPattern = 256

// other returns a wildcard of the set that covers a host of the set, and is not that host, or "".
func (s hostSet) other(host string) string {
	if len(host) > longestPattern {
		return ""
	}
	host = strings.ToLower(host)
	for i := range len(host) + 1 {
		if wild := "*" + host[i:]; i > 0 && wild != host {
			if _, ok := s[wild]; ok {
				return wild
			}
		}
	}
	if _, ok := s["*"]; ok && host != "*" {
		return "*"
	}
	return ""
}

// hostSet is a set of hosts, in lower case or as they are written.
type hostSet map[string]struct{}

// newHostSet returns the hosts in lower case.
func newHostSet(hosts []fieldRef) hostSet {
	s := hostSet{}
	for _, h := range hosts {
		s[strings.ToLower(h.text())] = struct{}{}
	}
	return s
}

// covers reports whether every name that matches a host, which may be a pattern, also matches one of the set. Case
// counts.
func (s hostSet) covers(host string) bool {
	if len(host) > longestPattern {
		return false
	}
	if _, ok := s[host]; ok {
		return true
	}
	for i := range len(host) + 1 {
		if _, ok := s["*"+host[i:]]; ok {
			return true
		}
	}
	return false
}

func tcpRoute(r fieldRef) {
	for _, m := range r.at("match").items() {
		l4Match(m)
		if s := m.at("sourceSubnet"); !s.empty() && !isSubnet(s.text()) {
			s.warn("remove it", "%q is neither an IP address nor a CIDR range", s.text())
		}
	}
	l4Route(r)
}

func l4Match(m fieldRef) {
	for _, s := range m.at("destinationSubnets").items() {
		s.lax = hasZone(s.text())
		s.subnet()
	}
	m.at("port").optionalPort()
	m.source()
	m.at("gateways").gatewayNames()
}

func l4Route(r fieldRef) {
	r.required("route")
	weights(r.at("route"))
}
