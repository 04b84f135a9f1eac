package names

import (
	"net/netip"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// FQDN resolves a host as users write it in an object of a namespace: a name without a dot is a service of that
// namespace: web becomes web.<namespace>.svc.<suffix>, and *web becomes *web.<namespace>.svc.<suffix>. Addresses, the
// wildcard * and names with a dot stay. Upper case is lowered and a trailing dot dropped, unless no name is left.
// NoService stays.
func FQDN(host, namespace, suffix string) string {
	if host == NoService {
		return host
	}
	host = strings.ToLower(host)
	if name := strings.TrimSuffix(host, "."); name != "" && name != "*" {
		host = name
	}
	if host == "" || host == "*" || strings.ContainsAny(host, ".:") || namespace == "" {
		return host
	}
	return host + "." + namespace + ".svc." + suffix
}

// Destination resolves the host of a route's destination like FQDN, but leaves a host with a dot at its end as it is.
// Such a host is absolute, so it is no service of the namespace, and as in istiod no service has that name.
func Destination(host, namespace, suffix string) string {
	if strings.HasSuffix(host, ".") {
		return strings.ToLower(host)
	}
	return FQDN(host, namespace, suffix)
}

// Gateway resolves the name of a Gateway as written in an object of a namespace: name, namespace/name, or a host such
// as name.namespace.svc.cluster.local, to namespace/name. "mesh", all sidecars, stays.
func Gateway(name, namespace string) string {
	if name == "mesh" || strings.Contains(name, "/") {
		return name
	}
	if host, rest, ok := strings.Cut(name, "."); ok {
		ns, _, _ := strings.Cut(rest, ".")
		return ns + "/" + host
	}
	return namespace + "/" + name
}

// Gateways resolves the names of the Gateways of a VirtualService of a namespace. Without names it is for all sidecars.
func Gateways(list []string, namespace string) []string {
	if len(list) == 0 {
		return []string{"mesh"}
	}
	return lists.Map(list, func(name string) string { return Gateway(name, namespace) })
}

// Covers reports whether pattern matches every host that name matches. Either may be "*" or begin with "*". A star that
// ends within a label may stand for nothing: *web.example.com matches web.example.com, as in istiod.
func Covers(pattern, name string) bool {
	suffix, wild := strings.CutPrefix(pattern, "*")
	if !wild {
		return pattern == name
	}
	return strings.HasSuffix(strings.TrimPrefix(name, "*"), suffix) && (len(name) > len(suffix) || !strings.HasPrefix(suffix, "."))
}

// Overlap reports whether some host matches both a and b.
func Overlap(a, b string) bool { return Covers(a, b) || Covers(b, a) }

// Called describes a service, for the domains of its virtual host.
type Called struct {
	Host      string
	Aliases   []string // hosts of alias services of this one
	Addresses []string // addresses of the service in the proxy's cluster; CIDRs are ignored, because no request names one
	Headless  bool     // a Kubernetes service whose pods have names of their own
	Domain    string   // the proxy's domain, <namespace>.svc.<suffix>
}

// Domain returns a host as requests write it: an IPv6 address in brackets, any other host unchanged.
func Domain(host string) string {
	if strings.Contains(host, ":") { // parsing a text that is no address would be the slowest part here
		if _, err := netip.ParseAddr(host); err == nil {
			return "[" + host + "]"
		}
	}
	return host
}

// Domains lists the authorities, without ports, of requests to a service: the host, the host with a trailing dot, the
// short names that resolv.conf of the proxy's namespace allows, the same for each alias, names of pods if they have
// names, and the addresses. No domain occurs twice.
func Domains(c Called) []string {
	d := Distinct{List: make([]string, 0, 8)}
	for i := -1; i < len(c.Aliases); i++ {
		host := c.Host
		if i >= 0 {
			host = c.Aliases[i]
		}
		d.Add(host)
		d.Add(host + ".")
		for _, short := range shortNames(host, c.Domain) {
			d.Add(short)
		}
	}
	if c.Headless {
		for _, name := range d.List {
			d.Add("*." + name)
		}
	}
	for _, a := range c.Addresses {
		if _, err := netip.ParseAddr(a); err == nil {
			d.Add(Domain(a))
		}
	}
	return d.List
}

// WithPort returns domains as requests to an HTTP proxy name them: with the port, and also without it if it is 80.
func WithPort(domains []string, port uint32) []string {
	var list []string
	for _, d := range domains {
		if port == 80 {
			list = append(list, d)
		}
		list = append(list, d+":"+number(port))
	}
	return list
}

// shortNames returns the short names of a Kubernetes host for a proxy in a domain.
func shortNames(host, domain string) []string {
	own, suffix, _ := strings.Cut(domain, ".") // suffix is svc.<cluster domain>
	if !strings.HasPrefix(suffix, "svc.") || strings.HasPrefix(host, "*") {
		return nil
	}
	name, ok := strings.CutSuffix(host, "."+suffix)
	i := strings.LastIndexByte(name, '.')
	if !ok || i <= 0 {
		return nil
	}
	if name[i+1:] == own {
		return []string{name[:i], name + ".svc", name}
	}
	return []string{name, name + ".svc"}
}
