package translate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

const tuningWorld = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.64.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}, {name: detected, port: 90}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: a, labels: {app: web}}
spec: {containers: [{name: istio-proxy, image: proxy}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: "True"}]}
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
spec: {hosts: [one.example.com], gateways: [istio-system/gw], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: istio-system}
spec:
  selector: {istio: ingress}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [one.example.com]}]
`

// TestTuningOfAllProxies has the settings of a control plane for the listeners of all proxies: which chains accept
// HTTP/1.0, take the caller's address as the origin of a request, and bound a handshake.
func TestTuningOfAllProxies(t *testing.T) {
	all := &envoytest.Resources{}
	for _, c := range []struct {
		name   string
		tuning node.Tuning
		want   map[string]string // by proxy and direction: the settings of all chains with HTTP, and whether HTTP/1.0 is matched
	}{
		{"default", node.Tuning{}, map[string]string{
			"sidecar inbound": "remote=false", "sidecar outbound": "remote=false 15s", "sidecar http_proxy": "remote=false 15s",
			"gateway": "remote=true internal 15s"}},
		{"HTTP/1.0", node.Tuning{HTTP10: true}, map[string]string{
			"sidecar inbound": "remote=false HTTP/1.0 matched", "sidecar outbound": "remote=false HTTP/1.0 matched 15s",
			"sidecar http_proxy": "remote=false HTTP/1.0 15s", "gateway": "remote=true internal HTTP/1.0 15s"}},
		{"remote address", node.Tuning{RemoteAddress: true}, map[string]string{
			"sidecar inbound": "remote=false", "sidecar outbound": "remote=true internal 15s", "sidecar http_proxy": "remote=false 15s",
			"gateway": "remote=true internal 15s"}},
		{"a shorter handshake", node.Tuning{HandshakeTimeout: 2 * time.Second}, map[string]string{
			"sidecar inbound": "remote=false", "sidecar outbound": "remote=false 2s", "sidecar http_proxy": "remote=false 2s",
			"gateway": "remote=true internal 2s"}},
		{"no limit for handshakes", node.Tuning{HandshakeTimeout: -1}, map[string]string{
			"sidecar inbound": "remote=false", "sidecar outbound": "remote=false", "sidecar http_proxy": "remote=false",
			"gateway": "remote=true internal"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, tr := newWorldOf(t, snapshot.Options{Mesh: mesh.Default(), Settings: snapshot.Settings{Tuning: c.tuning}}), newTranslator(0)
			w.apply(objects(t, "world.yaml", []byte(tuningWorld))...)
			w.builder.SetNetworks(nil, []string{"10.1.0.0/16"})
			s := w.builder.Commit(time.Time{})
			got := map[string]map[string]bool{}
			for _, p := range []*node.Proxy{
				{Type: node.Sidecar, ID: "web.a", Name: "web", Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{"10.1.0.1"},
					Cluster: "Kubernetes", Labels: map[string]string{"app": "web"}, HTTPProxyPort: 15080},
				{Type: node.Router, ID: "gw.istio-system", Name: "gw", Namespace: "istio-system", Domain: "istio-system.svc.cluster.local",
					IPs: []string{"10.1.0.9"}, Cluster: "Kubernetes", Labels: map[string]string{"istio": "ingress"}},
			} {
				for name, r := range sent(t, tr, s, p)["lds"] {
					all.Add(t, c.name, envoy.ListenerType, r)
					l := decode(t, r).(*listenerv3.Listener)
					for _, chain := range l.FilterChains {
						where, text := chainTuning(t, p, name, l, chain)
						if where != "" {
							if got[where] == nil {
								got[where] = map[string]bool{}
							}
							got[where][text] = true
						}
					}
				}
			}
			text := map[string]string{}
			for where, of := range got {
				// Chains for detected HTTP are the ones that match it. The others are for HTTP alone.
				list := slices.Sorted(maps.Keys(of))
				if c.tuning.HTTP10 && len(list) == 2 && strings.ReplaceAll(list[1], " matched", "") == list[0] {
					list = list[1:]
				}
				text[where] = strings.Join(list, "; ")
			}
			if d := cmp.Diff(c.want, text); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	all.Check(t)
}

// chainTuning returns the settings of a chain with HTTP, and where it is. where is empty for another chain.
func chainTuning(t *testing.T, p *node.Proxy, name string, l *listenerv3.Listener, chain *listenerv3.FilterChain) (where, text string) {
	t.Helper()
	last := chain.Filters[len(chain.Filters)-1]
	m := &hcmv3.HttpConnectionManager{}
	if !last.GetTypedConfig().MessageIs(m) {
		return "", ""
	}
	unpack(t, last.GetTypedConfig().Value, m)
	switch {
	case p.Type == node.Router:
		where = "gateway"
	case m.GetRds().GetRouteConfigName() == "http_proxy":
		where = "sidecar http_proxy"
	default:
		where = "sidecar " + strings.ToLower(l.GetTrafficDirection().String())
	}
	text = fmt.Sprintf("remote=%v", m.GetUseRemoteAddress().GetValue())
	if len(m.GetInternalAddressConfig().GetCidrRanges()) > 0 {
		text += " internal"
	}
	if m.GetHttpProtocolOptions().GetAcceptHttp_10() {
		text += " HTTP/1.0"
	}
	if slices.Contains(chain.GetFilterChainMatch().GetApplicationProtocols(), "http/1.0") {
		text += " matched"
	}
	if d := chain.GetTransportSocketConnectTimeout(); d != nil {
		text += " " + d.AsDuration().String()
	}
	return where, text
}
