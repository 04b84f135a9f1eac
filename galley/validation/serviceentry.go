package validation

import (
	"cmp"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
)

func serviceEntry(p fieldRef) {
	p.required("hosts")
	resolution := p.at("resolution").text()
	resolution = cmp.Or(resolution, "NONE")
	endpoints := p.at("endpoints").items()
	wild, tls := false, slices.ContainsFunc(p.at("ports").items(), speaksTLS)
	seen := map[string]bool{}
	for _, h := range p.at("hosts").items() {
		if seen[h.text()] {
			h.warn("remove one of the two", "host %q is there twice", h.text())
		}
		seen[h.text()] = true
		if h.is("*") {
			h.bad("name the domain, such as *.example.com", "host * would take all traffic")
			continue
		}
		h.wildcardHost()
		if tls {
			h.tolerated().serverName()
		}
		wild = wild || strings.HasPrefix(h.text(), "*")
	}
	cidr := false
	for _, a := range p.at("addresses").items() {
		a.istioAccepts = hasZone(a.text())
		a.subnet()
		if prefix, err := netip.ParsePrefix(a.text()); err == nil {
			cidr = cidr || !prefix.IsSingleIP()
			if resolution != "NONE" && resolution != "STATIC" {
				a.bad("write single addresses", "a CIDR range can only be used with resolution NONE or STATIC")
			}
		}
	}
	if len(endpoints) == 0 && strings.HasPrefix(resolution, "DNS") {
		for _, h := range p.at("hosts").items() {
			h.ofAnotherHost()
		}
	}
	p.at("exportTo").exportTo(true)
	p.at("workloadSelector").workload("labels")
	p.at("workloadSelector").selecting("labels", "add labels", "here it selects no workload, where istiod takes all of the namespace")
	p.exclusive("workloadSelector", "endpoints")
	ports, internal := servicePorts(p), p.at("location").is("MESH_INTERNAL")
	sum := 0.0
	for _, e := range endpoints {
		endpoint(e, ports)
		if address := e.at("address"); internal || !isMetadataServer(address.text()) {
			address.ofAnotherHost()
		}
		sum += max(e.at("weight").number(), 1)
	}
	if sum > math.MaxUint32 {
		p.at("endpoints").warn("use smaller weights", "the weights add up to more than %d, and are scaled down", uint32(math.MaxUint32))
	}
	for _, port := range p.at("ports").items() {
		if p.at("addresses").empty() || cidr || !rawTCP(port) && !speaksTLS(port) {
			port.at("number").ownPort(true, false)
		}
	}
	resolutionRules(p, resolution, wild, cidr, endpoints)
}

// speaksTLS reports whether the connections of a port are distinguished by their server names. If the port has no
// protocol, its name decides.
func speaksTLS(port fieldRef) bool {
	protocol := port.at("protocol").text()
	if protocol == "" {
		protocol, _, _ = strings.Cut(port.at("name").text(), "-")
	}
	return strings.EqualFold(protocol, "TLS") || strings.EqualFold(protocol, "HTTPS")
}

// rawTCP reports whether the connections of a port do not name the host that they are for.
func rawTCP(port fieldRef) bool {
	switch strings.ToUpper(port.at("protocol").text()) {
	case "", "TCP", "MONGO", "REDIS", "MYSQL", "UDP":
		return !speaksTLS(port)
	}
	return false
}

// servicePorts checks the ports and returns their names.
func servicePorts(p fieldRef) map[string]bool {
	names, numbers := unique{}, unique{}
	known := map[string]bool{}
	if p.at("ports").empty() {
		p.at("ports").warn("add ports", "without ports the service cannot be called")
	}
	for _, port := range p.at("ports").items() {
		port.at("number").port()
		numbers.add(port.at("number"), "port number")
		if port.required("name") {
			port.at("name").portName()
			names.add(port.at("name"), "port name")
			known[port.at("name").text()] = true
		}
		if !port.at("protocol").empty() {
			port.at("protocol").protocol()
		}
		port.at("targetPort").optionalPort()
	}
	return known
}

