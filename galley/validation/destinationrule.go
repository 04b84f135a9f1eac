package validation

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"time"
)

func destinationRule(p fieldRef) {
	if p.required("host") {
		p.at("host").wildcardHost()
	}
	p.at("exportTo").exportTo(false)
	p.at("workloadSelector").workload("matchLabels")
	p.at("workloadSelector").selecting("matchLabels", "add matchLabels, or remove it",
		"the rule is for all workloads of its own namespace, and for no other")
	if e := p.at("exportTo"); !p.at("workloadSelector").absent() &&
		slices.ContainsFunc(e.items(), func(i fieldRef) bool { return !i.is(".") }) {
		e.refuse(`write "." alone`, "a rule with a workloadSelector is for its own namespace")
	}
	trafficPolicy(p.at("trafficPolicy"))
	names := unique{}
	for _, s := range p.at("subsets").items() {
		if s.required("name") {
			s.at("name").subsetName()
			names.add(s.at("name"), "subset name")
		}
		s.at("labels").workloadLabels()
		trafficPolicy(s.at("trafficPolicy"))
	}
}

func trafficPolicy(p fieldRef) {
	if p.absent() {
		return
	}
	if !p.says("loadBalancer", "connectionPool", "outlierDetection", "tls", "portLevelSettings", "tunnel", "proxyProtocol", "retryBudget") {
		p.refuse("remove it", "the traffic policy is empty")
	}
	if !p.at("tunnel").absent() && !p.at("proxyProtocol").absent() {
		p.at("proxyProtocol").bad("keep one of the two", "tunnel and proxyProtocol exclude each other")
	}
	portPolicy(p)
	ports := unique{}
	for _, s := range p.at("portLevelSettings").items() {
		if !s.says("loadBalancer", "connectionPool", "outlierDetection", "tls") {
			s.refuse("remove it", "the settings of the port say nothing")
		}
		if s.at("port").absent() {
			s.required("port")
			continue
		}
		if n := s.at("port").at("number"); n.number() < 1 || n.number() > 65535 {
			n.warn("write a port from 1 to 65535", "%q is not a port: the settings have no effect", n.text())
		}
		if first, dup := ports[s.at("port").at("number").text()]; dup {
			s.warn("remove one of the two", "the settings have no effect: those at %s are for the same port, and come first", first)
		}
		ports[s.at("port").at("number").text()] = s.path()
		portPolicy(s)
	}
	if t := p.at("tunnel"); !t.absent() {
		if proto := t.at("protocol"); !proto.empty() && !slices.Contains([]string{"CONNECT", "POST"}, proto.text()) {
			proto.bad("use CONNECT or POST", "unknown tunnel protocol %q", proto.text())
		}
		if t.required("targetHost") && !isHost(t.at("targetHost").text()) && !isIP(t.at("targetHost").text()) {
			t.at("targetHost").bad("write a DNS name or an address", "%q is not a host", t.at("targetHost").text())
		}
		t.at("targetPort").port()
	}
	if b := p.at("retryBudget"); !b.absent() {
		b.at("percent").tolerated().between(0, 100)
		b.at("budgetInterval").tolerated().timeout()
	}
}

func portPolicy(p fieldRef) {
	connectionPool(p.at("connectionPool"))
	outlierDetection(p.at("outlierDetection"))
	loadBalancer(p.at("loadBalancer"))
	clientTLS(p.at("tls"))
}

// says reports whether a mapping has one of the fields.
func (p fieldRef) says(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		at := p.at(name)
		return !at.absent() && (at.node.shape != list || !at.empty())
	})
}

