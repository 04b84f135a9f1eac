package translate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// headlessWorld has a headless service with a port of each sort. It shares port 5432 with HTTP. A VirtualService routes
// connections to some addresses of that port.
const headlessWorld = `
{apiVersion: v1, kind: Service, metadata: {name: db, namespace: a}, spec: {clusterIP: None, selector: {app: db}, ports: [
 {name: tcp, port: 5432}, {name: redis, port: 6379}, {name: tls, port: 8443}, {name: mysql, port: 3306}, {name: any, port: 9000}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}, spec: {clusterIP: 10.64.0.1, ports: [{name: http, port: 5432}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: some, namespace: a}, spec: {hosts: [db], tcp: [
 {match: [{port: 5432, destinationSubnets: [10.2.0.8/31, 10.9.0.0/16]}], route: [{destination: {host: db, port: {number: 6379}}}]}]}}
`

// headlessPods returns the endpoints of the headless service.
func headlessPods(addresses string) string {
	return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: db-x, namespace: a, labels: " +
		"{kubernetes.io/service-name: db}}, addressType: IPv4, endpoints: [{addresses: [" + addresses + "]}], ports: [" +
		"{name: tcp, port: 5432}, {name: redis, port: 6379}, {name: tls, port: 8443}, {name: mysql, port: 3306}, {name: any, port: 9000}]}"
}

// TestHeadlessChains has the listeners of a headless service, before and after one of its pods changes. The listener
// that its chains share is told to be dirty. Without the variable each pod has listeners of its own.
func TestHeadlessChains(t *testing.T) {
	client := &node.Proxy{Type: node.Sidecar, ID: "client.a", Name: "client", Namespace: "a", Domain: "a.svc.cluster.local",
		IPs: []string{"10.1.0.1"}, Cluster: "Kubernetes", Interception: node.Redirect, Capabilities: everything}
	all := &envoytest.Resources{}
	for enabled, want := range map[bool]string{
		true: `
0.0.0.0_5432: [10.2.0.7/32] [] -> outbound|5432||db.a.svc.cluster.local
0.0.0.0_5432: [10.2.0.9/32] [] -> outbound|6379||db.a.svc.cluster.local by some
0.0.0.0_5432: default -> PassthroughCluster
0.0.0.0_5432: http
0.0.0.0_6379: [10.2.0.7/32] [] -> outbound|6379||db.a.svc.cluster.local
0.0.0.0_6379: [10.2.0.9/32] [] -> outbound|6379||db.a.svc.cluster.local
0.0.0.0_6379: default -> PassthroughCluster
10.2.0.7_3306: all -> outbound|3306||db.a.svc.cluster.local
10.2.0.7_8443: all -> outbound|8443||db.a.svc.cluster.local
10.2.0.7_9000: default -> outbound|9000||db.a.svc.cluster.local
10.2.0.7_9000: http
10.2.0.9_3306: all -> outbound|3306||db.a.svc.cluster.local
10.2.0.9_8443: all -> outbound|8443||db.a.svc.cluster.local
10.2.0.9_9000: default -> outbound|9000||db.a.svc.cluster.local
10.2.0.9_9000: http`,
		false: `
0.0.0.0_5432: default -> PassthroughCluster
0.0.0.0_5432: http
10.2.0.7_3306: all -> outbound|3306||db.a.svc.cluster.local
10.2.0.7_5432: [10.2.0.8/31 10.9.0.0/16] [] -> outbound|6379||db.a.svc.cluster.local
10.2.0.7_5432: default -> outbound|5432||db.a.svc.cluster.local
10.2.0.7_6379: all -> outbound|6379||db.a.svc.cluster.local
10.2.0.7_8443: all -> outbound|8443||db.a.svc.cluster.local
10.2.0.7_9000: default -> outbound|9000||db.a.svc.cluster.local
10.2.0.7_9000: http
10.2.0.9_3306: all -> outbound|3306||db.a.svc.cluster.local
10.2.0.9_5432: [10.2.0.8/31 10.9.0.0/16] [] -> outbound|6379||db.a.svc.cluster.local
10.2.0.9_5432: default -> outbound|5432||db.a.svc.cluster.local
10.2.0.9_6379: all -> outbound|6379||db.a.svc.cluster.local
10.2.0.9_8443: all -> outbound|8443||db.a.svc.cluster.local
10.2.0.9_9000: default -> outbound|9000||db.a.svc.cluster.local
10.2.0.9_9000: http`,
	} {
		w, tr := newWorldOf(t, snapshot.Options{Mesh: mesh.Default(), Settings: snapshot.Settings{HeadlessChains: enabled}}), newTranslator(1<<20)
		s := w.apply(objects(t, "world.yaml", []byte(headlessWorld+"---\n"+headlessPods("10.2.0.7, 10.2.0.8")))...)
		tr.Prepare(s)
		sent(t, tr, s, client) // so that the Translator has the listeners and builds only dirty ones
		s = w.apply(objects(t, "slice.yaml", []byte(headlessPods("10.2.0.7, 10.2.0.9")))...)
		if !tr.Compare(s) {
			t.Errorf("enabled %v: streams are not told to compare their listeners", enabled)
		}
		got := ""
		config := sent(t, tr, s, client)["lds"]
		for _, name := range slices.Sorted(maps.Keys(config)) {
			all.Add(t, "headless", envoy.ListenerType, config[name])
			if strings.HasPrefix(name, "virtual") {
				continue
			}
			chains := connectionChains(t, decode(t, config[name]).(*listenerv3.Listener))
			slices.Sort(chains)
			got += "\n" + name + ": " + strings.Join(chains, "\n"+name+": ")
		}
		if got != want {
			t.Errorf("enabled %v: %s\nwant:%s", enabled, got, want)
		}
	}
	all.Check(t)
}