func resolutionRules(p fieldRef, resolution string, wild, cidr bool, endpoints []fieldRef) {
	res := p.at("resolution")
	selects := !p.at("workloadSelector").absent()
	switch resolution {
	case "NONE":
		if len(endpoints) > 0 {
			p.at("endpoints").bad("set resolution to STATIC or DNS",
				"with resolution NONE traffic goes to the address that was called: there can be no endpoints")
		}
		if selects && !p.at("resolution").absent() {
			res.warn("set resolution to STATIC", "with resolution NONE the selected workloads are not used")
		}
	case "STATIC":
		for _, e := range endpoints {
			if a := e.at("address"); !isIP(a.text()) && !isSocket(a.text()) && !a.empty() && !hasZone(a.text()) {
				a.bad("write an IP address, or set resolution to DNS", "with resolution STATIC %q must be an IP address", a.text())
			}
		}
		p.toldApart()
		if len(endpoints) == 0 && !selects {
			res.warn("add endpoints or a workloadSelector", "with resolution STATIC and no endpoints every request fails")
		}
	case "DNS", "DNS_ROUND_ROBIN":
		if resolution == "DNS_ROUND_ROBIN" && len(endpoints) > 1 {
			p.at("endpoints").bad("keep one, or set resolution to DNS", "DNS_ROUND_ROBIN takes at most one endpoint")
		}
		p.toldApart()
		if len(endpoints) == 0 && wild {
			p.at("hosts").bad("add endpoints, or set resolution to DYNAMIC_DNS",
				"a wildcard host cannot be resolved: with resolution %s and no endpoints every host must be a whole name", resolution)
		}
		for _, e := range endpoints {
			a := e.at("address")
			if isSocket(a.text()) {
				a.bad("write a host name, or set resolution to STATIC", "a socket has no name to resolve")
			}
			if resolution == "DNS_ROUND_ROBIN" && a.empty() && !e.at("network").empty() {
				e.missing("address", "add address", "DNS_ROUND_ROBIN needs a name to resolve")
			} else if a.empty() && !e.at("network").empty() {
				e.at("address").refuse("add address", "there is no name to resolve")
			}
		}
	case "DYNAMIC_DNS":
		if len(endpoints) > 0 {
			p.at("endpoints").bad("remove them", "with resolution DYNAMIC_DNS the host that was called is resolved")
		}
		if !wild {
			res.bad("set resolution to DNS", "DYNAMIC_DNS is for wildcard hosts")
		}
		for _, h := range p.at("hosts").items() {
			if wild && !strings.HasPrefix(h.text(), "*") {
				h.refuse("write an entry of its own, with resolution DNS", "DYNAMIC_DNS is for wildcard hosts")
			}
		}
		for _, a := range p.at("addresses").items() {
			a.refuse("remove it", "with resolution DYNAMIC_DNS the host that was called is resolved")
		}
		for _, port := range p.at("ports").items() {
			if at := port.at("protocol"); !slices.Contains([]string{"HTTP", "TLS", "GRPC", "HTTP2"}, strings.ToUpper(at.text())) {
				at.refuse("use HTTP, HTTP2, GRPC or TLS", "requests of protocol %q do not say which host they are for", at.text())
			}
		}
	}
	if cidr && len(endpoints) > 0 && resolution == "STATIC" {
		p.at("addresses").warn("", "traffic to the whole range goes to the endpoints")
	}
}

// toldApart refuses several hosts on a port whose connections do not name their host. If the entry resolves names, it
// cannot be served.
func (p fieldRef) toldApart() {
	ports, complain := p.at("ports").items(), p.at("hosts").bad
	switch {
	case len(p.at("hosts").items()) < 2:
		return
	case slices.ContainsFunc(ports, rawTCP) && !p.at("resolution").is("STATIC"):
	case slices.ContainsFunc(ports, func(port fieldRef) bool { return rawTCP(port) || port.at("protocol").empty() }):
		complain = p.at("hosts").refuse
	default:
		return
	}
	complain("write an entry for each host", "hosts cannot be told apart on a port that is neither HTTP nor TLS")
}