func connectionPool(p fieldRef) {
	tcp, http := p.at("tcp"), p.at("http")
	if !p.absent() && tcp.absent() && http.absent() {
		p.refuse("add tcp or http, or remove it", "the connection pool is empty")
	}
	tcp.at("maxConnections").atLeast(0)
	tcp.at("connectTimeout").interval()
	tcp.at("maxConnectionDuration").timeout()
	if d := tcp.at("maxConnectionDuration"); !d.absent() && d.duration() == 0 {
		d.refuse("write a positive duration, or remove it", "the duration is zero")
	}
	idle := tcp.at("idleTimeout")
	idle.istioAccepts = idle.duration() > -time.Millisecond
	idle.timeout()
	for _, f := range []string{"time", "interval"} {
		if d := tcp.at("tcpKeepalive").at(f); !d.absent() && d.duration() < 0 {
			d.bad("write a positive duration", "the duration is negative")
		} else if !d.absent() && d.duration() < time.Millisecond {
			d.refuse("write a positive duration, or remove it", "the duration is less than 1ms")
		}
		tcp.at("tcpKeepalive").at(f).longest()
	}
	for _, f := range []string{"http1MaxPendingRequests", "http2MaxRequests",
		"maxRequestsPerConnection", "maxRetries", "maxConcurrentStreams"} {
		http.at(f).atLeast(0)
	}
	http.at("idleTimeout").timeout()
	if d := http.at("idleTimeout"); !d.absent() && d.duration() == 0 {
		d.refuse("write a positive duration, or remove it", "the duration is zero")
	}
	if k := http.at("http2KeepAlive"); !k.absent() {
		for _, f := range []string{"interval", "timeout"} {
			if k.at(f).absent() {
				k.missing(f, "add "+f, "%s is required", f)
			}
			k.at(f).interval()
		}
	}
	if http.at("useClientProtocol").is("true") && http.at("h2UpgradePolicy").is("UPGRADE") {
		http.at("h2UpgradePolicy").bad("remove one of them", "useClientProtocol and h2UpgradePolicy UPGRADE contradict each other")
	}
}

func outlierDetection(p fieldRef) {
	p.at("interval").interval()
	p.at("baseEjectionTime").interval()
	p.at("maxEjectionPercent").between(0, 100)
	p.at("minHealthPercent").between(0, 100)
	share := p.at("failurePercentageThreshold")
	if share.between(0, 100); share.is("0") {
		share.warn("write a percentage of 1 or more, or remove it", "no endpoint is ejected for its share of failures")
	}
	if old := p.at("consecutiveErrors"); !old.absent() {
		old.warn("use consecutive5xxErrors", "consecutiveErrors is no longer read")
	}
	if local := p.at("consecutiveLocalOriginFailures"); local.number() > 0 && !p.at("splitExternalLocalOriginErrors").is("true") {
		local.refuse("set splitExternalLocalOriginErrors to true", "without splitExternalLocalOriginErrors the value has no effect")
	}
	for _, code := range p.at("outlierDetectionHttpErrorCodes").items() {
		code.tolerated().between(100, 599)
	}
}

func loadBalancer(p fieldRef) {
	if p.absent() {
		return
	}
	if p.at("simple").is("LEAST_CONN") {
		p.at("simple").warn("use LEAST_REQUEST", "LEAST_CONN is deprecated")
	}
	if h := p.at("consistentHash"); !h.absent() {
		consistentHash(h)
	}
	if u := p.at("backendUtilization"); !u.absent() {
		backendUtilization(u)
		if zones := p.at("zoneAwareLbSetting"); !zones.absent() {
			zones.warn("use localityLbSetting", "with backendUtilization proxies prefer no zone")
		}
	}
	p.at("warmupDurationSecs").tolerated().timeout()
	if !p.at("warmup").absent() && !p.at("warmupDurationSecs").absent() {
		p.at("warmupDurationSecs").warn("remove it", "warmup says it already")
	}
	if w := p.at("warmup"); !w.absent() {
		if w.at("duration").absent() {
			w.missing("duration", "add duration", "duration is required")
		}
		w.at("duration").interval()
		w.at("minimumPercent").between(0, 100)
		a := w.at("aggression")
		a.istioAccepts = a.number() > 0
		a.atLeast(1)
	}
	for _, f := range []string{"localityLbSetting", "zoneAwareLbSetting"} {
		locality(p.at(f))
	}
	p.exclusive("localityLbSetting", "zoneAwareLbSetting")
}

