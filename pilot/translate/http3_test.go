package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// http3World has two hosts of a gateway on the ports that are put into its Service.
const http3World = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.64.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gw, namespace: istio-system, labels: {istio: ingress}}
spec: {containers: [{name: istio-proxy, image: proxy}]}
status: {phase: Running, podIP: 10.1.0.9, podIPs: [{ip: 10.1.0.9}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: a}
spec:
  hosts: [one.example.com, two.example.com]
  gateways: [istio-system/gw]
  http: [{match: [{uri: {prefix: /old}}], redirect: {uri: /new}}, {route: [{destination: {host: web}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: gw, namespace: istio-system}
spec: {clusterIP: 10.64.0.9, selector: {istio: ingress}, ports: [%s]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: istio-system}
spec:
  selector: {istio: ingress}
  servers:
  - {port: {number: 443, name: one, protocol: HTTPS}, hosts: [one.example.com], bind: "%s", tls: {mode: SIMPLE, credentialName: one}}
  - {port: {number: 443, name: two, protocol: HTTPS}, hosts: [one.example.com, two.example.com],
      bind: "%[2]s", tls: {mode: MUTUAL, credentialName: two}}
  - {port: {number: 443, name: three, protocol: HTTPS}, hosts: [two.example.com],
      bind: "%[2]s", tls: {mode: OPTIONAL_MUTUAL, credentialName: three}}
  - {port: {number: 443, name: old, protocol: HTTPS}, hosts: [old.example.com],
      bind: "%[2]s", tls: {mode: SIMPLE, credentialName: old, maxProtocolVersion: TLSV1_2}}
  - {port: {number: 443, name: alpn, protocol: HTTPS}, hosts: [alpn.example.com],
      bind: "%[2]s", tls: {mode: SIMPLE, credentialName: alpn, alpnProtocols: [h2, http/1.1]}}
`

// TestHTTP3 has the listeners of a gateway and what its routes offer, by the ports of its Service.
func TestHTTP3(t *testing.T) {
	const (
		tcp = "{name: https, port: 443, targetPort: 8443}"
		udp = "{name: http3, protocol: UDP, port: 443, targetPort: 8443}"
	)
	const another = "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: more, namespace: istio-system}\nspec: {clusterIP: " +
		"10.64.0.10, selector: {istio: ingress}, ports: ["
	const plugin = `
---
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: plugin, namespace: istio-system}
spec: {selector: {matchLabels: {istio: ingress}}, type: NETWORK, url: "file:///plugin.wasm"}
`
	const wide = `
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: wide, namespace: istio-system}
spec:
  selector: {istio: ingress}
  servers:
  - {port: {number: 443, name: wide, protocol: HTTPS}, hosts: ["*.example.org"], tls: {mode: SIMPLE, credentialName: wide}}
  - {port: {number: 443, name: strict, protocol: HTTPS}, hosts: [m.example.org], tls: {mode: MUTUAL, credentialName: strict}}
`
	patch := func(to, operation, listener string) string {
		typ := "network.rbac.v3.RBAC, stat_prefix: x"
		if to == "LISTENER_FILTER" {
			typ = "listener.original_src.v3.OriginalSrc"
		}
		return fmt.Sprintf(`
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patch, namespace: istio-system}
spec:
  workloadSelector: {labels: {istio: ingress}}
  configPatches:
  - {applyTo: %s, match: {context: GATEWAY, listener: {%s}},
      patch: {operation: %s, value: {name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.%s}}}}
`, to, listener, operation, typ)
	}
	merge := func(to, value string) string {
		return fmt.Sprintf(`
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patch, namespace: istio-system}
spec:
  workloadSelector: {labels: {istio: ingress}}
  configPatches: [{applyTo: %s, match: {context: GATEWAY}, patch: {operation: MERGE, value: {%s}}}]