// endpoint checks one endpoint of a ServiceEntry. Its ports must be names in ports.
func endpoint(e fieldRef, ports map[string]bool) {
	workload(e)
	e.at("ports").each(func(name string, number fieldRef) {
		if !ports[name] {
			number.bad("use the name of a port of the service", "port %q is none of the service's", name)
		}
	})
}

// workload checks the fields that WorkloadEntry and the endpoints of a ServiceEntry share.
func workload(w fieldRef) {
	address := w.at("address")
	switch {
	case address.empty():
		if w.at("network").empty() {
			w.missing("address", "add address", "address is required")
		}
	case isSocket(address.text()):
		address.socket()
		if !w.at("ports").empty() {
			w.at("ports").refuse("remove them", "a socket has no ports")
		}
	case !address.tolerated().withoutZone():
	case strings.Contains(address.text(), "*"):
		address.bad("write one address", "an address cannot be a wildcard")
	case !isIP(address.text()) && (!isHost(address.text()) || address.text() == "."):
		address.bad("write an IP address or a host name", "%q is not an address", address.text())
	}
	w.at("ports").each(func(name string, number fieldRef) {
		if name == "" {
			number.bad("name the port", "an empty port name")
		} else if !isLabel(name) {
			number.refuse("use letters, digits and dashes", "%q is not the name of a port", name)
		}
		number.between(1, 65535)
	})
	w.at("labels").workloadLabels()
	if l := w.at("locality"); strings.Contains(l.text(), "*") || strings.Count(l.text(), "/") > 2 {
		l.warn("write region/zone/subzone", "%q is not a locality", l.text())
	}
}

func workloadEntry(p fieldRef) {
	workload(p)
	p.at("address").ofAnotherHost()
	p.at("weight").beside()
}

// beside warns of a weight that exceeds a proxy's bound together with another such weight.
func (p fieldRef) beside() {
	if p.number() > math.MaxUint32/2 {
		p.warn("use a smaller weight", "weights that add up to more than %d are scaled down", uint32(math.MaxUint32))
	}
}

func workloadGroup(p fieldRef) {
	p.at("metadata").at("labels").labels()
	if p.at("template").absent() {
		p.missing("template", "add template: {}", "template is required")
	}
	t := p.at("template")
	if a := t.at("address"); !a.empty() {
		a.warn("remove it", "the address comes from the workload that registers")
	}
	t.at("weight").beside()
	t.at("labels").tolerated().labels()
	t.at("ports").tolerated().each(func(_ string, number fieldRef) { number.between(1, 65535) })
	probe := p.at("probe")
	if probe.absent() {
		return
	}
	for _, f := range []string{"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"} {
		probe.at(f).atLeast(0)
	}
	for _, f := range []string{"httpGet", "tcpSocket", "grpc"} {
		if m := probe.at(f); !m.absent() {
			m.at("port").port()
		}
	}
	http := probe.at("httpGet")
	if path := http.at("path"); !path.empty() && !strings.HasPrefix(path.text(), "/") {
		path.warn("begin it with /", "%q is not a path", path.text())
	}
	if s := http.at("scheme"); !s.empty() && !strings.EqualFold(s.text(), "http") && !strings.EqualFold(s.text(), "https") {
		s.bad("use HTTP or HTTPS", "unknown scheme %q", s.text())
	} else if s.text() != strings.ToUpper(s.text()) {
		s.refuse("write it in capital letters", "the scheme %q has small letters", s.text())
	}
	for _, h := range http.at("httpHeaders").items() {
		h.at("name").headerName(h.at("name").text())
		if name := h.at("name"); strings.Contains(name.text(), "_") {
			name.bad("use letters, digits and dashes", "%q is not the name of a header", name.text())
		} else if names.HeaderName(name.text()) && !isPlainName(name.text(), "-") {
			name.refuse("use letters, digits and dashes", "%q is not the name of a header", name.text())
		}
	}
	if probe.at("httpGet").absent() && probe.at("tcpSocket").absent() && probe.at("exec").absent() {
		probe.bad("add httpGet, tcpSocket or exec", "the probe has no method that is supported")
	}
	if x := probe.at("exec"); !x.absent() {
		x.required("command")
	}
}

