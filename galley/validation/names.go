package validation

import (
	"slices"
	"strings"

	kvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// isHost reports whether s is a DNS name by Istio's rules: no underscores, and no top-level domain of digits only.
func isHost(s string) bool {
	s, rooted := strings.CutSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return rooted || strings.Trim(s[strings.LastIndexByte(s, '.')+1:], "0123456789") != ""
}

// isLabel reports whether s is one label of a DNS name, in letters of either case.
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isWildcardHost reports whether s is a DNS name whose first label may be a star or end a prefix of one: *,
// *.example.com, *-web.example.com.
func isWildcardHost(s string) bool {
	if s == "*" {
		return true
	}
	rest, wild := strings.CutPrefix(s, "*")
	if !wild {
		return isHost(s)
	}
	return rest != "." && isHost("x"+rest)
}

// everyRoot is a text that Istio's webhook accepts as a host.
const everyRoot = "*."

// host checks the name of a service that is the destination of a route. A ServiceEntry may have a wildcard for a name.
func (p fieldRef) host() {
	switch s := p.text(); {
	case s == everyRoot:
		p.tolerated().bad("write a DNS name such as web.shop.svc.cluster.local", "%q is the name of nothing", s)
	case s == "*" || !isWildcardHost(s):
		p.bad("write a DNS name such as web.shop.svc.cluster.local", "%q is not a host name", s)
	}
}

// wildcardHost checks the name of one service or of many.
func (p fieldRef) wildcardHost() {
	if s := p.text(); !isWildcardHost(s) {
		if s == everyRoot {
			p.istioAccepts = true
		}
		p.bad(`write a DNS name, or a wildcard such as "*.example.com"`, "%q is not a host name", s)
	}
}

// calledHost checks a host of a VirtualService: a name of one service or of many, or an address. Any other text is an
// error in a review. In force, requests for the text get the routes of the object, as in istiod, unless no request can
// have it as its host.
func (p fieldRef) calledHost() {
	const fix = `write a DNS name, or a wildcard such as "*.example.com"`
	switch s := p.text(); {
	case isIP(s), isWildcardHost(s):
	case s == everyRoot, hasZone(s): // Istio's webhook accepts it
		p.warn(fix, "%q is not a host name", s)
	case strings.ContainsAny(s, "\x00\r\n:"):
		p.bad(fix, "%q is not a host name, and no request can name it", s)
	default:
		p.refuse(fix, "%q is not a host name", s)
	}
}

// longHost checks a host in which a name without a dot has no meaning. Hosts of a Gateway, for example, belong to no
// namespace.
func (p fieldRef) longHost(host string) {
	switch {
	case !isWildcardHost(host):
		if host == everyRoot {
			p.istioAccepts = true
		}
		p.bad(`write a DNS name, or a wildcard such as "*.example.com"`, "%q is not a host name", host)
	case host != "*" && !strings.Contains(host, "."):
		p.refuse("write the whole name, such as web.shop.svc.cluster.local", "%q is a short name", host)
	case len(host) > 1 && host[0] == '*' && host[1] != '.':
		p.refuse(`write a wildcard for whole labels, such as "*.example.com"`, "%q is a wildcard for a part of a label", host)
	}
}

// qualifiedHost checks namespace/host. The namespace may also be one of extra.
func (p fieldRef) qualifiedHost(extra ...string) {
	ns, host, found := strings.Cut(p.text(), "/")
	if !found {
		p.bad(`write namespace/host, such as "*/*" or "./web.shop.svc.cluster.local"`, "%q names no namespace", p.text())
		return
	}
	if !slices.Contains(extra, ns) && !isLabel(ns) {
		p.bad("use a namespace, or one of "+strings.Join(extra, " "), "%q is not a namespace", ns)
	}
	p.longHost(host)
}

// gatewayNames checks a list of gateways: mesh, name or namespace/name.
func (p fieldRef) gatewayNames() {
	for _, g := range p.items() {
		ns, name, qualified := strings.Cut(g.text(), "/")
		switch {
		case qualified && isLabel(ns) && isLabel(name), !qualified && isHost(ns):
		case qualified && isLabel(ns) && isHost(name):
			g.refuse("use letters, digits and dashes", "%q cannot be the name of a Gateway", name)
		default:
			g.bad("write mesh, the gateway's name, or namespace/name", "%q does not name a gateway", g.text())
		}
	}
}

// exportTo checks a list of namespaces in which an object is visible. Only services may be visible in none.
func (p fieldRef) exportTo(service bool) {
	seen := unique{}
	for _, e := range p.items() {
		seen.add(e, "namespace")
		switch s := e.text(); s {
		case "~":
			if service && len(p.items()) == 1 {
				continue
			}
			e.refuse(`use "." for this namespace`, "%q would make the object visible nowhere", s)
		case "*", ".":
			if len(p.items()) > 1 && s == "*" {
				e.bad("remove the others", "%q stands alone: it leaves nothing for others to add", s)
			}
		default:
			if !isLabel(s) {
				e.bad(`use "." for this namespace, "*" for all, or a namespace`, "%q is not a namespace", s)
			}
		}
	}
}

// protocols returns the protocols of ports in Istio's own objects.
func protocols() []string {
	return []string{"HTTP", "HTTPS", "GRPC", "GRPC-WEB", "HTTP2", "MONGO",
		"REDIS", "MYSQL", "TCP", "TLS", "UDP", "HBONE", "DOUBLE-HBONE", "HTTP_PROXY"}
}

// optionalProtocol checks the protocol of a port, which proxies detect if it is not written.
func (p fieldRef) optionalProtocol() {
	if !p.empty() {
		p.protocol()
	}
}

func (p fieldRef) protocol() {
	if p.empty() {
		p.add(diag.Error, "MissingField", "use one of "+strings.Join(protocols(), ", "), "a protocol is required")
		return
	}
	if !slices.Contains(protocols(), strings.ToUpper(p.text())) {
		fix := "use one of " + strings.Join(protocols(), ", ")
		if near := diag.Nearest(strings.ToUpper(p.text()), protocols()); near != "" {
			fix = diag.DidYouMean(near)
		}
		p.bad(fix, "unknown protocol %q", p.text())
	} else if strings.HasSuffix(strings.ToUpper(p.text()), "HBONE") {
		p.refuse("use another", "protocol %s is between proxies", p.text())
	}
}

// subsetName checks the name of a subset, which becomes part of a cluster's name.
func (p fieldRef) subsetName() {
	if len(kvalidation.IsDNS1123Label(strings.ToLower(p.text()))) > 0 {
		p.bad("use letters, digits and dashes", "%q is not the name of a subset", p.text())
	}
}

// workload checks a selector of pods by exact labels in the field with a name.
func (p fieldRef) workload(labels string) {
	p.at(labels).each(func(key string, value fieldRef) {
		switch {
		case key == "":
			value.bad("name the label", "an empty label name")
		case strings.Contains(key+value.text(), "*"):
			value.bad("write the whole value", "wildcards are not supported in selectors")
		default:
			value.selects(key)
		}
	})
}

// selecting warns of a selector that is written and has no labels, with its effect.
func (p fieldRef) selecting(labels, fix, effect string) {
	if !p.absent() && p.at(labels).empty() {
		p.warn(fix, "the selector has no labels: %s", effect)
	}
}

// selects warns of a label that no object can have.
func (p fieldRef) selects(key string) {
	if why := append(kvalidation.IsQualifiedName(key), kvalidation.IsValidLabelValue(p.text())...); len(why) > 0 {
		p.warn("correct the label", "nothing can have the label: %s", why[0])
	}
}

// portName checks the name of a port of a service, which may be missing.
func (p fieldRef) portName() {
	if !p.empty() && !isLabel(p.text()) {
		p.bad("use letters, digits and dashes", "%q is not the name of a port", p.text())
	}
}

// target checks the targets of a policy: a selector, or references to gateways and services.
func (p fieldRef) target() {
	p.exclusive("selector", "targetRef", "targetRefs")
	p.at("selector").workload("matchLabels")
	refs := p.at("targetRefs").items()
	if one := p.at("targetRef"); !one.absent() {
		refs = append(refs, one)
	}
	for _, ref := range refs {
		ref.required("kind")
		ref.required("name")
		if ns := ref.at("namespace"); ns.text() != "" {
			ns.bad("remove it", "a policy applies to objects of its own namespace only")
		}
		group, kind := ref.at("group").text(), ref.at("kind").text()
		switch group + "/" + kind {
		case "/Service", "core/Service", "gateway.networking.k8s.io/Gateway",
			"gateway.networking.k8s.io/GatewayClass", "networking.istio.io/ServiceEntry", "/":
		default:
			ref.at("kind").bad("use Gateway or GatewayClass of gateway.networking.k8s.io, Service, or ServiceEntry of networking.istio.io",
				"%s of group %q cannot be a target", kind, group)
		}
	}
}

// headerName checks the name of an HTTP header.
func (p fieldRef) headerName(name string) {
	if !names.HeaderName(name) {
		p.bad("use letters, digits and dashes", "%q is not the name of a header", name)
	}
}

// isPlainName reports whether a name has only ASCII letters, digits and characters in more.
func isPlainName(name, more string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(more, c)
	})
}

// serverName checks a host that is compared with the server name of a TLS connection.
func (p fieldRef) serverName() {
	if s := p.text(); s != "*" && strings.Contains(strings.TrimPrefix(s, "*."), "*") {
		p.bad(`write a whole name, or a wildcard for whole labels such as "*.example.com"`,
			"%q cannot be used for TLS: a star must stand for whole labels", s)
	}
}
