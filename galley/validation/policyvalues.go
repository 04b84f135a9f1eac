package validation

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// neverMatches warns of a value that no request and no connection has. The object is used.
func (p fieldRef) neverMatches(fix, format string, args ...any) {
	p.add(diag.Warning, "NeverMatches", fix, format, args...)
}

// excluded warns of a list of values that the list of the same name with "not" leaves out, so that nothing matches.
func (p fieldRef) excluded(name string) {
	if strings.HasPrefix(name, "not") {
		return
	}
	not := "not" + strings.ToUpper(name[:1]) + name[1:]
	values, others := texts(p.at(name)), texts(p.at(not))
	switch {
	case len(others) == 0:
	case len(values) > 0 && all(values, func(v string) bool {
		return slices.ContainsFunc(others, func(o string) bool { return patternCovers(o, v) })
	}):
		p.at(name).neverMatches("remove the values from one of the two", "%s leaves out all of %s: nothing matches both", not, name)
	case slices.Contains(others, "*") && slices.Contains([]string{"hosts", "methods", "paths"}, name):
		p.at(not).neverMatches("remove it", "each request has one of %s, and %s leaves out all: nothing matches", name, not)
	}
}

// patternCovers reports whether a pattern of a policy matches each value that another one matches. A star is at the
// beginning or the end of a pattern.
func patternCovers(wide, narrow string) bool {
	if wide == narrow || wide == "*" {
		return true
	}
	if begin, open := strings.CutSuffix(wide, "*"); open {
		return !strings.HasPrefix(narrow, "*") && strings.HasPrefix(strings.TrimSuffix(narrow, "*"), begin)
	}
	end, open := strings.CutPrefix(wide, "*")
	return open && !strings.HasSuffix(narrow, "*") && strings.HasSuffix(strings.TrimPrefix(narrow, "*"), end)
}

// texts returns the entries of a list of texts.
func texts(list fieldRef) []string {
	var out []string
	for _, v := range list.items() {
		out = append(out, v.text())
	}
	return out
}

// contradictions warns of conditions on one attribute that has one value, whose values are different.
func contradictions(when []fieldRef) {
	first := map[string]fieldRef{}
	for _, w := range when {
		key, values := w.at("key").text(), texts(w.at("values"))
		if len(values) == 0 || !strings.HasPrefix(key, "source.") && key != "destination.port" && key != "connection.sni" ||
			key == "source.ip" || slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, "*") }) {
			continue
		}
		other, known := first[key]
		if !known {
			first[key] = w
		} else if !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(texts(other.at("values")), v) }) {
			w.at("values").neverMatches("write all values into one condition", "%s has other values: nothing matches both", other.path())
		}
	}
}

// block checks an address or a CIDR range that callers' addresses are compared with.
func block(v fieldRef) {
	s := v.text()
	v.istioAccepts = hasZone(s)
	v.subnet()
	v.istioAccepts = false
	address, err := netip.ParseAddr(s)
	if err == nil && address.Is4In6() {
		v.neverMatches("write "+address.Unmap().String(), "%q is an IPv4 address written as IPv6, which no connection has", s)
	} else if err == nil && address.IsUnspecified() {
		v.neverMatches("write "+s+"/0 for all addresses", "no connection has the address %s", s)
	}
	if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4In6() {
		v.neverMatches("write the range as IPv4", "%q is a range of IPv4 written as IPv6, which no connection is in", s)
	} else if err == nil && p.Masked() != p {
		v.warn("write "+p.Masked().String()+", or the address alone", "%s stands for the whole range %s", s, p.Masked())
	}
}

// method checks a pattern of the method of a request.
func method(v fieldRef) {
	text := strings.Trim(v.text(), "*")
	switch {
	case text != "" && (!names.HeaderName(text) || text[0] == ':'):
		v.neverMatches("write each method as an entry of its own", "no request has the method %q", v.text())
	case strings.ToUpper(text) != text:
		v.neverMatches("write "+strings.ToUpper(v.text()), "no request has the method %q: methods are in capitals", v.text())
	default:
		pattern(v)
	}
}

// authority checks a pattern of the host of a request.
func authority(v fieldRef) {
	if strings.ContainsAny(v.text(), "/, \t\r\n") {
		v.neverMatches("write the host alone, such as web.example.com", "no request is for the host %q", v.text())
	} else {
		pattern(v)
	}
}

// path checks a pattern of the path of a request, which is compared without its query.
func path(v fieldRef) {
	s := v.text()
	switch {
	case strings.ContainsAny(s, "?#"):
		v.neverMatches("remove it: policies do not read the query", "no path has the text %q: it is compared without the query", s)
	case strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' }):
		v.neverMatches("write it in percent-encoding, such as %20 for a space", "no path has the text %q, which has a space", s)
	case !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "*"):
		v.neverMatches("write /"+s, "no path begins with %q: each begins with a slash", s)
	default:
		pattern(v)
	}
}

// header checks the name of a header in the key of a condition.
func header(key fieldRef, name string) {
	pseudo := []string{":authority", ":method", ":path", ":protocol", ":scheme"}
	if !names.HeaderName(name) || name[0] == ':' && !slices.Contains(pseudo, name) {
		key.neverMatches("use letters, digits and dashes", "%q is not the name of a header", name)
	}
}

// headerValue checks a pattern of the value of a header.
func headerValue(v fieldRef) {
	if v.text() != "*/*" { // the media type, which its pattern matches
		pattern(v)
	}
}