func sidecar(p fieldRef) {
	p.at("workloadSelector").workload("labels")
	p.at("workloadSelector").selecting("labels", "add labels, or remove it", "it selects all workloads")
	connectionPool(p.at("inboundConnectionPool"))
	if !p.says("ingress", "egress", "outboundTrafficPolicy", "inboundConnectionPool") {
		p.refuse("add ingress or egress", "none of ingress, egress, outboundTrafficPolicy and inboundConnectionPool is set")
	}
	if e := p.at("outboundTrafficPolicy").at("egressProxy"); !e.absent() {
		if mode := p.at("outboundTrafficPolicy").at("mode"); !mode.is("ALLOW_ANY") {
			e.refuse("set mode to ALLOW_ANY, or remove it", "egressProxy is only for mode ALLOW_ANY")
		}
		destination(e)
		if strings.HasPrefix(e.at("host").text(), "*") {
			e.at("host").refuse("name one host", "%q is a wildcard", e.at("host").text())
		}
		if e.at("port").absent() {
			e.missing("port", "add port", "port is required")
		}
	}
	numbers := unique{}
	for _, in := range p.at("ingress").items() {
		if in.required("port") {
			in.at("port").at("number").port()
			in.at("port").at("protocol").optionalProtocol()
			in.at("port").at("name").portName()
			in.at("port").noTargetPort()
			numbers.add(in.at("port").at("number"), "port")
		}
		in.at("bind").bind(false)
		if d := in.at("defaultEndpoint"); !d.empty() {
			defaultEndpoint(d)
		}
		if t := in.at("tls"); !t.absent() {
			if t.at("mode").is("ISTIO_MUTUAL") || t.at("mode").is("AUTO_PASSTHROUGH") {
				t.at("mode").bad("use SIMPLE, MUTUAL or OPTIONAL_MUTUAL", "mode %s cannot be used in a Sidecar", t.at("mode").text())
			}
			protocol := strings.ToUpper(in.at("port").at("protocol").text())
			if protocol != "HTTPS" && protocol != "TLS" && !in.at("port").absent() {
				t.refuse("use protocol HTTPS or TLS, or remove tls", "a port of protocol %s cannot have tls", protocol)
			}
			for _, f := range []string{"credentialName", "credentialNames", "tlsCertificates", "subjectAltNames"} {
				if at := t.at(f); !at.empty() {
					at.refuse("write serverCertificate, privateKey and caCertificates", "%s cannot be used in a Sidecar", f)
				}
			}
			if r := t.at("httpsRedirect"); r.is("true") {
				r.refuse("remove it", "httpsRedirect cannot be used in a Sidecar")
			}
			serverTLS(t)
		}
		connectionPool(in.at("connectionPool"))
	}
	egress := p.at("egress").items()
	listeners := map[string]string{}
	for i, out := range egress {
		out.required("hosts")
		importedHosts(out.at("hosts"))
		port := out.at("port")
		port.noTargetPort()
		if port.absent() {
			if i != len(egress)-1 {
				out.bad("move it to the end", "a listener without port takes what the others leave, so it comes last")
			}
			if b := out.at("bind"); !b.empty() {
				b.tolerated().bind(false)
				b.warn("add port", "without a port, the listeners of every port are at this address")
			}
			continue
		}
		bind := out.at("bind").text()
		socket := isSocket(bind)
		if !socket {
			port.at("number").port()
		} else if port.at("number").number() != 0 {
			port.at("number").refuse("write 0", "a socket has no port")
		}
		port.at("protocol").optionalProtocol()
		port.at("name").portName()
		out.at("bind").bind(true)
		if binds := out.at("captureMode").is("NONE"); bind == "0.0.0.0" || bind == "" && !binds {
			port.at("number").ownPort(true, binds)
		}
		if socket && !out.at("captureMode").absent() && !out.at("captureMode").is("DEFAULT") && !out.at("captureMode").is("NONE") {
			out.at("captureMode").bad("use NONE", "traffic of a socket cannot be captured")
		}
		key := port.at("number").text()
		if socket {
			key = bind
		}
		if first, dup := listeners[key]; dup {
			port.bad("choose another port", "the port is already used at %s", first)
		}
		listeners[key] = out.path()
	}
}

