package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestConnectionRoutes: which chains a sidecar's listeners have for the TCP and TLS routes of several VirtualServices.
// The chains for TCP are those that the real istiod sent for the same objects. Those for TLS differ: istiod sends
// chains that match the same, which Envoy refuses, and keeps the ranges of one match for all that follow.
func TestConnectionRoutes(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	s := w.apply(objects(t, "connections.yaml", []byte(`
apiVersion: v1
kind: Service
metadata: {name: api, namespace: a}
spec: {clusterIP: 10.64.0.12, selector: {app: api}, ports: [{name: tcp, port: 7000}, {name: any, port: 6000}, {name: tls, port: 8443}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: b}
spec: {clusterIP: 10.64.0.13, selector: {app: db}, ports: [{name: tcp-db, port: 3306}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: t1, namespace: a, creationTimestamp: "2020-01-01T00:00:00Z"}
spec:
  hosts: [api, x.example.com, y.example.com, z.example.com]
  tcp:
  - match: [{port: 7000, destinationSubnets: [10.64.0.0/16, 10.1.2.3]}]
    route: [{destination: {host: db.b.svc.cluster.local}}]
  - match: [{port: 7000, destinationSubnets: [10.65.0.0/16]}]
    route: [{destination: {host: api, subset: v1, port: {number: 7000}}}]
  - match: [{port: 7000, sourceNamespace: b}]
    route: [{destination: {host: api, port: {number: 6000}}}]
  - match: [{port: 7000, sourceLabels: {app: other}}]
    route: [{destination: {host: api, port: {number: 6000}}}]
  - match: [{port: 6000}]
    route: [{destination: {host: api}, weight: 1}, {destination: {host: missing.b.svc.cluster.local}, weight: 3},
      {destination: {host: api, port: {number: 1}}}]
  tls:
  - match: [{port: 8443, sniHosts: [x.example.com], destinationSubnets: [10.64.0.0/16]}]
    route: [{destination: {host: api}}]
  - match: [{port: 8443, sniHosts: [y.example.com, x.example.com]}]
    route: [{destination: {host: api}}]
  - match: [{port: 8443, sniHosts: [y.example.com]}, {gateways: [istio-system/gateway], sniHosts: [z.example.com]}]
    route: [{destination: {host: db.b.svc.cluster.local}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: t2, namespace: b, creationTimestamp: "2020-01-02T00:00:00Z"}
spec:
  hosts: ["*.a.svc.cluster.local"]
  tcp: [{route: [{destination: {host: db}}]}]
  tls: [{match: [{sniHosts: ["*"]}], route: [{destination: {host: db}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: t3, namespace: b}
spec: {hosts: [db], exportTo: [b],
  tcp: [{match: [{port: 3306}], route: [{destination: {host: api.a.svc.cluster.local, port: {number: 7000}}}]}]}
`))...)
	tr.Prepare(s)
	for ns, want := range map[string]map[string][]string{
		"a": {
			"10.64.0.12_7000": {
				"[10.1.2.3/32 10.64.0.0/16] [] -> outbound|3306||db.b.svc.cluster.local",
				"[10.65.0.0/16] [] -> outbound|7000|v1|api.a.svc.cluster.local",
				"default -> outbound|3306||db.b.svc.cluster.local by t2",
			},
			"10.64.0.12_6000": {
				"http",
				"default -> 1 outbound|6000||api.a.svc.cluster.local, 3 outbound|6000||missing.b.svc.cluster.local by t1",
			},
			"10.64.0.12_8443": {
				"[10.64.0.0/16] [x.example.com] -> outbound|8443||api.a.svc.cluster.local by t1",
				"[] [x.example.com y.example.com] -> outbound|8443||api.a.svc.cluster.local by t1",
				"default -> outbound|3306||db.b.svc.cluster.local by t2",
			},
			"10.64.0.13_3306": {"all -> outbound|3306||db.b.svc.cluster.local"},
		},
		"b": {
			"10.64.0.12_7000": {
				"[10.1.2.3/32 10.64.0.0/16] [] -> outbound|3306||db.b.svc.cluster.local",
				"[10.65.0.0/16] [] -> outbound|7000|v1|api.a.svc.cluster.local",
				"default -> outbound|6000||api.a.svc.cluster.local by t1",
			},
			"10.64.0.13_3306": {"all -> outbound|7000||api.a.svc.cluster.local by t3"},
		},
	} {
		p := proxy(t, []byte(
			`{"id": "sidecar~10.1.0.11~web-0.`+ns+`~`+ns+`.svc.cluster.local", "metadata": {"NAMESPACE": "`+ns+`", "CLUSTER_ID": "Kubernetes"}}`,
		))
		listeners := tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ListenerType)
		for name, chains := range want {
			r := listeners.Get(name)
			if r == nil {
				t.Errorf("%s: no %s", ns, name)
			} else if got := connectionChains(t, decode(t, r).(*listenerv3.Listener)); !slices.Equal(got, chains) {
				t.Errorf("%s %s:\n%s\nwant:\n%s", ns, name, strings.Join(got, "\n"), strings.Join(chains, "\n"))
			}
		}
	}
}

