package servers

import (
	"slices"
	"testing"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

func TestUseOf(t *testing.T) {
	type mode = networkingv1alpha3.ServerTLSSettings_TLSmode
	const (
		simple      = networkingv1alpha3.ServerTLSSettings_SIMPLE
		passthrough = networkingv1alpha3.ServerTLSSettings_PASSTHROUGH
		automatic   = networkingv1alpha3.ServerTLSSettings_AUTO_PASSTHROUGH
		none        = mode(-1)
	)
	for _, c := range []struct {
		protocol string
		mode     mode
		want     Use
	}{
		{"HTTP", none, PlainHTTP}, {"grpc-web", none, PlainHTTP}, {"HTTP2", simple, PlainHTTP}, {"HTTPS", simple, SecureHTTP},
		{"https", none, Closed}, {"HTTPS", passthrough, Passthrough}, {"TLS", passthrough, Passthrough}, {"TLS", simple, SecureTCP},
		{"TLS", automatic, AutoPassthrough}, {"TCP", none, PlainTCP}, {"MONGO", simple, PlainTCP}, {"QUIC", none, PlainTCP},
		{"UDP", none, Closed},
	} {
		s := &networkingv1alpha3.Server{Port: &networkingv1alpha3.Port{Protocol: c.protocol}}
		if c.mode != none {
			s.Tls = &networkingv1alpha3.ServerTLSSettings{Mode: c.mode}
		}
		if got := UseOf(s); got != c.want {
			t.Errorf("%s, mode %s: %s, want %s", c.protocol, c.mode, got, c.want)
		}
	}
}

func TestPort(t *testing.T) {
	type server struct {
		use   Use
		names []string
	}
	for _, c := range []struct {
		name    string
		servers []server
		want    []bool // which are in force
	}{
		{"plaintext first",
			[]server{{PlainHTTP, nil}, {SecureHTTP, []string{"a.test"}}, {PlainTCP, nil}, {PlainHTTP, nil}}, []bool{true, false, false, false}},
		{"TLS first",
			[]server{{SecureHTTP, []string{"a.test"}}, {PlainHTTP, nil}, {Passthrough, []string{"b.test"}}}, []bool{true, true, true}},
		{"one name twice", []server{{SecureHTTP, []string{"a.test"}}, {SecureTCP, []string{"a.test"}}}, []bool{true, false}},
		{"any name takes the rest",
			[]server{{SecureHTTP, []string{"a.test", "*"}}, {SecureTCP, []string{"a.test"}}, {PlainHTTP, nil}}, []bool{true, true, false}},
	} {
		var p Port
		var got []bool
		for _, s := range c.servers {
			free := []string(nil)
			if p.Fits(s.use) {
				free, _ = p.Claim(s.use, s.names)
			}
			got = append(got, len(free) > 0)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRepeats(t *testing.T) {
	to := func(port uint32) *networkingv1alpha3.HTTPRedirect_Port {
		return &networkingv1alpha3.HTTPRedirect_Port{Port: port}
	}
	for _, c := range []struct {
		redirect   *networkingv1alpha3.HTTPRedirect
		use        Use
		port       uint32
		schemePort bool
		want       bool
	}{
		{nil, SecureHTTP, 443, false, false},
		{&networkingv1alpha3.HTTPRedirect{}, PlainHTTP, 8080, true, true},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https"}, SecureHTTP, 443, true, true},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https"}, SecureHTTP, 8443, false, true},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https"}, SecureHTTP, 8443, true, false},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https"}, PlainHTTP, 80, false, false},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https", Authority: "b.test"}, SecureHTTP, 443, false, false},
		{&networkingv1alpha3.HTTPRedirect{Uri: "/b"}, PlainHTTP, 80, false, false},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https", RedirectPort: to(8443)}, SecureHTTP, 8443, true, true},
		{&networkingv1alpha3.HTTPRedirect{RedirectPort: to(81)}, PlainHTTP, 80, true, false},
	} {
		if got := Repeats(c.redirect, c.use, c.port, c.schemePort); got != c.want {
			t.Errorf("%v at port %d, %s: %t", c.redirect, c.port, c.use, got)
		}
	}
}
