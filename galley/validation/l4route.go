package validation

import (
	"strings"
)

func tlsRoute(r fieldRef, hosts, written hostSet) {
	r.required("match")
	for _, m := range r.at("match").items() {
		m.required("sniHosts")
		for _, sni := range m.at("sniHosts").items() {
			if sni.empty() { // a chain without server names takes all connections
				sni.bad("write a DNS name", "the server name is empty")
				continue
			}
			sni.calledHost()
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

// longestPattern bounds the hosts whose wildcards are searched for, because the search takes quadratic time. A longer
// text is not a DNS name, and is an error in a review.
const longestPattern = 256

// other returns a wildcard of the set, other than host, that covers host. It returns "" if there is none.
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

// covers reports whether every name that matches a host, which may be a pattern, also matches a host of the set. It is
// case-sensitive.
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
		s.istioAccepts = hasZone(s.text())
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
