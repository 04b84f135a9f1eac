package validation

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

func gateway(p fieldRef) {
	p.required("servers")
	p.at("selector").each(func(key string, value fieldRef) { value.selects(key) })
	names, portNames := unique{}, unique{}
	for _, s := range p.at("servers").items() {
		names.add(s.at("name").tolerated(), "server name")
		if s.required("port") {
			portNames.add(s.at("port").at("name"), "port name")
		}
		server(s)
	}
}

func server(s fieldRef) {
	port := s.at("port")
	if !port.absent() {
		if !isSocket(s.at("bind").text()) {
			port.at("number").port()
			if bind := s.at("bind").text(); bind == "" || bind == "0.0.0.0" {
				port.at("number").ownPort(false, true)
			}
		} else if port.at("number").number() != 0 {
			port.at("number").refuse("write 0", "a socket has no port")
		}
		port.at("protocol").protocol()
		port.required("name")
		port.noTargetPort()
	}
	s.at("bind").bind(true)
	s.required("hosts")
	for _, h := range s.at("hosts").items() {
		if strings.Contains(h.text(), "/") {
			h.qualifiedHost("*", ".")
		} else {
			switch {
			case !isIP(h.text()):
				h.longHost(h.text())
			case strings.Contains(h.text(), ":"):
				h.refuse("write the name of the host", "%q is an address, and no name", h.text())
			}
		}
	}
	if e := s.at("defaultEndpoint"); !e.empty() {
		e.warn("remove it", "defaultEndpoint is not supported")
	}
	tls := s.at("tls")
	secure := slices.Contains([]string{"HTTPS", "TLS"}, strings.ToUpper(port.at("protocol").text()))
	switch {
	case secure && tls.absent():
		s.missing("tls", "add tls with a mode and a credentialName", "a server of protocol %s needs tls", port.at("protocol").text())
	case !secure && !tls.absent() && !port.absent():
		_, plain := slices.BinarySearch([]string{"GRPC", "GRPC-WEB", "HTTP", "HTTP2", "HTTP_PROXY"}, strings.ToUpper(port.at("protocol").text()))
		if !plain || !onlyRedirects(tls) {
			files := slices.ContainsFunc(tlsFiles(), func(f string) bool { return !tls.at(f).empty() })
			tls.istioAccepts = plain && !files && slices.Contains([]string{"", "PASSTHROUGH", "AUTO_PASSTHROUGH"}, tls.at("mode").text())
			tls.bad("use protocol HTTPS or TLS, or remove tls but for httpsRedirect of HTTP", "a server of protocol %s cannot have tls",
				port.at("protocol").text())
		}
	case secure:
		if tls.at("httpsRedirect").is("true") {
			tls.at("httpsRedirect").warn("set it on the HTTP server", "a server that speaks TLS already has nothing to redirect to")
		}
		serverTLS(tls)
		if strings.EqualFold(port.at("protocol").text(), "HTTPS") && tls.at("mode").is("AUTO_PASSTHROUGH") {
			tls.at("mode").warn("use protocol TLS", "AUTO_PASSTHROUGH does not look into HTTP")
		}
	}
}

// noTargetPort checks a port of a Gateway or a Sidecar.
func (p fieldRef) noTargetPort() {
	if t := p.at("targetPort"); t.number() != 0 {
		t.refuse("remove it", "targetPort has an effect in a ServiceEntry alone")
	}
}

func onlyRedirects(tls fieldRef) bool {
	return len(tls.node.fields) == 0 || len(tls.node.fields) == 1 && tls.node.fields[0].name == "httpsRedirect"
}

func tlsFiles() []string {
	return []string{"serverCertificate", "privateKey", "caCertificates"}
}

// wantsRoots checks the settings of a server that verifies client certificates and whose own certificate is in files.
func (p fieldRef) wantsRoots(mode string) {
	if roots := p.at("caCertificates"); roots.empty() {
		roots.refuse("name the file with the CA certificates",
			"mode %s without caCertificates has the root of the mesh verify certificates of clients", mode)
	}
}

