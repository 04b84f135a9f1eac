package validation

import (
	"math"
	"slices"
	"strings"
)

func virtualService(p fieldRef) {
	mesh := p.at("gateways").absent() || slices.ContainsFunc(p.at("gateways").items(), func(g fieldRef) bool { return g.is("mesh") })
	hosts := p.at("hosts").items()
	p.at("gateways").gatewayNames()
	p.at("exportTo").exportTo(false)
	seen := unique{}
	for _, h := range hosts {
		h.calledHost()
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
		if catchAll != "" && p.admission { // in force, the analysis reports it
			r.warn("move it before the other, or give that one a match", "the route is never reached: %s already takes every request", catchAll)
		} else if catchAll == "" && r.at("delegate").absent() && takesAll(r) {
			catchAll = r.path()
		}
	}
	preflights(p.at("http").items())
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

// preflights warns of a corsPolicy whose rule takes no preflight: these have the method OPTIONS, and none of the
// headers that applications add. Where several rules have a policy, another one may answer them.
func preflights(rules []fieldRef) {
	var with []fieldRef
	for _, r := range rules {
		if !r.at("corsPolicy").absent() {
			with = append(with, r)
		}
	}
	if len(with) != 1 || with[0].at("match").empty() {
		return
	}
	for _, m := range with[0].at("match").items() {
		method := m.at("method").at("exact").text()
		other := method != "" && method != "OPTIONS"
		m.at("headers").each(func(name string, _ fieldRef) {
			name = strings.ToLower(name)
			other = other || name == "authorization" || name == "cookie" || strings.HasPrefix(name, "x-")
		})
		if !other {
			return
		}
	}
	with[0].at("corsPolicy").warn("add a match with the method OPTIONS and without headers",
		"it answers no preflight: these have the method OPTIONS and no headers of applications, which no match of the rule takes")
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
		p.istioAccepts = r.says(does...)
		p.bad("add a destination", "route has no destination")
	} else {
		does = append([]string{"route"}, does...)
	}
	if d := r.at("directResponse"); !d.absent() && !r.at("delegate").absent() {
		d.warn("keep one of them", "directResponse answers in place of the routes of the delegate")
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
		w.at("uri").tolerated().singleLine()
		w.at("authority").tolerated().singleLine()
		w.at("uriRegexRewrite").at("rewrite").tolerated().singleLine()
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
	if try, all := r.at("retries").at("perTryTimeout"), r.at("timeout"); all.duration() > 0 && try.duration() >= all.duration() {
		try.warn("write a shorter duration",
			"it has no effect: the timeout of the rule, %s, is not longer, and ends the request first", all.text())
	}
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

// weights checks a list of weighted destinations.
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
