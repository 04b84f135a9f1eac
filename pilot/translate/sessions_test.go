package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// sessionWorld has services with a cookie, a header, both and neither, and a gateway that leads to them.
const sessionWorld = `
{apiVersion: v1, kind: Service, metadata: {name: cookie, namespace: a, labels: {istio.io/persistent-session: id}},
 spec: {clusterIP: 10.64.0.1, selector: {app: web}, ports: [{name: http, port: 80}, {name: auto, port: 81}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: header, namespace: a, labels: {istio.io/persistent-session-header: x-id}},
 spec: {clusterIP: 10.64.0.2, selector: {app: web}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: both, namespace: a, labels: {istio.io/persistent-session: id2,
 istio.io/persistent-session-header: x-id}}, spec: {clusterIP: 10.64.0.3, selector: {app: web}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: none, namespace: a}, spec: {clusterIP: 10.64.0.4, selector: {app: web},
 ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}}, spec: {containers: [{name: web, image: web}]},
 status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw, namespace: a, labels: {istio: ingress}},
 spec: {containers: [{name: istio-proxy, image: proxy}]}, status: {phase: Running, podIP: 10.1.0.9, podIPs: [{ip: 10.1.0.9}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: a}, spec: {selector: {istio: ingress},
 servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: named, namespace: a},
 spec: {hosts: [cookie.a.svc.cluster.local, own.example], gateways: [gw, mesh], http: [{route: [{destination: {host: cookie}}]}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: unnamed, namespace: a}, spec: {hosts: [other.example],
 gateways: [gw], http: [{route: [{destination: {host: cookie}}]}]}}
`

// TestSessions has the virtual hosts of a sidecar and of a gateway that keep sessions, and the filter of connection
// managers that they override. Without the variable there are none.
func TestSessions(t *testing.T) {
	all := &envoytest.Resources{}
	for enabled, want := range map[bool]map[node.Type][]string{
		true: {
			node.Sidecar: {
				"80 both.a.svc.cluster.local:80 cookie id2 /", "80 cookie.a.svc.cluster.local:80 cookie id /",
				"80 header.a.svc.cluster.local:80 header x-id",
				"cookie.a.svc.cluster.local:81 cookie.a.svc.cluster.local:81 cookie id /",
			},
			node.Router: {"http.80 cookie.a.svc.cluster.local:80 cookie id /"},
		},
		false: {},
	} {
		w, tr := newWorldOf(t, snapshot.Options{Mesh: mesh.Default(), Settings: snapshot.Settings{PersistentSessions: enabled}}), newTranslator(0)
		s := w.apply(objects(t, "world.yaml", []byte(sessionWorld))...)
		for kind, p := range map[node.Type]*node.Proxy{
			node.Sidecar: {Type: node.Sidecar, ID: "web-0.a", Name: "web-0", Namespace: "a", Domain: "a.svc.cluster.local",
				IPs: []string{"10.1.0.1"}, Cluster: "Kubernetes", Labels: map[string]string{"app": "web"},
				Interception: node.Redirect, Capabilities: everything},
			node.Router: {Type: node.Router, ID: "gw.a", Name: "gw", Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{"10.1.0.9"},
				Cluster: "Kubernetes", Labels: map[string]string{"istio": "ingress"}, Capabilities: everything},
		} {
			config := sent(t, tr, s, p)
			for name, r := range config["lds"] {
				all.Add(t, fmt.Sprint(kind, enabled), envoy.ListenerType, r)
				for _, m := range managers(t, decode(t, r).(*listenerv3.Listener)) {
					at := slices.IndexFunc(m.HttpFilters, func(f *hcmv3.HttpFilter) bool { return f.Name == "envoy.filters.http.stateful_session" })
					inbound := strings.HasPrefix(m.StatPrefix, "inbound") || strings.HasPrefix(m.StatPrefix, "Inbound")
					if filtered := at >= 0 && at == len(m.HttpFilters)-2; filtered != (enabled && !inbound) {
						t.Errorf("%s, enabled %v: %s of %s has filter %d of %d", kind, enabled, m.StatPrefix, name, at, len(m.HttpFilters))
					}
				}
			}
			var got []string
			for name, r := range config["rds"] {
				for _, h := range decode(t, r).(*routev3.RouteConfiguration).VirtualHosts {
					if c := h.TypedPerFilterConfig["envoy.filters.http.stateful_session"]; c != nil {
						m := &sessionv3.StatefulSessionPerRoute{}
						must.Succeed(t, c.UnmarshalTo(m))
						got = append(got, name+" "+h.Name+" "+sessionText(t, m.GetStatefulSession()))
					}
				}
			}
			if slices.Sort(got); !slices.Equal(got, want[kind]) {
				t.Errorf("%s, enabled %v: %q, want %q", kind, enabled, got, want[kind])
			}
		}
		app := &node.Proxy{Type: node.Sidecar, Generator: node.GRPC, ID: "app.a", Name: "app", Namespace: "a", Domain: "a.svc.cluster.local",
			IPs: []string{"10.1.0.7"}, Cluster: "Kubernetes", Capabilities: everything}
		var interner envoy.NameInterner
		u, err := tr.Get(s, tr.ResolveCohort(s, app), envoy.ListenerType, interner.Intern([]string{"header:80"}))
		must.Succeed(t, err)
		r := slices.Collect(u.All)[0]
		m := &hcmv3.HttpConnectionManager{}
		must.Succeed(t, decode(t, r).(*listenerv3.Listener).ApiListener.ApiListener.UnmarshalTo(m))
		session := &sessionv3.StatefulSession{}
		if first := m.HttpFilters[0]; enabled {
			must.Succeed(t, first.GetTypedConfig().UnmarshalTo(session))
			if text := sessionText(t, session); text != "header x-id" {
				t.Errorf("gRPC: %s", text)
			}
		} else if len(m.HttpFilters) != 2 {
			t.Errorf("gRPC has the filter %s", first.Name)
		}
	}
	all.Check(t)
}

// managers returns the connection managers of a listener.
func managers(t *testing.T, l *listenerv3.Listener) (list []*hcmv3.HttpConnectionManager) {
	for _, chain := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
		for _, f := range chain.GetFilters() {
			if m := (&hcmv3.HttpConnectionManager{}); f.GetTypedConfig().MessageIs(m) {
				must.Succeed(t, f.GetTypedConfig().UnmarshalTo(m))
				list = append(list, m)
			}
		}
	}
	return list
}

func sessionText(t *testing.T, s *sessionv3.StatefulSession) string {
	cookie, header := &cookiev3.CookieBasedSessionState{}, &headerv3.HeaderBasedSessionState{}
	if c := s.GetSessionState().GetTypedConfig(); c.MessageIs(cookie) {
		must.Succeed(t, c.UnmarshalTo(cookie))
		return "cookie " + cookie.Cookie.Name + " " + cookie.Cookie.Path
	}
	must.Succeed(t, s.GetSessionState().GetTypedConfig().UnmarshalTo(header))
	return "header " + header.Name
}
