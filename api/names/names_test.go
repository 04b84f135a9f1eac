package names

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"outbound|80|v1|web.a.svc.cluster.local":  Cluster(Outbound, 80, "v1", "web.a.svc.cluster.local"),
		"inbound|8080||":                          Cluster(Inbound, 8080, "", ""),
		"outbound_.80_._.web.a.svc.cluster.local": SNICluster(80, "", "web.a.svc.cluster.local"),
		"0.0.0.0_80":                              Listener("0.0.0.0", 80),
		"unix:///run/s.sock_0":                    Listener("unix:///run/s.sock", 0),
		"unix:///run/t.sock":                      UnixRoute("unix:///run/t.sock"),
		"80":                                      Route(80),
		"api.a.svc.cluster.local:6000":            SniffedRoute("api.a.svc.cluster.local", 6000),
		"http.8080":                               GatewayRoute(8080, ""),
		"http.8080.10.0.0.1":                      GatewayRoute(8080, "10.0.0.1"),
		"web.a.svc.cluster.local:80":              VirtualHost("web.a.svc.cluster.local", 80),
		"inbound|http|0":                          InboundVirtualHost(0),
		"web.a.svc.cluster.local":                 FQDN("Web", "a", "cluster.local"),
		"web.b":                                   FQDN("web.b.", "a", "cluster.local"),
		"pay.a.svc.cluster.local":                 Destination("Pay", "a", "cluster.local"),
		"pay.":                                    Destination("Pay.", "a", "cluster.local"),
		"pay.b.":                                  Destination("pay.b.", "a", "cluster.local"),
		"*":                                       FQDN("*", "a", "cluster.local"),
		"*web.a.svc.cluster.local":                FQDN("*web", "a", "cluster.local"),
		"*.com":                                   FQDN("*.com", "a", "cluster.local"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "BlackHoleCluster", "outbound|80|v1", "outbound|080||x", "outbound|70000||x",
		"sideways|80||x", "outbound|80||x|y", "outbound_.80_.v1", "outbound_.80_._.x|y", "xds-grpc"} {
		if c, ok := ParseCluster(s); ok {
			t.Errorf("%q is no cluster of a service, got %+v", s, c)
		}
	}
	for _, s := range []string{"", "http_proxy", "allow_any", ":80", "http.x", "https.", "/run/s.sock", "host:99999"} {
		if r, ok := ParseRoute(s); ok {
			t.Errorf("%q has no port, got %+v", s, r)
		}
	}
}

var (
	host  = rapid.StringMatching(`(\*\.)?[a-z][a-z0-9_-]{0,8}(\.[a-z][a-z0-9_-]{0,5}){0,4}`)
	label = rapid.StringMatching(`([a-z0-9]([-a-z0-9.]{0,6}[a-z0-9])?)?`)
	port  = rapid.Uint32Range(0, 65535)
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := ClusterName{
			Direction: rapid.SampledFrom([]Direction{Outbound, Inbound}).Draw(t, "direction"), Port: port.Draw(t, "port"),
			Subset: label.Draw(t, "subset"), Host: host.Draw(t, "host"), SNIDNAT: rapid.Bool().Draw(t, "sni"),
		}
		if want.SNIDNAT {
			want.Direction = Outbound
		}
		if got, ok := ParseCluster(want.String()); !ok || got != want {
			t.Errorf("%s: got %+v, want %+v", want, got, want)
		}
		p, h := port.Draw(t, "p"), host.Draw(t, "h")
		for name, want := range map[string]RouteName{
			Route(p):                              {Port: p},
			SniffedRoute(h, p):                    {Port: p, Host: h},
			GatewayRoute(p, ""):                   {Port: p, Scheme: "http"},
			GatewayRoute(p, "10.0.0.1"):           {Port: p, Scheme: "http"},
			fmt.Sprintf("https.%d.n.x.g.w.ns", p): {Port: p, Scheme: "https"},
		} {
			if got, ok := ParseRoute(name); !ok || got != want {
				t.Errorf("route %s: got %+v, want %+v", name, got, want)
			}
		}
	})
}