// connectionChains returns what the chains of a listener match, where they lead to, and by which VirtualService.
func connectionChains(t *testing.T, l *listenerv3.Listener) (list []string) {
	to := func(c *listenerv3.FilterChain) string {
		p := &tcpv3.TcpProxy{}
		if f := c.Filters[len(c.Filters)-1].GetTypedConfig(); !f.MessageIs(p) {
			return ""
		} else if err := f.UnmarshalTo(p); err != nil {
			t.Fatal(err)
		}
		clusters := []string{}
		for _, w := range p.GetWeightedClusters().GetClusters() {
			clusters = append(clusters, fmt.Sprint(w.Weight, " ", w.Name))
		}
		text := " -> " + p.GetCluster() + strings.Join(clusters, ", ")
		if by := c.GetMetadata().GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue(); by != "" {
			text += " by " + by[strings.LastIndexByte(by, '/')+1:]
		}
		return text
	}
	for _, c := range l.FilterChains {
		switch m := c.GetFilterChainMatch(); {
		case to(c) == "":
			list = append(list, "http")
		case m == nil:
			list = append(list, "all"+to(c))
		default:
			ranges := []string{}
			for _, r := range m.PrefixRanges {
				ranges = append(ranges, fmt.Sprintf("%s/%d", r.AddressPrefix, r.PrefixLen.GetValue()))
			}
			list = append(list, fmt.Sprint(ranges, " ", m.ServerNames, to(c)))
		}
	}
	if l.DefaultFilterChain != nil {
		list = append(list, "default"+to(l.DefaultFilterChain))
	}
	return list
}

// TestRangesOnce: a chain has each range of addresses once, however often a VirtualService names it. An Envoy refuses a
// listener with a chain that has one twice.
func TestRangesOnce(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	s := w.apply(objects(t, "ranges.yaml", []byte(`
apiVersion: v1
kind: Service
metadata: {name: api, namespace: a}
spec: {clusterIP: 10.64.0.12, selector: {app: api}, ports: [{name: tcp, port: 7000}, {name: tls, port: 8443}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: a}
spec:
  hosts: [api]
  tcp:
  - match: [{port: 7000, destinationSubnets: [10.9.0.0/16, 10.8.0.0/16]}, {port: 7000, destinationSubnets: [10.8.0.1/16]}]
    route: [{destination: {host: api}}]
  tls:
  - match: [{port: 8443, sniHosts: [api.a.svc.cluster.local], destinationSubnets: [10.9.0.0/16, 10.8.0.0/16, 10.9.0.1/16]}]
    route: [{destination: {host: api}}]
`))...)
	tr.Prepare(s)
	p := proxy(t,
		[]byte(`{"id": "sidecar~10.1.0.11~web-0.a~a.svc.cluster.local", "metadata": {"NAMESPACE": "a", "CLUSTER_ID": "Kubernetes"}}`))
	listeners := tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ListenerType)
	for _, name := range []string{"10.64.0.12_7000", "10.64.0.12_8443"} {
		got := connectionChains(t, decode(t, listeners.Get(name)).(*listenerv3.Listener))
		if !strings.HasPrefix(got[0], "[10.8.0.0/16 10.9.0.0/16] [") {
			t.Errorf("%s: %s", name, got[0])
		}
	}
}
