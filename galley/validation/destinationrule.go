package validation

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

func destinationRule(p fieldRef) {
	if p.required("host") {
		p.at("host").wildcardHost()
	}
	p.at("exportTo").exportTo()
	p.at("workloadSelector").workload("matchLabels")
	trafficPolicy(p.at("trafficPolicy"))
	names := unique{}
	for _, s := range p.at("subsets").items() {
		if s.required("name") {
			s.at("name").subsetName()
			names.add(s.at("name"), "subset name")
		}
		s.at("labels").labels()
		trafficPolicy(s.at("trafficPolicy"))
	}
}

func trafficPolicy(p fieldRef) {
	if p.absent() {
		return
	}
	if p.empty() {
		p.warn("remove it", "the traffic policy says nothing")
	}
	portPolicy(p)
	ports := unique{}
	for _, s := range p.at("portLevelSettings").items() {
		if !s.required("port") {
			continue
		}
		s.at("port").at("number").port()
		ports.add(s.at("port").at("number"), "port")
		portPolicy(s)
	}
	if t := p.at("tunnel"); !t.absent() {
		if proto := t.at("protocol"); !proto.empty() && !slices.Contains([]string{"CONNECT", "POST"}, strings.ToUpper(proto.text())) {
			proto.bad("use CONNECT or POST", "unknown tunnel protocol %q", proto.text())
		}
		if t.required("targetHost") {
			t.at("targetHost").host()
		}
		t.at("targetPort").port()
	}
	if b := p.at("retryBudget"); !b.absent() {
		b.at("percent").between(0, 100)
		b.at("budgetInterval").timeout()
	}
}

func portPolicy(p fieldRef) {
	connectionPool(p.at("connectionPool"))
	outlierDetection(p.at("outlierDetection"))
	loadBalancer(p.at("loadBalancer"))
	clientTLS(p.at("tls"))
}

func connectionPool(p fieldRef) {
	tcp, http := p.at("tcp"), p.at("http")
	tcp.at("maxConnections").atLeast(0)
	tcp.at("connectTimeout").interval()
	tcp.at("maxConnectionDuration").timeout()
	tcp.at("idleTimeout").timeout()
	for _, f := range []string{"time", "interval"} {
		if d := tcp.at("tcpKeepalive").at(f); !d.absent() && d.duration() < 0 {
			d.bad("write a positive duration", "the duration is negative")
		}
		tcp.at("tcpKeepalive").at(f).longest()
	}
	for _, f := range []string{"http1MaxPendingRequests", "http2MaxRequests", "maxRequestsPerConnection", "maxRetries", "maxConcurrentStreams"} {
		http.at(f).atLeast(0)
	}
	http.at("idleTimeout").timeout()
	http.at("http2KeepAlive").at("interval").interval()
	http.at("http2KeepAlive").at("timeout").interval()
	if http.at("useClientProtocol").is("true") && http.at("h2UpgradePolicy").is("UPGRADE") {
		http.at("h2UpgradePolicy").bad("remove one of them", "useClientProtocol and h2UpgradePolicy UPGRADE contradict each other")
	}
}

