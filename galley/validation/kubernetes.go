package validation

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// oneOf checks that a word is in a set.
func (p fieldRef) oneOf(words ...string) {
	if !p.empty() && !slices.Contains(words, p.text()) {
		p.add(diag.Error, "UnknownValue", diag.UnknownName(p.text(), words), "%q is none of the values of this field", p.text())
	}
}

func service(p fieldRef) {
	spec := p.at("spec")
	spec.at("type").oneOf("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
	if spec.at("type").is("ExternalName") {
		if spec.required("externalName") {
			spec.at("externalName").host()
			spec.at("externalName").ofAnotherHost()
		}
	}
	clusterIP := func(a fieldRef) {
		if !a.empty() && !a.is("None") && !isIP(a.text()) {
			a.bad("write an IP address or None", "%q is not an IP address", a.text())
		}
	}
	clusterIP(spec.at("clusterIP"))
	for _, a := range spec.at("clusterIPs").items() {
		clusterIP(a)
	}
	spec.at("selector").labels()
	ports := spec.at("ports").items()
	names, numbers := unique{}, map[string]string{}
	for _, port := range ports {
		port.at("port").port()
		port.at("nodePort").optionalPort()
		port.at("protocol").oneOf("TCP", "UDP", "SCTP")
		if len(ports) > 1 {
			port.required("name")
		}
		names.add(port.at("name"), "port name")
		protocol := port.at("protocol").text()
		protocol = cmp.Or(protocol, "TCP")
		key := port.at("port").text() + "/" + protocol
		if first, dup := numbers[key]; dup {
			port.at("port").bad("choose another", "port %s is already used at %s", key, first)
		}
		numbers[key] = port.path()
		targetPort(port.at("targetPort"))
		if port.at("appProtocol").empty() && protocol == "TCP" {
			portName(port.at("name"))
		}
	}
}

// portName warns if the prefix of a port's name, up to the first dash, is almost a protocol. Any other prefix is
// allowed.
func portName(p fieldRef) {
	said, _, _ := strings.Cut(strings.ToLower(p.text()), "-")
	known := strings.Fields(strings.ToLower(strings.Join(protocols(), " ")))
	if slices.Contains(known, said) {
		return
	}
	word, _, _ := strings.Cut(said, "_")
	for _, protocol := range known {
		// Shorter words are too similar to each other.
		if word == protocol || len(word) > 3 && diag.Distance(word, protocol) == 1 {
			rest := strings.Trim(p.text()[len(word):], "_-")
			p.warn(diag.DidYouMean(strings.TrimSuffix(protocol+"-"+rest, "-")),
				"the name %q begins with no known protocol: proxies detect the protocol of each connection", p.text())
			return
		}
	}
}

// targetPort checks a port number or the name of a container's port.
func targetPort(p fieldRef) {
	switch {
	case p.absent():
	case p.node.shape == number:
		p.between(1, 65535)
	case p.empty() || len(p.text()) > 15:
		p.bad("write a number, or the name of a container's port", "%q is not the name of a port", p.text())
	}
}

// serviceImport checks the addresses of a ServiceImport. The schema checks the rest.
func serviceImport(p fieldRef) {
	for _, ip := range p.at("spec").at("ips").items() {
		if !isIP(ip.text()) {
			ip.bad("write an IP address", "%q is not an IP address", ip.text())
		} else if why := ownHost(ip.text()); why != "" {
			ip.bad("write the address of the service in the cluster", "%q is %s: it is not the address of a service", ip.text(), why)
		}
	}
}

func endpointSlice(p fieldRef) {
	if !p.required("addressType") {
		return
	}
	p.at("addressType").oneOf("IPv4", "IPv6", "FQDN")
	for _, e := range p.at("endpoints").items() {
		e.required("addresses")
		for _, a := range e.at("addresses").items() {
			if !a.withoutZone() {
				continue
			}
			a.ofAnotherHost()
			ip, err := netip.ParseAddr(a.text())
			switch kind := p.at("addressType").text(); {
			case kind == "IPv4" && (err != nil || !ip.Is4()), kind == "IPv6" && (err != nil || !ip.Is6()), kind == "FQDN" && !isHost(a.text()):
				a.bad("write an address of that type, or use a slice of another", "%q is not of address type %s", a.text(), kind)
			}
		}
	}
	names := unique{}
	for _, port := range p.at("ports").items() {
		names.add(port.at("name"), "port name")
		port.at("port").between(1, 65535)
		port.at("protocol").oneOf("TCP", "UDP", "SCTP")
	}
}

func pod(p fieldRef) {
	address := func(a fieldRef) {
		if !a.empty() && !isIP(a.text()) {
			a.bad("write an IP address", "%q is not an IP address", a.text())
		}
	}
	status := p.at("status")
	address(status.at("podIP"))
	for _, a := range status.at("podIPs").items() {
		address(a.at("ip"))
	}
	for _, c := range p.at("spec").at("containers").items() {
		for _, port := range c.at("ports").items() {
			port.at("containerPort").port()
			port.at("protocol").oneOf("TCP", "UDP", "SCTP")
		}
	}
}

func kubeGateway(p fieldRef) {
	spec := p.at("spec")
	spec.required("gatewayClassName")
	listeners(spec)
}

func listenerSet(p fieldRef) {
	spec := p.at("spec")
	spec.at("parentRef").required("name")
	listeners(spec)
}

// listeners checks the listeners of a Gateway or a ListenerSet.
func listeners(spec fieldRef) {
	spec.required("listeners")
	names := unique{}
	for _, l := range spec.at("listeners").items() {
		if l.required("name") {
			names.add(l.at("name"), "listener name")
		}
		l.at("port").port()
		l.at("port").ownPort(false, true)
		l.required("protocol") // its status, and a finding, report unsupported names
		if h := l.at("hostname"); !h.empty() {
			h.kubeHostname()
		}
		l.at("tls").at("mode").oneOf("Terminate", "Passthrough")
		l.at("allowedRoutes").at("namespaces").at("from").oneOf("All", "Selector", "Same", "None")
	}
}

// kubeRoute checks the common fields of Gateway API routes.
func kubeRoute(p fieldRef) {
	spec := p.at("spec")
	for _, ref := range spec.at("parentRefs").items() {
		ref.required("name")
		ref.at("port").between(1, 65535)
	}
	for _, h := range spec.at("hostnames").items() {
		h.kubeHostname()
	}
	for _, r := range spec.at("rules").items() {
		for _, b := range r.at("backendRefs").items() {
			b.required("name")
			b.at("port").between(1, 65535)
			b.at("weight").between(0, 1_000_000)
		}
		for _, m := range r.at("matches").items() {
			routeMatch(m)
		}
	}
}

// connectionRoute checks a Gateway API route of connections. For routes of requests, the finding of their backends says
// which requests fail.
func connectionRoute(p fieldRef) {
	kubeRoute(p)
	for _, r := range p.at("spec").at("rules").items() {
		backends := r.at("backendRefs").items()
		if len(backends) > 0 && !slices.ContainsFunc(backends, func(b fieldRef) bool {
			w := b.at("weight")
			return w.absent() || w.number() > 0
		}) {
			r.at("backendRefs").warn("give one a weight", "the weights of the backends add up to 0: every connection fails")
		}
	}
}

// kubeHostname checks a hostname of the Gateway API. A hostname that the CustomResourceDefinitions accept is no error,
// because an object in the API server must get a status.
func (p fieldRef) kubeHostname() {
	s := p.text()
	if isWildcardHost(s) || !isKubeHostname(s) {
		p.wildcardHost()
		return
	}
	p.warn("write a DNS name such as web.example.com or *.example.com", "%q is no DNS name: no client asks for it", s)
}

// isKubeHostname reports whether the CustomResourceDefinitions of the Gateway API accept s as a hostname.
func isKubeHostname(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(s, "*."), ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

func routeMatch(m fieldRef) {
	path := m.at("path")
	path.at("type").oneOf("Exact", "PathPrefix", "RegularExpression")
	if path.at("type").is("RegularExpression") {
		path.at("value").kubeExpression()
	} else if v := path.at("value"); !v.absent() && !strings.HasPrefix(v.text(), "/") {
		v.bad("begin it with /", "%q is not a path", v.text())
	}
	method := m.at("method")
	if !method.absent() && method.node.shape == mapping { // GRPCRoute
		method.at("type").oneOf("Exact", "RegularExpression")
		if method.at("type").is("RegularExpression") {
			method.at("service").kubeExpression()
			method.at("method").kubeExpression()
		}
	}
	for _, f := range []string{"headers", "queryParams"} {
		for _, h := range m.at(f).items() {
			h.required("name")
			h.at("type").oneOf("Exact", "RegularExpression")
			if h.at("type").is("RegularExpression") {
				h.at("value").kubeExpression()
			}
		}
	}
}