// serverTLS checks the TLS settings of a server of a Gateway or a Sidecar.
func serverTLS(t fieldRef) {
	mode := t.at("mode").text()
	pair := !t.at("serverCertificate").empty() && !t.at("privateKey").empty()
	named := !t.at("credentialName").empty() || !t.at("credentialNames").empty()
	given := 0 // number of ways in which the certificate is given
	for _, set := range []bool{!t.at("credentialName").empty(), !t.at("credentialNames").empty(), !t.at("tlsCertificates").empty(), pair} {
		if set {
			given++
		}
	}
	if given > 1 && mode != "ISTIO_MUTUAL" {
		t.bad("keep one of them", "the certificate is given in more than one way")
	}
	switch mode {
	case "ISTIO_MUTUAL":
		for _, f := range append(tlsFiles(), "credentialName", "credentialNames", "tlsCertificates") {
			if at := t.at(f); !at.empty() {
				at.bad("remove it", "with mode %s no certificate of its own is used", mode)
			}
		}
	case "", "PASSTHROUGH", "AUTO_PASSTHROUGH":
		for _, f := range append(tlsFiles(), "credentialName", "credentialNames", "tlsCertificates") {
			if at := t.at(f); !at.empty() {
				at.warn("set mode to SIMPLE or MUTUAL, or remove it", "with mode %s no certificate is used", cmp.Or(mode, "PASSTHROUGH"))
			}
		}
		for _, f := range []string{"ecdhCurves", "alpnProtocols"} {
			if at := t.at(f); !at.empty() {
				at.warn("set mode to SIMPLE or MUTUAL, or remove it", "with mode %s the server passes TLS on and agrees on nothing",
					cmp.Or(mode, "PASSTHROUGH"))
			}
		}
		if crl := t.at("caCrl"); !crl.empty() && !t.at("credentialName").empty() {
			crl.refuse("remove it", "with mode %s no certificate is verified", cmp.Or(mode, "PASSTHROUGH"))
		}
	case "SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL":
		if given == 0 && t.at("serverCertificate").empty() {
			t.missing("credentialName", "name a Secret with the certificate", "mode %s needs a certificate", mode)
		}
		switch certificate := t.at("serverCertificate"); {
		case certificate.empty():
		case named:
			certificate.warn("remove it", "serverCertificate has no effect: the certificate in the Secret is used")
		case t.at("tlsCertificates").empty():
			t.required("privateKey")
			if mode != "SIMPLE" {
				t.wantsRoots(mode)
			}
		}
		if crl := t.at("caCrl"); !crl.empty() && mode == "SIMPLE" && !named {
			crl.refuse("remove it, or set mode to MUTUAL", "with mode SIMPLE no certificate of a client is verified")
		}
		if names := t.at("credentialNames").items(); len(names) > 2 {
			t.at("credentialNames").tolerated().bad("keep two", "at most two certificates, one RSA and one ECDSA")
		}
		for _, c := range t.at("tlsCertificates").items() {
			c.required("serverCertificate")
			c.required("privateKey")
			if at := c.at("caCertificates"); !at.empty() {
				at.warn("give it as caCertificates of tls, and remove it here", "certificates of clients are verified by caCertificates of tls alone")
			}
		}
		if !t.at("tlsCertificates").empty() && mode != "SIMPLE" {
			t.wantsRoots(mode)
		}
	}
	versions := []string{"TLS_AUTO", "TLSV1_0", "TLSV1_1", "TLSV1_2", "TLSV1_3"}
	low, high := t.at("minProtocolVersion"), t.at("maxProtocolVersion")
	if a, b := slices.Index(versions, low.text()), slices.Index(versions, high.text()); b > 0 && a > b {
		low.tolerated().bad("choose a lower one", "minProtocolVersion %s is above maxProtocolVersion %s", low.text(), high.text())
	}
	for _, l := range []struct{ field, of string }{{"cipherSuites", "cipher suite"}, {"ecdhCurves", "curve"}, {"alpnProtocols", "protocol"}} {
		seen := map[string]bool{}
		for _, c := range t.at(l.field).items() {
			if seen[c.text()] {
				c.warn("remove one of the two", "%s %s is there twice", l.of, c.text())
			}
			seen[c.text()] = true
		}
	}
	const longest = 255 // RFC 7301
	for _, p := range t.at("alpnProtocols").items() {
		switch {
		case p.empty() || len(p.text()) > longest:
			p.bad("write the name of a protocol, such as h2 or http/1.1", "a protocol has 1 to %d bytes, not %d", longest, len(p.text()))
		case strings.Contains(p.text(), ","):
			p.tolerated().bad("write each protocol as an entry of its own", "%q is not the name of a protocol", p.text())
		}
	}
	for _, h := range t.at("verifyCertificateSpki").items() {
		if b, err := base64.StdEncoding.DecodeString(h.text()); err != nil || len(b) != sha256.Size {
			h.tolerated().bad("write the SHA-256 of the public key in base64, of 44 characters", "%q is no hash of a public key", h.text())
		}
	}
	for _, h := range t.at("verifyCertificateHash").items() {
		if b, err := hex.DecodeString(strings.ReplaceAll(h.text(), ":", "")); err != nil || len(b) != sha256.Size {
			h.tolerated().bad("write the SHA-256 of the certificate in hexadecimal, of 64 digits", "%q is no hash of a certificate", h.text())
		}
	}
}
