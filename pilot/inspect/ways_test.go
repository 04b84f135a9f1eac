package inspect

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

// TestWays: whether requests reach applications, and what the answers must say, for meshes of real reports.
func TestWays(t *testing.T) {
	pod := func(name, ip, labels, rest string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, namespace: a, labels: {` + labels + `}` + rest +
			`}, spec: {serviceAccountName: ` + name + `, containers: [{name: app, image: app}]}, status: {podIP: ` + ip +
			`, phase: Running, conditions: [{type: Ready, status: "True"}]}}` + "\n---\n"
	}
	service := func(name, ip, ports string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: ` + name + `, namespace: a}, spec: {clusterIP: ` + ip + `, selector: {app: ` +
			name + `}, ports: [` + ports + `]}}` + "\n---\n"
	}
	object := func(kind, name, spec string) string {
		group := "networking.istio.io/v1"
		if kind == "AuthorizationPolicy" || kind == "PeerAuthentication" {
			group = "security.istio.io/v1"
		}
		return `{apiVersion: ` + group + `, kind: ` + kind + `, metadata: {name: ` + name + `, namespace: a}, spec: {` + spec + `}}` + "\n---\n"
	}
	const in, out = "security.istio.io/tlsMode: istio", `sidecar.istio.io/inject: "false"`
	base := pod("client", "10.0.0.1", "app: client, "+in, "") +
		pod("web-1", "10.0.0.2", "app: web, version: v1, "+in, "") + pod("web-2", "10.0.0.3", "app: web, version: v2, "+in, "") +
		pod("legacy", "10.0.0.4", "app: legacy, "+out, "") +
		pod("gw", "10.0.0.9", "istio: gw", ", annotations: {inject.istio.io/templates: gateway}") +
		service("web", "10.96.0.1", "{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 90}") +
		service("legacy", "10.96.0.2", "{name: http, port: 8000}, {name: https, port: 8443}") +
		`{apiVersion: v1, kind: Service, metadata: {name: gw, namespace: a}, spec: {clusterIP: 10.96.0.9, selector: {istio: gw},
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tls, port: 443, targetPort: 8443}, {name: tcp, port: 3306, targetPort: 13306}]}}
---
`
	toWeb := "route: [{destination: {host: web, port: {number: 80}}}]"
	gateway := func(server string) string {
		return object("Gateway", "gw", "selector: {istio: gw}, servers: [{hosts: [shop.test], "+server+"}]")
	}
	for _, c := range []struct {
		name, objects string
		q             Query
		reached       bool
		says          []string // parts of steps, notes, reasons or what it depends on
	}{
		{"all endpoints", "", Query{Host: "web", Port: 80}, true, nil},
		{"one of the endpoints refuses",
			object("AuthorizationPolicy", "deny", "selector: {matchLabels: {version: v2}}, action: DENY, rules: [{}]"),
			Query{Host: "web", Port: 80}, false, []string{"Envoy may choose web-2.a, where it is answered with status 403: "}},
		{"mutual TLS to a Pod without a proxy", object("DestinationRule", "all", `host: "*.local", trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}`),
			Query{Host: "legacy", Port: 8000}, false,
			[]string{"status 503", "the TLS handshake fails: DestinationRule a/all", "legacy.a has no proxy"}},
		{"mutual TLS to an address", object("ServiceEntry", "out", "hosts: [out.test], resolution: STATIC, endpoints: [{address: 1.2.3.4}], "+
			"ports: [{name: http, number: 80, protocol: HTTP}]") +
			object("DestinationRule", "all", `host: "*", trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}`),
			Query{Host: "out.test", Port: 80}, false, []string{"status 503", "1.2.3.4 has no proxy"}},
		{"TLS to plaintext", object("DestinationRule", "tls", "host: legacy, trafficPolicy: {tls: {mode: SIMPLE}}"),
			Query{Host: "legacy", Port: 8000}, false, []string{"legacy.a takes TLS at port 8000: DestinationRule a/tls", "declared as HTTP"}},
		{"TLS within TLS", object("DestinationRule", "tls", "host: legacy, trafficPolicy: {tls: {mode: SIMPLE}}"),
			Query{Host: "legacy", Port: 8443, TLS: true}, false, []string{"takes TLS within TLS"}},
		{"TLS to a proxy", object("DestinationRule", "web", "host: web, trafficPolicy: {tls: {mode: SIMPLE}}"),
			Query{Host: "web", Port: 80}, false, []string{"status 503"}},
		{"TLS of the mesh", object("DestinationRule", "web", "host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}") +
			object("PeerAuthentication", "strict", "mtls: {mode: STRICT}"), Query{Host: "web", Port: 80}, true, nil},

		{"passthrough behind another port", gateway("port: {number: 443, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}") +
			object("VirtualService", "pass", "gateways: [gw], hosts: [shop.test], tls: [{match: [{sniHosts: [shop.test]}], "+
				"route: [{destination: {host: legacy, port: {number: 8443}}}]}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true}, true,
			[]string{"listener 0.0.0.0_8443", "a Service leads port 443 there"}},
		{"TCP behind another port", gateway("port: {number: 3306, name: tcp, protocol: TCP}") +
			object("VirtualService", "tcp", "gateways: [gw], hosts: ['*'], tcp: [{route: [{destination: {host: web, port: {number: 90}}}]}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 3306}, true, []string{"listener 0.0.0.0_13306"}},
		{"AUTO_PASSTHROUGH behind another port", object("Gateway", "cross", "selector: {istio: gw}, servers: [{hosts: ['*.local'], "+
			"port: {number: 443, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}}]"),
			Query{Source: "gw.a", Host: "outbound_.80_._.web.a.svc.cluster.local", Port: 443, TLS: true}, false, []string{"listener 0.0.0.0_8443"}},
		{"a port of no Gateway", gateway("port: {number: 80, name: http, protocol: HTTP}"),
			Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true}, false, []string{"no listener takes connections to port 443"}},
		{"a bind of another address", gateway("port: {number: 80, name: http, protocol: HTTP}, bind: 10.9.9.9") +
			object("VirtualService", "v", "gateways: [gw], hosts: [shop.test], http: [{"+toWeb+"}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 80}, false, []string{"servers bind it at 10.9.9.9 alone"}},

		{"a bind of the Pod's own address", gateway("port: {number: 80, name: http, protocol: HTTP}, bind: 10.0.0.9") +
			object("VirtualService", "v", "gateways: [gw], hosts: [shop.test], http: [{"+toWeb+"}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 80}, true, []string{"listener 10.0.0.9_8080"}},

		{"an unknown host", "", Query{Host: "wbe", Port: 80}, false,
			[]string{"did you mean web", "it leaves the mesh to the address that DNS has for wbe"}},
		{"an unknown address", "", Query{Host: "1.2.3.4", Port: 80}, false, []string{"it leaves the mesh to 1.2.3.4"}},
		{"the Pod itself", "", Query{Host: "127.0.0.1", Port: 8080}, true, []string{"127.0.0.1 is the Pod itself"}},
		{"a destination without a port", object("VirtualService", "v", "hosts: [legacy], http: [{route: [{destination: {host: web}}]}]"),
			Query{Host: "legacy", Port: 8000}, false, []string{"web.a.svc.cluster.local has no port 8000: it has 80, 90"}},

		{"for another gateway", object("VirtualService", "v", "hosts: [web], gateways: [gw], http: [{"+toWeb+"}]"),
			Query{Host: "web", Port: 80}, true, []string{"VirtualService a/v", "it is for the gateways a/gw, and not for sidecars"}},
		{"not exported", strings.Replace(object("VirtualService", "v", "hosts: [web.a.svc.cluster.local], exportTo: ['.'], http: [{"+toWeb+"}]"),
			"namespace: a}", "namespace: b}", 1), Query{Host: "web", Port: 80}, true,
			[]string{"VirtualService b/v", "its exportTo does not have namespace a"}},
		{"not imported", strings.Replace(object("VirtualService", "v", "hosts: [web.a.svc.cluster.local], http: [{"+toWeb+"}]"),
			"namespace: a}", "namespace: b}", 1) + object("Sidecar", "s", "egress: [{hosts: ['a/*']}]"),
			Query{Host: "web", Port: 80}, true, []string{"VirtualService b/v", "Sidecar a/s", "does not import"}},
		{"an older one wins", object("VirtualService", "one", "hosts: [web], http: [{"+toWeb+"}]") +
			object("VirtualService", "two", "hosts: [web], http: [{"+toWeb+"}]"),
			Query{Host: "web", Port: 80}, true, []string{"VirtualService a/two", "another one wins: VirtualService a/one"}},
		{"http rules for TCP", object("VirtualService", "v", "hosts: [web], http: [{"+toWeb+"}]"),
			Query{Host: "web", Port: 90}, true, []string{"it has http rules, and port 90 of web.a.svc.cluster.local is TCP"}},
		{"hosts of no service", object("VirtualService", "v", "hosts: [none.test], http: [{"+toWeb+"}]"),
			Query{Host: "none.test", Port: 8080}, false, []string{"sidecars use such a VirtualService at port 80 alone"}},

		{"the rule of a delegate",
			object("VirtualService", "root", "hosts: [web], http: [{match: [{uri: {prefix: /a}}], delegate: {name: child}}]") +
				object("VirtualService", "child", "http: [{match: [{uri: {prefix: /a/b}}], "+toWeb+"}, {"+toWeb+"}]"),
			Query{Host: "web", Port: 80, Path: "/a/c"}, true, []string{"by VirtualService a/child spec.http[1] "}},
		{"matches for another port", object("VirtualService", "v", "hosts: [web], http: [{match: [{port: 81}], "+toWeb+
			"}, {match: [{gateways: [gw]}], "+toWeb+"}, {match: [{port: 80, uri: {prefix: /a}}], "+toWeb+"}, {"+toWeb+
			"}, {match: [{uri: {prefix: /b}}], "+toWeb+"}]"),
			Query{Host: "web", Port: 80, Path: "/a"}, true, []string{"by VirtualService a/v spec.http[2].match[0] ",
				"by VirtualService a/v spec.http[3] "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := ingest.Options{Logger: slog.New(slog.DiscardHandler), ConfigDir: t.TempDir(), Namespace: "istio-system",
				Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default()}
			must.Succeed(t, os.WriteFile(filepath.Join(o.ConfigDir, "mesh.yaml"), []byte(base+c.objects), 0o644))
			i, err := Read(t.Context(), o, catalog.Features())
			must.Succeed(t, err)
			if c.q.Source == "" {
				c.q.Source = "client.a"
			}
			w, err := i.Why(c.q)
			must.Succeed(t, err)
			said := w.texts()
			if w.Reached() != c.reached {
				t.Errorf("reached: %v\n%s", w.Reached(), strings.Join(said, "\n"))
			}
			for _, part := range c.says {
				if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, part) }) {
					t.Errorf("it does not say %q:\n%s", part, strings.Join(said, "\n"))
				}
			}
		})
	}
}

// texts returns all that an answer says.
func (w *Way) texts() []string {
	list := slices.Concat([]string{"status " + strconv.Itoa(w.Status), w.Reason}, w.Notes, w.Depends)
	for _, s := range w.Outbound.Steps {
		list = append(list, s.What+" "+s.Name+": "+s.Reason, "by "+s.From+" ")
		for _, l := range s.Lost {
			list = append(list, "not "+l.Name+", by "+l.From+" ")
		}
	}
	return list
}