func TestDomains(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Called
		want []string
	}{
		{
			"same namespace",
			Called{Host: "web.a.svc.cluster.local", Domain: "a.svc.cluster.local", Addresses: []string{"10.64.0.11"}},
			[]string{"web.a.svc.cluster.local", "web.a.svc.cluster.local.", "web", "web.a.svc", "web.a", "10.64.0.11"},
		},
		{
			"other namespace",
			Called{Host: "legacy.b.svc.cluster.local", Domain: "a.svc.cluster.local", Addresses: []string{"10.64.0.14", "fd00::14"}},
			[]string{"legacy.b.svc.cluster.local", "legacy.b.svc.cluster.local.", "legacy.b", "legacy.b.svc", "10.64.0.14", "[fd00::14]"},
		},
		{"other cluster domain", Called{Host: "web.a.svc.other", Domain: "a.svc.cluster.local"}, []string{"web.a.svc.other", "web.a.svc.other."}},
		{"wildcard", Called{Host: "*.wild.example.com", Domain: "a.svc.cluster.local"}, []string{"*.wild.example.com", "*.wild.example.com."}},
		{"wildcard of the cluster", Called{Host: "*.a.svc.cluster.local", Domain: "a.svc.cluster.local"},
			[]string{"*.a.svc.cluster.local", "*.a.svc.cluster.local."}},
		{
			"CIDR",
			Called{Host: "static.example.com", Domain: "a.svc.cluster.local", Addresses: []string{"192.0.2.10", "192.0.2.128/25"}},
			[]string{"static.example.com", "static.example.com.", "192.0.2.10"},
		},
		{"no domain", Called{Host: "web.a.svc.cluster.local"}, []string{"web.a.svc.cluster.local", "web.a.svc.cluster.local."}},
		{"headless", Called{Host: "db.a.svc.cluster.local", Domain: "b.svc.cluster.local", Headless: true}, []string{
			"db.a.svc.cluster.local", "db.a.svc.cluster.local.", "db.a", "db.a.svc",
			"*.db.a.svc.cluster.local", "*.db.a.svc.cluster.local.", "*.db.a", "*.db.a.svc",
		}},
		{"alias", Called{Host: "web.a.svc.cluster.local", Domain: "a.svc.cluster.local",
			Aliases: []string{"old.a.svc.cluster.local", "old.a.svc.cluster.local"}, Addresses: []string{"10.0.0.1"}}, []string{
			"web.a.svc.cluster.local", "web.a.svc.cluster.local.", "web", "web.a.svc", "web.a",
			"old.a.svc.cluster.local", "old.a.svc.cluster.local.", "old", "old.a.svc", "old.a", "10.0.0.1",
		}},
	} {
		if d := cmp.Diff(c.want, Domains(c.in)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "a.b", true},
		{"*", "*", true},
		{"*", "*.b", true},
		{"*.b", "a.b", true},
		{"*.b", "*.b", true},
		{"*.b", "*.a.b", true},
		{"*.b", "b", false},
		{"*.b", "*", false},
		{"a.b", "a.b", true},
		{"a.b", "*.b", false},
		{"*.b", "a.c", false},
		{"*.b", ".b", false},
		{"*a.b", "a.b", true},
		{"*a.b", "xa.b", true},
		{"*a.b", "*.a.b", true},
		{"*a.b", ".b", false},
	} {
		if got := Covers(c.pattern, c.name); got != c.want {
			t.Errorf("Covers(%q, %q) is %v", c.pattern, c.name, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := host.Draw(t, "a"), host.Draw(t, "b"), host.Draw(t, "c")
		if !Covers(a, a) || !Covers("*", a) {
			t.Errorf("%q is not covered by itself or by *", a)
		}
		if Covers(a, b) && Covers(b, c) && !Covers(a, c) {
			t.Errorf("%q, %q, %q: not transitive", a, b, c)
		}
		if Overlap(a, b) != Overlap(b, a) {
			t.Errorf("%q, %q: not symmetric", a, b)
		}
	})
}

func TestGateway(t *testing.T) {
	for written, want := range map[string]string{"mesh": "mesh", "gw": "a/gw",
		"b/gw": "b/gw", "gw.c.svc.cluster.local": "c/gw", "gw.c": "c/gw"} {
		if got := Gateway(written, "a"); got != want {
			t.Errorf("%s is %s, want %s", written, got, want)
		}
	}
}
