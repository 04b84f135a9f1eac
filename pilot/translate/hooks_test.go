package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// marker marks with its objects all that a hook is given to change.
func marker() *feature.Feature {
	return &feature.Feature{
		Name:  "marker",
		Kinds: []*kinds.Kind{tapKind},
		Part:  feature.ClientPart | feature.ListenersPart | feature.InboundPart,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			return feature.Policies(r, namespace, feature.Matches, tapKind)
		},
		Hooks: feature.Hooks{
			Cluster: func(in feature.Cluster, c *clusterv3.Cluster) {
				c.AltStatName += mark("cluster", in.Direction, in.Selection)
			},
			Listeners: marks{},
		},
	}
}

// marks are the Listeners of the marker.
type marks struct{}

func (marks) TCPProxy(in feature.Chain, p *tcpv3.TcpProxy) {
	p.StatPrefix += mark("tcp", in.Direction, in.Selection)
}

func (marks) Listener(in feature.Listener, l *listenerv3.Listener) {
	l.StatPrefix += mark("listener", in.Direction, in.Selection)
}

// ConnectionManager adds its filter right before the router.
func (marks) ConnectionManager(in feature.Chain, m *hcmv3.HttpConnectionManager) {
	if name := mark("http", in.Direction, in.Selection); name != "" {
		m.HttpFilters = slices.Insert(m.HttpFilters, len(m.HttpFilters)-1, envoy.HTTPFilter(name, envoy.Empty("type.googleapis.com/test.Tap")))
	}
}

// mark names the objects of a Selection, or nothing if it has none.
func mark(kind string, d feature.Direction, s feature.Selection) string {
	var ids []string
	for o := range s.Objects.All {
		ids = append(ids, o.Annotations["id"])
	}
	if ids == nil {
		return ""
	}
	return fmt.Sprintf("<%s %s %s>", kind, []string{"outbound", "inbound", "gateway"}[d], strings.Join(ids, " "))
}

// TestHooksReachEveryResource: what a feature changes in clusters, listeners and the last filters of chains, by objects
// that are selected, reaches all of those of the selected workloads, for both directions, and nothing else. So does the
// next version of such an object.
func TestHooksReachEveryResource(t *testing.T) {
	const services = `
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a},
  spec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: tcp, port: 81}, {name: auto, port: 82}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: out, namespace: a},
  spec: {hosts: [out.example], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: a},
  spec: {selector: {app: gw}, servers: [{hosts: ["*"], port: {number: 80, name: http, protocol: HTTP}},
    {hosts: ["*"], port: {number: 81, name: tcp, protocol: TCP}}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: gw, namespace: a},
  spec: {hosts: ["*"], gateways: [gw], tcp: [{route: [{destination: {host: web, port: {number: 81}}}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}}, spec: {}, status: {phase: Running, podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: api-0, namespace: a, labels: {app: api}}, spec: {}, status: {phase: Running, podIP: 10.0.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw-0, namespace: a, labels: {app: gw}}, spec: {}, status: {phase: Running, podIP: 10.0.0.4}}
`
	proxies := map[string]string{
		"web": `{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "web"}}}`,
		"api": `{"id": "sidecar~10.0.0.2~api-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "api"}}}`,
		"gw":  `{"id": "router~10.0.0.4~gw-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "gw"}}}`,
	}
	features := append(catalog.Features(), marker())
	w := newWorld(t, mesh.Default())
	w.builder = snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Catalog: features})
	tr, plain := translate.New(translate.Options{Features: features, Idle: 1 << 20}), newTranslator(0)
	w.apply(objects(t, "services.yaml", []byte(services))...)

	for _, step := range []struct {
		object   kinds.Change
		selected map[string]string // the mark's ID, by proxy
	}{
		{tapObject("a", "web", "1"), map[string]string{"web": "1"}},
		{tapObject("a", "web", "2"), map[string]string{"web": "2"}},
		{tapObject("istio-system", "gw", "3"), map[string]string{"web": "2", "gw": "3"}},
	} {
		s := w.apply(step.object)
		tr.Prepare(s)
		for name, data := range proxies {
			p := proxy(t, []byte(data))
			got, without := sent(t, tr, s, p), sent(t, plain, s, p)
			marks := map[string]int{}
			for typ, resources := range got {
				for n, r := range resources {
					id, text := step.selected[name], string(r.Bytes())
					own := without[typ][n]
					if own == nil {
						t.Fatalf("%s: %s %s is added", name, typ, n)
					}
					direction := "outbound"
					switch {
					case strings.HasPrefix(n, "inbound|") || n == "InboundPassthroughCluster" || n == "virtualInbound":
						direction = "inbound"
					case name == "gw" && typ == "lds":
						direction = "gateway"
					}
					want := map[string]int{}
					switch {
					case id == "" || n == "BlackHoleCluster":
					case typ == "cds":
						want["cluster"] = 1
					case typ == "lds":
						want["listener"], want["tcp"] = 1, strings.Count(text, "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy")
						want["http"] = strings.Count(text, "type.googleapis.com/envoy.extensions.filters.http.router")
					}
					if len(want) == 0 && r.Version != own.Version {
						t.Errorf("%s: %s %s differs", name, typ, n)
					}
					for _, kind := range []string{"cluster", "listener", "tcp", "http"} {
						has := strings.Count(text, fmt.Sprintf("<%s %s %s>", kind, direction, id))
						if all := strings.Count(text, "<"+kind+" "); has != want[kind] || all != has {
							t.Errorf("%s: %s %s has %d marks %q of %s %s, of %d in all; want %d", name, typ, n, has, kind, direction, id, all, want[kind])
						}
						marks[kind] += has
					}
				}
			}
			if selected := step.selected[name] != ""; selected != (marks["cluster"] > 0 && marks["listener"] > 0 && marks["tcp"] > 0 &&
				marks["http"] > 0) {
				t.Errorf("%s: marks %v", name, marks)
			}
		}
	}
}
