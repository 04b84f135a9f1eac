package translate_test

import (
	"fmt"
	"slices"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestServerNamesAreTakenOnce: a server name that two services have, one of them as an alias, is the first one's alone.
// Envoy refuses a listener with one name in two chains.
func TestServerNamesAreTakenOnce(t *testing.T) {
	const entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: a, creationTimestamp: %q}\n" +
		"spec: {hosts: [%s], location: MESH_EXTERNAL, resolution: DNS, ports: [{number: 9460, name: tls, protocol: TLS}]}\n---\n"
	const alias = "apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: a}\nspec: {type: ExternalName, externalName: " +
		"real.example.com}\n---\n"
	for name, older := range map[string]string{"the service's own": "2020-01-01T00:00:00Z", "the alias's": "2030-01-01T00:00:00Z"} {
		w, tr := newWorld(t, mesh.Default()), newTranslator(0)
		s := w.apply(objects(t, "world.yaml", []byte(alias+fmt.Sprintf(entry, "real", "2025-01-01T00:00:00Z",
			"real.example.com")+fmt.Sprintf(entry, "other", older, "other.a")))...)
		l := decode(t, tr.Wildcard(s, tr.ResolveCohort(s, testProxies()["web"]), envoy.ListenerType).Get("0.0.0.0_9460")).(*listenerv3.Listener)
		owners := map[string]int{}
		for _, c := range l.FilterChains {
			for _, n := range c.FilterChainMatch.ServerNames {
				owners[n]++
			}
		}
		for _, n := range []string{"real.example.com", "other.a", "other.a.svc", "other.a.svc.cluster.local", "other.a.svc.cluster.local."} {
			if owners[n] != 1 {
				t.Errorf("%s is older: %d chains have %s: %v", name, owners[n], n, owners)
			}
		}
	}
}

// TestNoRouteConfigurationIsEmpty checks that the route configuration of a deleted listener still has a virtual host,
// whether or not the Sidecar has a listener for all other ports. Envoy keeps the virtual hosts that came by themselves
// when the route configuration no longer says that they do.
func TestNoRouteConfigurationIsEmpty(t *testing.T) {
	for _, egress := range []string{"", ", {hosts: [./*]}"} {
		w, tr := newWorld(t, mesh.Default()), newTranslator(0)
		s := w.apply(objects(t, "sidecar.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: a}\n"+
			"spec: {egress: [{port: {number: 9000, name: http, protocol: HTTP}, hosts: [./*]}"+egress+"]}\n"))...)
		for _, x := range []struct{ who, name, host string }{
			{"web", "9001", "blackhole:9001"}, {"gateway", "http.9001", "blackhole:9001"},
			{"web", "unix:///run/x.sock", "blackhole:0"}, {"web", "unix:///run/x:9000", "blackhole:0"}, {"web", "unix://@x", "blackhole:0"},
		} {
			if egress != "" && x.name == "9001" { // of the listener for all other ports
				x.host = names.AllowAny
			}
			r := tr.Resource(s, tr.ResolveCohort(s, testProxies()[x.who]), envoy.RouteType, x.name)
			hosts := decode(t, r).(*routev3.RouteConfiguration).VirtualHosts
			if len(hosts) != 1 || hosts[0].Name != x.host || !slices.Equal(hosts[0].Domains, []string{"*"}) || r.Hosts.Len() != 1 {
				t.Errorf("%s of %s: %v", x.name, x.who, hosts)
			}
			if len(hosts) == 1 && len(hosts[0].Routes) != 0 && x.host != names.AllowAny {
				t.Errorf("%s of %s has routes: %v", x.name, x.who, hosts)
			}
		}
	}
}