// backendUtilization checks how the load reports of endpoints decide their weights.
func backendUtilization(u fieldRef) {
	for _, f := range []string{"weightStabilizationPeriod", "weightExpirationPeriod", "weightUpdatePeriod"} {
		if d := u.at(f); !d.absent() && d.duration() < 0 {
			d.bad("write a positive duration", "the duration is negative")
		}
		u.at(f).longest()
	}
	if d := u.at("weightExpirationPeriod"); !d.absent() && d.duration() == 0 {
		d.refuse("write a positive duration, or remove it", "every weight expires at once: all endpoints have the same")
	}
	const least = 100 * time.Millisecond // Envoy's bound
	if d := u.at("weightUpdatePeriod"); !d.absent() && d.duration() >= 0 && d.duration() < least {
		d.refuse("write 100ms or more", "proxies update weights every 100ms at most, and that applies")
	}
	for _, m := range u.at("metricNamesForComputingUtilization").items() {
		group, key, mapped := strings.Cut(m.text(), ".")
		single := slices.Contains([]string{"application_utilization", "cpu_utilization", "mem_utilization", "rps_fractional", "eps"}, group)
		switch {
		case m.empty():
			m.tolerated().bad("remove it", "an empty name")
		case mapped && key != "" && slices.Contains([]string{"utilization", "named_metrics", "request_cost"}, group), single && !mapped:
		default:
			m.warn("write application_utilization, cpu_utilization, mem_utilization, or a metric such as named_metrics.NAME",
				"%q is no metric of a load report", m.text())
		}
	}
}

func consistentHash(h fieldRef) {
	if h.at("httpHeaderName").absent() && h.at("httpCookie").absent() &&
		h.at("useSourceIp").absent() && h.at("httpQueryParameterName").absent() {
		h.warn("add httpHeaderName, httpCookie, useSourceIp or httpQueryParameterName", "without a key to hash, requests are spread at random")
	}
	if name := h.at("httpHeaderName"); !name.absent() {
		name.tolerated().headerName(name.text())
	}
	if c := h.at("httpCookie"); !c.absent() {
		c.required("name")
		for _, a := range c.at("attributes").items() {
			if a.at("name").empty() {
				a.at("name").refuse("add name", "name is required")
			}
		}
		c.at("ttl").longest()
		if ttl := c.at("ttl"); !ttl.absent() && ttl.duration() < 0 {
			ttl.tolerated().bad("write 0s for a session cookie, or a positive duration", "the lifetime is negative")
		}
	}
	const maxTable = 5_000_011 // Envoy's bound
	if !h.at("minimumRingSize").absent() && !(h.at("maglev").absent() && h.at("ringHash").absent()) {
		h.at("minimumRingSize").refuse("remove it", "minimumRingSize is the older form of ringHash")
	}
	if size := h.at("maglev").at("tableSize"); !h.at("maglev").absent() && size.number() == 0 {
		size.bad("write 65537, or another prime number", "tableSize is required")
	} else if !size.absent() {
		size.between(1, maxTable-1)
		if v := size.number(); v < maxTable && !big.NewInt(int64(v)).ProbablyPrime(0) {
			size.istioAccepts = v == 1
			size.bad("use 65537, or another prime number", "the size of a Maglev table must be a prime number")
		}
	}
	const maxRing = 8 << 20 // Envoy's bound
	h.at("ringHash").at("minimumRingSize").tolerated().between(0, maxRing)
	h.at("minimumRingSize").tolerated().between(0, maxRing)
}

// locality checks the distribution of traffic among localities.
func locality(p fieldRef) {
	if p.absent() {
		return
	}
	p.exclusive("distribute", "failover")
	if more := p.at("failoverPriority"); !more.empty() && !(p.at("distribute").empty() && p.at("failover").empty()) {
		more.warn("keep one of them", "failoverPriority, distribute and failover say where traffic goes, each in its own way")
	}
	var from []place
	for _, d := range p.at("distribute").items() {
		d.at("from").locality(d.at("from").text())
		d.at("from").apart(d.at("from").text(), &from)
		sum := 0.0
		var all []place
		d.at("to").each(func(to string, weight fieldRef) {
			weight.locality(to)
			weight.apart(to, &all)
			weight.between(1, 100)
			sum += weight.number()
		})
		if sum != 100 {
			d.at("to").bad("make them add up to 100", "the weights add up to %v", math.Trunc(sum))
		}
	}
	for _, f := range p.at("failover").items() {
		if f.at("from").empty() != f.at("to").empty() {
			f.warn("add from and to", "a failover needs both: it has no effect")
		}
		switch a, b := f.at("from").text(), f.at("to").text(); {
		case a == "" && b == "":
			f.refuse("add from and to", "a failover without regions has no effect")
		case a == b:
			f.at("to").bad("name another region", "locality %q cannot fail over to itself", a)
		}
		for _, end := range []string{"from", "to"} {
			if at := f.at(end); strings.ContainsAny(at.text(), "/*") {
				at.bad("write the region alone", "failover is between regions, not %q", at.text())
			}
		}
	}
}