`, to, value)
	}
	const settings = `transport_socket: {name: envoy.transport_sockets.tls, typed_config: {"@type": ` +
		`type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, session_timeout: 1s}}`
	asSent := []string{
		"0.0.0.0_8443 one.example.com https.443.one.gw.istio-system kubernetes://one",
		"0.0.0.0_8443 two.example.com https.443.three.gw.istio-system kubernetes://three optional kubernetes://three-cacert",
		"0.0.0.0_8443 old.example.com https.443.old.gw.istio-system kubernetes://old TLS_AUTO..TLSv1_2",
		"0.0.0.0_8443 alpn.example.com https.443.alpn.gw.istio-system kubernetes://alpn",
	}
	over := func(name string) []string {
		return []string{
			name + " one.example.com https.443.one.gw.istio-system kubernetes://one h3",
			name + " two.example.com https.443.three.gw.istio-system kubernetes://three optional kubernetes://three-cacert h3",
		}
	}
	offers := []string{
		`https.443.one.gw.istio-system one.example.com:443 h3=":443"; ma=86400 h3=":443"; ma=86400`,
		`https.443.three.gw.istio-system two.example.com:443 h3=":443"; ma=86400 h3=":443"; ma=86400`,
	}
	moved := func(list []string, from, to string) (out []string) {
		for _, s := range list {
			out = append(out, strings.ReplaceAll(s, from, to))
		}
		return out
	}
	all := &envoytest.Resources{}
	for _, c := range []struct {
		name, ports, bind, more string
		off, dual, low          bool
		want                    []string
	}{
		{name: "nobody asks for it", ports: tcp + ", " + udp, off: true, want: asSent},
		{name: "nobody asks for it, and the targets differ", ports: udp + ", " + strings.Replace(tcp, "8443", "9443", 1), off: true,
			want: moved(asSent, "8443", "9443")},
		{name: "both", ports: tcp + ", " + udp, want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "the port for UDP comes first", ports: udp + ", " + tcp, want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "the targets differ", ports: tcp + ", " + strings.Replace(udp, "8443", "9443", 1),
			want: slices.Concat(asSent, over("udp_0.0.0.0_9443 UDP"), offers)},
		{name: "several targets", ports: tcp + ", " + udp + "]}" + another + "{name: more, port: 443, targetPort: 8444}",
			want: slices.Concat(asSent, moved(asSent, "8443", "8444"), over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "for TCP alone", ports: tcp, want: asSent},
		{name: "for UDP alone", ports: udp, want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "for UDP under another number", ports: tcp + ", " + strings.Replace(udp, "443,", "444,", 1), want: asSent},
		{name: "with an address", ports: tcp + ", " + udp, bind: "10.1.0.9",
			want: slices.Concat(moved(asSent, "0.0.0.0", "10.1.0.9"), over("udp_10.1.0.9_8443 UDP"),
				moved(offers, "istio-system ", "istio-system.10.1.0.9 "))},
		{name: "of both families", ports: tcp + ", " + udp, dual: true,
			want: slices.Concat(moved(asSent, "_8443", "_8443 TCP"), over("udp_0.0.0.0_8443 UDP UDP"), offers)},
		{name: "a pattern over a host that demands certificates", ports: tcp + ", " + udp, more: wide,
			want: slices.Concat(asSent, []string{
				"0.0.0.0_8443 *.example.org https.443.wide.wide.istio-system kubernetes://wide",
				"0.0.0.0_8443 m.example.org https.443.strict.wide.istio-system kubernetes://strict required kubernetes://strict-cacert",
			}, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "a pattern over a host that demands certificates on another port of the same target",
			ports: tcp + ", " + udp + ", {name: more, port: 444, targetPort: 8443}",
			more:  strings.Replace(wide, "443, name: strict", "444, name: strict", 1), want: slices.Concat(asSent, []string{
				"0.0.0.0_8443 *.example.org https.443.wide.wide.istio-system kubernetes://wide",
				"0.0.0.0_8443 m.example.org https.444.strict.wide.istio-system kubernetes://strict required kubernetes://strict-cacert",
			}, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "a filter of connections", ports: tcp + ", " + udp, more: plugin, want: asSent},
		{name: "a filter of connections of another port", ports: tcp + ", " + udp,
			more: strings.Replace(plugin, "type: NETWORK", "type: NETWORK, match: [{ports: [{number: 8444}]}]", 1),
			want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "a patch adds a filter of connections", ports: tcp + ", " + udp, more: patch("NETWORK_FILTER", "INSERT_FIRST", ""), want: asSent},
		{name: "a patch adds a filter of the listener's port", ports: tcp + ", " + udp,
			more: patch("LISTENER_FILTER", "INSERT_FIRST", "portNumber: 8443"), want: asSent},
		{name: "a patch of another port", ports: tcp + ", " + udp, more: patch("NETWORK_FILTER", "INSERT_FIRST", "portNumber: 8444"),
			want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "a patch of another listener", ports: tcp + ", " + udp,
			more: patch("NETWORK_FILTER", "INSERT_FIRST", "name: 0.0.0.0_8443"), want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "a patch of the listener for QUIC", ports: tcp + ", " + udp,
			more: patch("NETWORK_FILTER", "INSERT_FIRST", "name: udp_0.0.0.0_8443"),
			want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "a patch merges TLS settings into chains", ports: tcp + ", " + udp, more: merge("FILTER_CHAIN", settings), want: asSent},
		{name: "a patch merges filters into the listener", ports: tcp + ", " + udp, more: merge("LISTENER", `listenerFilters: [{name: x, `+
			`typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_src.v3.OriginalSrc}}]`), want: asSent},
		{name: "a patch merges what works over QUIC too", ports: tcp + ", " + udp,
			more: merge("LISTENER", "per_connection_buffer_limit_bytes: 4096"),
			want: slices.Concat(asSent, over("udp_0.0.0.0_8443 UDP"), offers)},
		{name: "a port that may not be bound", ports: tcp + ", " + strings.Replace(udp, "8443", "443", 1), low: true, want: asSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, tr := newWorldOf(t, snapshot.Options{Mesh: mesh.Default(), Settings: snapshot.Settings{HTTP3: !c.off}}), newTranslator(0)
			gw := &node.Proxy{
				Type: node.Router, ID: "gw.istio-system", Name: "gw", Namespace: "istio-system", Domain: "istio-system.svc.cluster.local",
				IPs: []string{"10.1.0.9"}, Cluster: "Kubernetes",
				Labels: map[string]string{"istio": "ingress"}, MeshID: "cluster.local", Capabilities: everything, Unprivileged: c.low,
			}
			if c.dual {
				gw.IPs = append(gw.IPs, "fd00::9")
			}
			sent := sent(t, tr, w.apply(objects(t, "world.yaml", []byte(fmt.Sprintf(http3World, c.ports, c.bind)+c.more))...), gw)
			var got, offered []string
			for name, r := range sent["lds"] {
				all.Add(t, c.name, envoy.ListenerType, r)
				l := decode(t, r).(*listenerv3.Listener)
				where := name
				if l.UdpListenerConfig != nil {
					where += " " + l.Address.GetSocketAddress().Protocol.String()
				}
				for _, a := range l.AdditionalAddresses {
					where += " " + a.Address.GetSocketAddress().Protocol.String()
				}
				for _, chain := range l.FilterChains {
					line := where + " " + describe(t, chain)
					if c.bind != "" {
						line = strings.ReplaceAll(line, ".gw.istio-system."+c.bind, ".gw.istio-system")
					}
					got = append(got, line)
				}
			}
			for name, r := range sent["rds"] {
				for _, h := range decode(t, r).(*routev3.RouteConfiguration).VirtualHosts {
					words := []string{name, h.Name}
					for _, r := range h.Routes {
						for _, o := range r.ResponseHeadersToAdd {
							if o.Header.Key == "alt-svc" {
								words = append(words, o.Header.Value)
							}
						}
					}
					if len(words) > 2 {
						offered = append(offered, strings.Join(words, " "))
					}
				}
			}
			slices.SortStableFunc(got, func(a, b string) int {
				return strings.Compare(a[:strings.IndexByte(a, ' ')], b[:strings.IndexByte(b, ' ')])
			})
			slices.Sort(offered)
			if d := cmp.Diff(c.want, append(got, offered...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	all.Check(t)
}