// maxExcluded bounds how many excluded hosts of a listener are compared with its other hosts.
const maxExcluded = 64

// importedHosts checks the hosts of an egress listener: namespace/host, with a ~ in front if it is excluded.
func importedHosts(hosts fieldRef) {
	var excluded []string
	imports := false
	for _, h := range hosts.items() {
		ns, host, found := strings.Cut(h.text(), "/")
		name, out := strings.CutPrefix(ns, "~")
		if !found || !out {
			h.qualifiedHost("*", ".", "~")
			imports = true
			continue
		}
		if name != "" && name != "*" && name != "." && !isLabel(name) {
			h.bad("write a namespace, * or . behind the tilde, or nothing for any namespace", "%q is not a namespace behind a tilde", ns)
		}
		h.longHost(host)
		if len(excluded) < maxExcluded {
			excluded = append(excluded, h.text())
		}
	}
	if len(excluded) == 0 {
		return
	}
	if !imports {
		if !slices.ContainsFunc(hosts.items(), func(h fieldRef) bool { return h.is("~/*") }) {
			hosts.warn(`add a host to import, such as "*/*", or write "~/*" alone`, "all hosts are excluded: the listener imports nothing")
		}
		return
	}
	out := names.ParseEgressHosts(excluded, ".")
	for _, h := range hosts.items() {
		if p := names.ParseEgressHost(h.text(), "."); !p.Excluded && out.Excludes(p.Namespace, p.Host) {
			h.warn("remove it, or what excludes it", "it has no effect: a host behind a tilde excludes all of it")
		}
	}
}

// defaultEndpoint checks the address that an ingress listener forwards to: a port of this host or pod, or a socket.
func defaultEndpoint(d fieldRef) {
	if isSocket(d.text()) {
		d.socket()
		return
	}
	i := strings.LastIndexByte(d.text(), ':')
	if i < 0 {
		d.bad("write 127.0.0.1:PORT", "%q has no port", d.text())
		return
	}
	if _, _, err := net.SplitHostPort(d.text()); err != nil {
		d.refuse("write 127.0.0.1:PORT or [::1]:PORT", "%q is no address with a port", d.text())
	}
	switch strings.Trim(d.text()[:i], "[]") {
	case "127.0.0.1", "0.0.0.0", "::1", "::":
	default:
		if !isIP(strings.Trim(d.text()[:i], "[]")) {
			if i == 0 {
				d.istioAccepts = true
			}
			d.bad("use 127.0.0.1, 0.0.0.0, [::1], [::] or unix://", "%q is not an IP address", d.text()[:i])
			break
		}
		d.refuse("use 127.0.0.1, 0.0.0.0, [::1], [::] or unix://", "%q is not an address of this pod", d.text()[:i])
	}
	if n, err := strconv.Atoi(d.text()[i+1:]); err != nil || n < 1 || n > 65535 {
		d.bad("write a port from 1 to 65535", "%q is not a port", d.text()[i+1:])
	}
}
