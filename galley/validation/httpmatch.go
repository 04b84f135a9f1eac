package validation

import (
	"strings"
)

func httpMatch(m fieldRef) {
	for _, f := range []string{"uri", "scheme", "method", "authority"} {
		stringMatch(m.at(f))
		if at := m.at(f).at("prefix"); f != "uri" && !at.absent() && at.empty() {
			at.bad("write what to match", "prefix is empty")
		}
	}
	for _, f := range []string{"prefix", "exact"} {
		if at := m.at("uri").at(f); !at.empty() && !strings.HasPrefix(at.text(), "/") && at.text() != "*" {
			at.neverMatches("write /"+at.text(), "no path begins with %q: each begins with a slash", at.text())
		}
	}
	for _, f := range []string{"headers", "withoutHeaders", "queryParams"} {
		m.at(f).each(func(name string, match fieldRef) {
			switch {
			case f == "queryParams" && name == "":
				match.tolerated().bad("name the parameter", "an empty query parameter name")
			case f != "queryParams" && strings.HasPrefix(name, "@request.auth.claims"):
				if path := strings.TrimPrefix(name, "@request.auth.claims"); !isClaim(path) {
					match.refuse("write @request.auth.claims.NAME or @request.auth.claims[NAME]", "%q names no claim", name)
				}
			case f != "queryParams":
				match.headerName(name)
			}
			// An empty match tests that the header is present.
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

// isClaim reports whether a path names a claim: .a.b or [a][b].
func isClaim(path string) bool {
	return len(path) > 1 && path[0] == '.' || len(path) > 2 && path[0] == '[' && path[len(path)-1] == ']'
}

// source checks the conditions on the source workload of a request.
func (p fieldRef) source() {
	p.at("sourceLabels").workloadLabels()
	if ns := p.at("sourceNamespace"); !ns.empty() && !isLabel(ns.text()) {
		ns.bad("write the name of a namespace", "%q is not a namespace", ns.text())
	}
}

// claims checks conditions on the claims of a token, which only gateways know when they route.
func claims(m fieldRef, mesh bool) {
	for _, f := range []string{"headers", "withoutHeaders"} {
		m.at(f).each(func(name string, match fieldRef) {
			if mesh && m.review && strings.HasPrefix(name, "@request.auth.claims") { // in force, the feature reports it
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