// TestSidecarPortsWithoutProtocolAreSniffed checks that the protocol of a Sidecar's own listeners is taken neither from
// their names nor from the ports of services: HTTP on them is subject to routes and to policies for HTTP.
func TestSidecarPortsWithoutProtocolAreSniffed(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(0)
	s := w.apply(objects(t, "world.yaml", []byte(`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a},
  spec: {clusterIP: 10.1.0.1, selector: {app: web}, ports: [{name: http, port: 80}, {name: tcp, port: 9000}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}},
  spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: a}
spec:
  ingress:
  - {port: {number: 8080, name: tcp}, defaultEndpoint: "127.0.0.1:8080"}
  - {port: {number: 9000, name: tcp, protocol: TCP}, defaultEndpoint: "127.0.0.1:9000"}
  egress:
  - {port: {number: 80, name: http}, hosts: [./*]}
  - {port: {number: 9000, name: tcp}, hosts: [./*]}
`))...)
	p := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local"}`))
	var http []string // listeners that take HTTP, with the port of the chain if they have several
	for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ListenerType).All {
		l := decode(t, r).(*listenerv3.Listener)
		for _, c := range l.FilterChains {
			sniffed := slices.Contains(c.GetFilterChainMatch().GetApplicationProtocols(), "http/1.1")
			if port := c.GetFilterChainMatch().GetDestinationPort().GetValue(); sniffed && (l.Name != "virtualInbound" || port != 0) {
				http = append(http, fmt.Sprint(l.Name, " ", port))
			}
		}
	}
	slices.Sort(http)
	if want := []string{"10.1.0.1_80 0", "10.1.0.1_9000 0", "virtualInbound 8080"}; !slices.Equal(http, want) {
		t.Errorf("%q take HTTP where it is detected; want %q", http, want)
	}
}

// TestServicesThatAnOwnListenerLeavesOut checks that a service which a Sidecar's own listener does not import has a
// listener at its address if the listener for all other ports imports it, as in istiod. Requests to any address of the
// port belong to the Sidecar's own listener alone.
func TestServicesThatAnOwnListenerLeavesOut(t *testing.T) {
	const world = `{apiVersion: v1, kind: Service, metadata: {name: own, namespace: a},
  spec: {clusterIP: 10.1.0.1, ports: [{name: tcp, port: 9000}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: plain, namespace: b},
  spec: {clusterIP: 10.1.0.2, ports: [{name: tcp, port: 9000}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: unnamed, namespace: b},
  spec: {clusterIP: 10.1.0.3, ports: [{name: x, port: 9000}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: requests, namespace: b},
  spec: {clusterIP: 10.1.0.4, ports: [{name: http, port: 9000}]}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: a}
spec:
  egress:
  - {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*/*", "~b/*"]}
  - {hosts: [%s]}
`
	for hosts, want := range map[string][]string{
		`"*/*"`:                                {"10.1.0.1_9000", "10.1.0.2_9000", "10.1.0.3_9000"},
		`"*/*", "~/plain.b.svc.cluster.local"`: {"10.1.0.1_9000", "10.1.0.3_9000"},
		`a/*`:                                  {"10.1.0.1_9000"},
	} {
		w, tr := newWorld(t, mesh.Default()), newTranslator(0)
		s := w.apply(objects(t, "world.yaml", fmt.Appendf(nil, world, hosts))...)
		c := tr.ResolveCohort(s, testProxies()["web"])
		var got []string
		for r := range tr.Wildcard(s, c, envoy.ListenerType).All {
			if l := decode(t, r).(*listenerv3.Listener); l.GetAddress().GetSocketAddress().GetPortValue() == 9000 {
				got = append(got, l.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v listen, want %v", hosts, got, want)
		}
		if len(want) < 3 {
			continue
		}
		const host = "unnamed.b.svc.cluster.local"
		route := decode(t, tr.Resource(s, c, envoy.RouteType, names.SniffedRoute(host, 9000))).(*routev3.RouteConfiguration)
		if len(route.VirtualHosts) != 1 || route.VirtualHosts[0].Routes[0].GetRoute().GetCluster() != "outbound|9000||"+host {
			t.Errorf("%s: requests to %s are routed by %v", hosts, host, route.VirtualHosts)
		}
	}
}