// requestedName checks a pattern of the server name that a TLS client asks for. Envoy reads it in lower case.
func requestedName(v fieldRef) {
	switch s := v.text(); {
	case strings.ContainsAny(s, "/:, \t\r\n"):
		v.neverMatches("write the host alone, such as web.example.com", "no connection asks for the server name %q", s)
	case strings.ToLower(s) != s:
		v.neverMatches("write "+strings.ToLower(s), "no server name is %q: they are compared in lower case", s)
	default:
		pattern(v)
	}
}

// principal checks a pattern of a peer's identity.
func principal(v fieldRef) {
	const form = "write cluster.local/ns/NAMESPACE/sa/ACCOUNT with the trust domain of the mesh"
	s := v.text()
	switch whole := !strings.Contains(s, "*"); {
	case strings.HasPrefix(s, "*"):
		segment(v)
	case strings.HasPrefix(s, "spiffe://"):
		v.neverMatches("write "+strings.TrimPrefix(s, "spiffe://"), "no identity is %q: they are compared without spiffe://", s)
	case strings.HasPrefix(s, "ns/"), strings.HasPrefix(s, "/"), whole && !strings.Contains(s, "/"):
		v.neverMatches(form, "no identity is %q: each begins with a trust domain and a slash", s)
	case whole && strings.Contains(s, "/ns/") && !strings.Contains(s, "/sa/"):
		v.neverMatches("write "+s+"/sa/ACCOUNT, or "+strings.TrimSuffix(s, "/")+"/* for all of the namespace",
			"no identity is %q: it has no service account", s)
	case whole && strings.Count(s, "/") == 1 && !strings.Contains(s[:strings.Index(s, "/")], "."):
		v.neverMatches("write cluster.local/ns/"+strings.Replace(s, "/", "/sa/", 1)+" with the trust domain of the mesh",
			"no identity is %q: each is TRUSTDOMAIN/ns/NAMESPACE/sa/ACCOUNT", s)
	case strings.HasPrefix(s, "cluster.local/") && !isIdentity(strings.TrimPrefix(s, "cluster.local/")):
		v.neverMatches(form, "no identity is %q: each is TRUSTDOMAIN/ns/NAMESPACE/sa/ACCOUNT", s)
	default:
		pattern(v)
	}
}

// isIdentity reports whether a pattern may match ns/NAMESPACE/sa/ACCOUNT.
func isIdentity(s string) bool {
	s, open := strings.CutSuffix(s, "*")
	parts := strings.Split(s, "/")
	for i, want := range []string{"ns", "", "sa", ""} {
		switch last := i == len(parts)-1; {
		case i == len(parts):
			return false // the pattern ended before
		case last && open:
			return want == "" || strings.HasPrefix(want, parts[i])
		case want != "" && parts[i] != want, parts[i] == "":
			return false
		}
	}
	return true
}

// namespace checks a pattern of the namespace of a peer.
func namespace(v fieldRef) {
	if s := v.text(); !isPlainName(s, "-*") || strings.ToLower(s) != s {
		v.neverMatches("write the name of a namespace", "no namespace has the name %q", s)
	} else {
		segment(v)
	}
}

// trustDomain checks a pattern of the trust domain of a peer.
func trustDomain(v fieldRef) {
	if s := v.text(); !isPlainName(s, "-._*") {
		v.neverMatches("write the name alone, such as cluster.local", "no trust domain has the name %q", s)
	} else {
		segment(v)
	}
}

// openHosts warns of hosts that keep requests out and have no form with a port. A client may write a port behind the
// host: routes ignore it, and policies compare it.
func openHosts(rule fieldRef, action string) {
	name := "hosts"
	switch action {
	case "", "ALLOW":
		name = "notHosts"
	case "AUDIT":
		return
	}
	for _, t := range rule.at("to").items() {
		hosts := t.at("operation").at(name)
		all := texts(hosts)
		for _, v := range hosts.items() {
			s := v.text()
			if s == "" || strings.Contains(s, ":") || strings.HasSuffix(s, "*") || slices.ContainsFunc(all, func(o string) bool {
				prefix, open := strings.CutSuffix(o, "*")
				return strings.HasPrefix(o, s+":") || open && strings.HasPrefix(s+":", prefix)
			}) {
				continue
			}
			add := s + ":*"
			if strings.HasPrefix(s, "*") { // one star is a wildcard
				add = s + ":80 and the like for each port"
			}
			v.add(diag.Warning, "HostWithoutPort", "also name "+add, "a request for %s with a port in it does not match, and is routed alike", s)
		}
	}
}

// onlyRequests warns, as Istio's webhook does, of a rule that denies, has conditions that only requests have, and names
// no ports. On ports of TCP it denies connections, whatever these conditions say.
func onlyRequests(p fieldRef) {
	for _, r := range p.at("rules").items() {
		if !readsConnections(r) {
			r.add(diag.Warning, "IST0133", "name the HTTP ports in to.operation.ports",
				"the rule reads what only HTTP requests have, and names no ports: on ports of TCP it denies all that its other conditions match")
		}
	}
}

// readsConnections reports whether a rule has ports, or no condition that only requests have.
func readsConnections(r fieldRef) bool {
	from, to := r.at("from").items(), r.at("to").items()
	for _, w := range r.at("when").items() {
		if w.at("key").is("destination.port") {
			return true
		}
	}
	for _, t := range to {
		if o := t.at("operation"); !o.at("ports").empty() || !o.at("notPorts").empty() {
			return true
		}
	}
	requests := func(f fieldRef) bool {
		src, others := f.at("source"), false
		src.each(func(name string, list fieldRef) {
			others = others || !list.empty() && name != "requestPrincipals" && name != "notRequestPrincipals"
		})
		return !others
	}
	return len(to) == 0 && !(len(from) > 0 && all(from, requests))
}