// locality checks the form region/zone/subzone, which may have a star at the end only.
func (p fieldRef) locality(s string) {
	parts := strings.Split(s, "/")
	for i, part := range parts {
		if part == "" || strings.Contains(part, "*") && (!strings.HasSuffix(part, "*") || strings.Count(s, "*") > 1 || i != len(parts)-1) {
			p.bad(`write region/zone/subzone, the last of which may be "*"`, "%q is not a locality", s)
			return
		}
	}
	if len(parts) > 3 || strings.HasSuffix(s, "*") && parts[len(parts)-1] != "*" {
		p.warn(`write region/zone/subzone, the last of which may be "*"`, "%q is the locality of nothing", s)
	}
}

// maxLocalities bounds a list of localities, because each is compared with all before it.
const maxLocalities = 1000

// place is a locality, or all localities within one.
type place struct {
	text, locality string
	all            bool
}

// apart reports a locality that overlaps an earlier one or exceeds maxLocalities, and appends it to the earlier ones.
func (p fieldRef) apart(s string, before *[]place) {
	is := place{s, strings.TrimSuffix(strings.TrimSuffix(s, "*"), "/"), strings.HasSuffix(s, "*")}
	switch {
	case len(*before) > maxLocalities:
		return
	case len(*before) == maxLocalities:
		p.bad("write regions or zones instead of the localities in them", "there are more than %d localities", maxLocalities)
	default:
		for _, b := range *before {
			if s == b.text || b.all && under(is.locality, b.locality) || is.all && under(b.locality, is.locality) {
				p.bad("choose another", "locality %q overlaps %q", s, b.text)
				break
			}
			if under(is.locality, b.locality) || under(b.locality, is.locality) {
				p.refuse("choose another", "one of the localities %q and %q is within the other", s, b.text)
				break
			}
		}
	}
	*before = append(*before, is)
}

// under reports whether a locality equals other or lies within it. Every locality lies within the empty one.
func under(locality, other string) bool {
	rest, ok := strings.CutPrefix(locality, other)
	return ok && (other == "" || rest == "" || rest[0] == '/')
}

func clientTLS(p fieldRef) {
	if p.absent() {
		return
	}
	for _, f := range []string{"caCertificates", "credentialName", "caCertCredentialName", "subjectAltNames"} {
		if skip := p.at("insecureSkipVerify"); skip.is("true") && !p.at(f).empty() {
			mode := p.at("mode").text()
			skip.istioAccepts = mode != "SIMPLE" && (mode != "MUTUAL" || !p.at("credentialName").empty())
			skip.bad("remove one of them", "insecureSkipVerify and %s contradict each other", f)
		}
	}
	for _, f := range []string{"credentialName", "caCertCredentialName"} {
		if name, ok := strings.CutPrefix(p.at(f).text(), "configmap://"); ok && !strings.Contains(name, "/") {
			p.at(f).bad("write configmap://NAMESPACE/NAME", "%q names no namespace", name)
		}
	}
	if roots := p.at("caCertificates"); !roots.empty() && !p.at("caCertCredentialName").empty() {
		roots.refuse("keep one of the two", "caCertCredentialName already says where the CA certificates are")
	}
	const longestName = 255 // Envoy's bound
	if sni := p.at("sni"); len(sni.text()) > longestName {
		sni.tolerated().bad("write the server's DNS name", "the server name has %d bytes, more than %d", len(sni.text()), longestName)
	}
	files := []string{"clientCertificate", "privateKey", "caCertificates"}
	switch p.at("mode").text() {
	case "ISTIO_MUTUAL":
		for _, f := range append(files, "credentialName", "caCertCredentialName") {
			if at := p.at(f); !at.empty() {
				at.warn("remove it, or use mode MUTUAL", "with ISTIO_MUTUAL the proxy uses its own certificate")
			}
		}
	case "MUTUAL":
		if !p.at("credentialName").empty() {
			for _, f := range append(files, "caCrl") {
				if at := p.at(f); !at.empty() {
					at.refuse("keep one of the two", "credentialName already says where the certificates are")
				}
			}
			return
		}
		p.required("clientCertificate")
		p.required("privateKey")
	case "SIMPLE":
		for _, f := range append(files, "caCrl") {
			if at := p.at(f); !at.empty() && !p.at("credentialName").empty() {
				at.refuse("keep one of the two", "credentialName already says where the certificates are")
			}
		}
	}
}