func outlierDetection(p fieldRef) {
	p.at("interval").interval()
	p.at("baseEjectionTime").interval()
	p.at("maxEjectionPercent").between(0, 100)
	p.at("minHealthPercent").between(0, 100)
	if old := p.at("consecutiveErrors"); !old.absent() {
		old.warn("use consecutive5xxErrors", "consecutiveErrors is no longer read")
	}
	if local := p.at("consecutiveLocalOriginFailures"); local.number() > 0 && !p.at("splitExternalLocalOriginErrors").is("true") {
		local.warn("set splitExternalLocalOriginErrors to true", "without splitExternalLocalOriginErrors the value has no effect")
	}
	for _, code := range p.at("outlierDetectionHttpErrorCodes").items() {
		code.between(100, 599)
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
	p.at("warmupDurationSecs").timeout()
	p.exclusive("warmup", "warmupDurationSecs")
	if w := p.at("warmup"); !w.absent() {
		if w.at("duration").absent() {
			w.missing("duration", "add duration", "duration is required")
		}
		w.at("duration").interval()
		w.at("minimumPercent").between(0, 100)
		w.at("aggression").atLeast(1)
	}
	for _, f := range []string{"localityLbSetting", "zoneAwareLbSetting"} {
		locality(p.at(f))
	}
	p.exclusive("localityLbSetting", "zoneAwareLbSetting")
}

func consistentHash(h fieldRef) {
	if h.at("httpHeaderName").absent() && h.at("httpCookie").absent() && h.at("useSourceIp").absent() && h.at("httpQueryParameterName").absent() {
		h.warn("add httpHeaderName, httpCookie, useSourceIp or httpQueryParameterName", "without a key to hash, requests are spread at random")
	}
	if name := h.at("httpHeaderName"); !name.absent() {
		name.headerName(name.text())
	}
	if c := h.at("httpCookie"); !c.absent() {
		c.required("name")
		c.at("ttl").longest()
		if ttl := c.at("ttl"); !ttl.absent() && ttl.duration() < 0 {
			ttl.bad("write 0s for a session cookie, or a positive duration", "the lifetime is negative")
		}
	}
	const maxTable = 5_000_011 // Envoy's bound
	if size := h.at("maglev").at("tableSize"); !size.absent() && size.number() != 0 {
		size.between(1, maxTable)
		if v := size.number(); v <= maxTable && !big.NewInt(int64(v)).ProbablyPrime(0) {
			size.bad("use 65537, or another prime number", "the size of a Maglev table must be a prime number")
		}
	}
	const maxRing = 8 << 20 // Envoy's bound
	h.at("ringHash").at("minimumRingSize").between(0, maxRing)
	h.at("minimumRingSize").between(0, maxRing)
}

// locality judges where traffic goes when endpoints are in several places.
func locality(p fieldRef) {
	if p.absent() {
		return
	}
	p.exclusive("distribute", "failover", "failoverPriority")
	from := unique{}
	for _, d := range p.at("distribute").items() {
		d.at("from").locality()
		from.add(d.at("from"), "locality")
		sum := 0.0
		d.at("to").each(func(to string, weight fieldRef) {
			weight.between(1, 100)
			sum += weight.number()
		})
		if sum != 100 {
			d.at("to").bad("make them add up to 100", "the weights add up to %v", math.Trunc(sum))
		}
	}
	for _, f := range p.at("failover").items() {
		f.required("from")
		f.required("to")
		if a, b := f.at("from").text(), f.at("to").text(); a != "" && a == b {
			f.at("to").bad("name another region", "locality %q cannot fail over to itself", a)
		}
		for _, end := range []string{"from", "to"} {
			if at := f.at(end); strings.ContainsAny(at.text(), "/*") {
				at.bad("write the region alone", "failover is between regions, not %q", at.text())
			}
		}
	}
}

// locality judges region/zone/subzone, where only the end may be a star.
func (p fieldRef) locality() {
	parts := strings.Split(p.text(), "/")
	for i, part := range parts {
		if part == "" || len(parts) > 3 || strings.Contains(part, "*") && (part != "*" || i != len(parts)-1) {
			p.bad(`write region/zone/subzone, the last of which may be "*"`, "%q is not a locality", p.text())
			return
		}
	}
}

func clientTLS(p fieldRef) {
	if p.absent() {
		return
	}
	if p.at("insecureSkipVerify").is("true") && !p.at("caCertificates").empty() {
		p.at("insecureSkipVerify").bad("remove one of them", "insecureSkipVerify and caCertificates contradict each other")
	}
	const longestName = 255 // Envoy's bound
	if sni := p.at("sni"); len(sni.text()) > longestName {
		sni.bad("write the server's DNS name", "the server name has %d bytes, more than %d", len(sni.text()), longestName)
	}
	files := []string{"clientCertificate", "privateKey", "caCertificates"}
	switch p.at("mode").text() {
	case "ISTIO_MUTUAL":
		for _, f := range append(files, "credentialName") {
			if at := p.at(f); !at.empty() {
				at.bad("remove it, or use mode MUTUAL", "with ISTIO_MUTUAL the proxy uses its own certificate")
			}
		}
	case "MUTUAL":
		if !p.at("credentialName").empty() {
			for _, f := range files {
				if at := p.at(f); !at.empty() {
					at.bad("keep one of the two", "credentialName already says where the certificates are")
				}
			}
			return
		}
		p.required("clientCertificate")
		p.required("privateKey")
	case "SIMPLE":
		if at := p.at("caCertificates"); !at.empty() && !p.at("credentialName").empty() {
			at.bad("keep one of the two", "credentialName already says where the certificates are")
		}
	}
}
