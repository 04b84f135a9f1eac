package debug

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkingv1 "istio.io/api/networking/v1"
	securityv1 "istio.io/api/security/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/registry"
)

// proxies is one connected sidecar.
type proxies struct {
	pushed int
	ended  []string
}

func (p *proxies) Push() { p.pushed++ }

func (p *proxies) Disconnect(id string) bool {
	p.ended = append(p.ended, id)
	return id == "web-1.a-7"
}

func (*proxies) Clients() []xds.Client {
	return []xds.Client{{
		ID: "web-1.a-7", Address: "10.0.0.1:4000", Connected: time.Unix(100, 0).UTC(),
		Proxy: &node.Proxy{
			ID: "web-1.a", Namespace: "a", Type: node.Sidecar, Cluster: "Kubernetes", Version: "1.31.1", IPs: []string{"10.0.0.1"},
		},
		Waits: "for spring",
		Types: map[string]session.TypeStatus{
			envoy.ClusterType:  {Sent: "n2", Acked: "n1", Version: "v2", Wildcard: true, LastError: "no such filter"},
			envoy.EndpointType: {Sent: "n3", Acked: "n3", Names: 4},
		},
	}}
}

func (*proxies) Dump(id, typeURL string) ([]*envoy.Resource, bool) {
	switch {
	case id == "web-1.a-7" && typeURL == envoy.NameTableType: // as istiod sent it
		return []*envoy.Resource{
			envoy.RawResource("", typeURL, []byte("\nA\n\x1aclient.a.svc.cluster.local\x12#\n\n10.64.0.12\x12\nKubernetes\x1a\x06client\"\x01a")),
		}, true
	case id == "web-1.a-7" && typeURL == envoy.ExtensionType:
		c := &corev3.TypedExtensionConfig{Name: "module", TypedConfig: envoy.Any(&wasmv3.Wasm{})}
		return []*envoy.Resource{envoy.NewResource(c.Name, c)}, true
	case id != "web-1.a-7" || typeURL != envoy.ClusterType:
		return nil, false
	}
	return []*envoy.Resource{envoy.NewResource("outbound", &clusterv3.Cluster{Name: "outbound"})}, true
}

func testAPI(t *testing.T) (*API, *proxies) {
	t.Helper()
	objects := []*kinds.Object{
		{
			Key:         kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "tls"},
			Annotations: map[string]string{lastApplied: "S3CRET", "kept": "yes"},
			Spec:        &corev1.Secret{Data: map[string][]byte{"tls.key": []byte("S3CRET")}, StringData: map[string]string{"more": "S3CRET"}},
		},
		{
			Key:         kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: "a", Name: "mine"},
			Annotations: map[string]string{"istio.io/dry-run": "true"}, Position: "p.yaml:1:1",
			Spec: &securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_DENY},
		},
		{Key: kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: "b", Name: "other"}, Spec: &securityv1.AuthorizationPolicy{}},
		{
			Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web"}, Position: "web.yaml:1:1",
			Spec: &networkingv1.VirtualService{Hosts: []string{"web"}},
		},
	}
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	svc := &registry.Service{
		Host: "web.a.svc.cluster.local", Namespace: "a", Name: "web", Addresses: []string{"10.1.0.1"},
		Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}},
	}
	b.ApplyRegistry(registry.Changes{
		Services: map[registry.ServiceKey]*registry.Service{svc.Key(): svc},
		Endpoints: map[registry.ServiceKey][]*registry.Endpoint{svc.Key(): {{
			Address: "10.0.0.1", Port: 8080, ServicePort: "http", Identity: "spiffe://cluster.local/ns/a/sa/web",
			Locality: registry.Locality{Region: "r", Zone: "z"},
		}}},
	})
	b.SetNetworks([]registry.Gateway{{Network: "away", Cluster: "c2", Address: "192.0.2.1", Port: 15443}}, nil)
	snap := b.Commit(time.Unix(1, 0))
	p := &proxies{}
	w := &world{snap, objects, []diag.Diagnostic{{Code: "UnknownField", Message: "no such field", File: "a.yaml", Line: 3, Column: 5}}}
	return New(Options{
		World: w, Translator: translator{w}, Proxies: p, Cluster: "Kubernetes", Limits: limits.Default(), Progress: newTracker(w, objects),
	}), p
}

// world is a World of constants.
type world struct {
	snapshot *snapshot.Snapshot
	objects  []*kinds.Object
	findings []diag.Diagnostic
}

func (w *world) Snapshot() *snapshot.Snapshot { return w.snapshot }

func (w *world) Objects() []*kinds.Object { return w.objects }

func (*world) Origin(kinds.Key) *kinds.Object { return nil }

func (w *world) Findings() []diag.Diagnostic { return w.findings }

// translator is a Translator of one cluster, whose proxies all have the same Sidecar and DestinationRule.
type translator struct{ *world }

func (translator) Visible(s *snapshot.Snapshot, p *node.Proxy) (*scope.Scope, func(*registry.Service) []*kinds.Object) {
	sidecar := &kinds.Object{Key: kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: "narrow"}, Spec: &networkingv1.Sidecar{}}
	rule := &kinds.Object{
		Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: "a", Name: "web"}, Spec: &networkingv1.DestinationRule{Host: "web"},
	}
	return scope.NewIndex(s, nil).ScopeOf(p.Namespace, sidecar), func(*registry.Service) []*kinds.Object { return []*kinds.Object{rule} }
}

func (t translator) Selected(_ *snapshot.Snapshot, p *node.Proxy, kind *kinds.Kind) []*kinds.Object {
	return slices.DeleteFunc(slices.Clone(t.objects), func(o *kinds.Object) bool { return o.Kind != kind || o.Namespace != p.Namespace })
}

func (translator) Stats() (hits, misses uint64) { return 5, 4 }

func (translator) Kept() int { return 3 }

func (translator) Each(yield func(*envoy.Resource)) {
	yield(envoy.RawResource("outbound", envoy.ClusterType, make([]byte, 12280)))
}

func (translator) AllConflicts() map[string][]string {
	return map[string][]string{"pilot_conflict_inbound_listener": {"web.a.svc.cluster.local:80"}}
}

func get(t *testing.T, a *API, target, peer string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:15014"+target, nil)
	r.RemoteAddr = peer
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	must.Succeed(t, err)
	return w.Code, string(body)
}

const here = "127.0.0.1:5555"

// Every page that the list names answers with JSON that is not null, before and after the first snapshot.
func TestEveryPageAnswers(t *testing.T) {
	a, _ := testAPI(t)
	w := &world{}
	empty := New(Options{World: w, Proxies: &proxies{}, Limits: limits.Default(), Progress: newTracker(w, nil)})
	if !slices.IsSortedFunc(a.pages, func(x, y page) int { return strings.Compare(x.name, y.name) }) {
		t.Fatal("pages are found by their order")
	}
	for _, p := range a.pages {
		for name, api := range map[string]*API{"full": a, "empty": empty} {
			code, body := get(t, api, "/debug/"+p.name+"?proxyID=web-1.a&object=Secret/tls.a", here)
			var v any
			if err := json.Unmarshal([]byte(body), &v); code != http.StatusOK || err != nil || v == nil {
				t.Errorf("%s, %s: %d %v %s", p.name, name, code, err, body)
			}
			if strings.Contains(body, "S3CRET") {
				t.Errorf("%s shows what is in a Secret: %s", p.name, body)
			}
		}
	}
}

// TestPoliciesOfOneProxy: with a proxyID, authorizationz shows the policies that apply to that proxy alone.
func TestPoliciesOfOneProxy(t *testing.T) {
	a, _ := testAPI(t)
	_, body := get(t, a, "/debug/authorizationz?proxyID=web-1.a", here)
	if !strings.Contains(body, `"a/mine"`) || !strings.Contains(body, `"name": "mine"`) || strings.Contains(body, "other") {
		t.Error(body)
	}
	if _, body := get(t, a, "/debug/authorizationz?proxyID=nobody", here); !strings.Contains(body, ErrNotConnected.Error()) {
		t.Error(body)
	}
}

func TestPagesHaveIstiosShapes(t *testing.T) {
	a, _ := testAPI(t)
	for target, want := range map[string][]string{
		"/debug/networkz": {
			`"Network": "away"`, `"Cluster": "c2"`, `"Addr": "192.0.2.1"`, `"Port": 15443`, `"HBONEPort": 0`, `"ServiceAccount": {`,
		},
		"/debug/syncz": {
			`"cluster_id": "Kubernetes"`, `"proxy": "web-1.a"`, `"proxy_type": "sidecar"`, `"istio_version": "1.31.1"`, `"cluster_sent": "n2"`,
			`"cluster_acked": "n1"`,
			`"state": "ERROR"`, `"state": "SYNCED"`, `"subscribed": "all"`, `"subscribed": "4"`, `"waits": "for spring"`, `"version": "1.31.1"`,
			`"endpoint_sent": "n3"`, `"lastError": "no such filter"`,
		},
		"/debug/adsz": {
			`"totalClients": 1`, `"connectionId": "web-1.a-7"`, `"connectedAt": "1970-01-01T00:01:40Z"`, `"address": "10.0.0.1:4000"`,
			`"wildcard": true`, `"type.googleapis.com/envoy.config.cluster.v3.Cluster": [`, `"outbound"`,
		},
		"/debug/configz":   {`"kind": "VirtualService"`, `"hosts": [`, `"position": "web.yaml:1:1"`, `"tls.key": "[redacted]"`, `"kept": "yes"`},
		"/debug/registryz": {`"hostname": "web.a.svc.cluster.local"`, `"protocol": "HTTP"`, `"10.1.0.1"`},
		"/debug/endpointz": {
			`"web.a.svc.cluster.local": {`, `"Kubernetes/": [`, `"ServicePortName": "http"`, `"Label": "r/z"`,
			`"ServiceAccount": "spiffe://cluster.local/ns/a/sa/web"`,
		},
		"/debug/instancesz": {`"web-1.a": [`, `"hostname": "web.a.svc.cluster.local"`, `"TargetPort": 8080`},
		"/debug/krtz":       {`"name": "networking.istio.io/v1/VirtualService"`, `"a/web": {`, `"[redacted]"`},
		"/debug/resourcesz": {`"kind": "VirtualService"`, `"count": 1`},
		"/debug/findings":   {`"code": "UnknownField"`, `"line": 3`},
		"/debug/limits":     {`"HandshakeTimeout": "10s"`, `"RecvMessage": 4194304`},
		"/debug/ndsz?proxyID=web-1.a": {
			`"configs": [`, `"@type": "type.googleapis.com/istio.networking.nds.v1.NameTable"`, `"client.a.svc.cluster.local": {`, `"10.64.0.12"`,
			`"registry": "Kubernetes"`, `"shortname": "client"`, `"namespace": "a"`,
		},
		"/debug/ecdsz?proxyID=web-1.a": {
			`"name": "module"`, "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "filters.http.wasm.v3.Wasm",
		},
		"/debug/config_dump?proxyID=web-1.a": {
			"EcdsConfigDump", "ClustersConfigDump", `"versionInfo": "v2"`, `"name": "outbound"`, "RoutesConfigDump",
		},
		"/debug/sidecarz?proxyID=web-1.a": {
			`"namespace": "a"`, `"name": "narrow"`, `"hostname": "web.a.svc.cluster.local"`, `"port": 80`, `"web.a.svc.cluster.local": [`,
			`"kind": "DestinationRule"`, `"rootNamespace": "istio-system"`,
		},
		"/debug/cachez":            {`"type.googleapis.com/envoy.config.cluster.v3.Cluster": [`, `"outbound"`},
		"/debug/cachez?sizes":      {`"total": "12.3kB"`},
		"/debug/cachez?sizes=true": {`"total": "12.3kB"`, `"type.googleapis.com/envoy.config.cluster.v3.Cluster": "12.3kB"`},
		"/debug/pushcontext": {
			`"resources": 3`, `"hits": 5`, `"misses": 4`, `"services": 1`, `"namespace_to_policies": {`, `"Network": "away"`,
		},
		"/debug/push_status": {`"pilot_conflict_inbound_listener": {`, `"message": "web.a.svc.cluster.local:80"`},
		"/debug/mesh":        {`"trustDomain": "cluster.local"`},
		"/debug/authorizationz": {
			`"namespace_to_policies": {`, `"root_namespace": "istio-system"`, `"name": "mine"`, `"name": "other"`, `"istio.io/dry-run": "true"`,
			`"action": "DENY"`, `"position": "p.yaml:1:1"`,
			`"web-1.a": [`, `"a/mine"`,
		},
	} {
		_, body := get(t, a, target, here)
		// protojson puts spaces in at random.
		flat := strings.ReplaceAll(body, ":  ", ": ")
		for _, w := range want {
			if !strings.Contains(flat, w) {
				t.Errorf("%s: no %s in %s", target, w, flat)
			}
		}
	}
}

func TestUnknownProxiesAndPagesAreErrors(t *testing.T) {
	a, p := testAPI(t)
	for target, want := range map[string]struct {
		code int
		text string
	}{
		"/debug/config_dump":             {400, "You must provide a proxyID in the query string"},
		"/debug/adsz?push=bad":           {400, `the query is wrong: push="bad" is neither true nor false`},
		"/debug/cachez?sizes=bad":        {400, `the query is wrong: sizes="bad" is neither true nor false`},
		"/debug/config_dump?proxyID=x.y": {404, "Proxy not connected to this Pilot instance. It may be connected to another instance."},
		"/debug/nothing":                 {404, "404 page not found"},
		"/debug/cachez?clear=true": {400, "the query is wrong: clear has no effect here, because the cache only has resources in use; " +
			"to run without it, set PILOT_ENABLE_XDS_CACHE=false in the environment of pilot-discovery"},
		"/debug/pprof/": {404, "404 page not found"}, // without Profile
	} {
		if code, body := get(t, a, target, here); code != want.code || strings.TrimSpace(body) != want.text {
			t.Errorf("%s: %d %s", target, code, body)
		}
	}
	if _, body := get(t, a, "/debug/adsz?push=true", here); p.pushed != 1 || body != "Pushed to 1 clients\n" {
		t.Errorf("pushed %d times: %s", p.pushed, body)
	}
	if code, body := get(t, a, "/debug", here); code != 200 || !strings.Contains(body, `href="/debug/syncz"`) {
		t.Errorf("index: %d %s", code, body)
	}
}

// Off loopback, and for a browser that was led here by a foreign name, nothing is shown at all.
func TestOnlyLoopback(t *testing.T) {
	a, _ := testAPI(t)
	for _, target := range []string{"/debug", "/debug/", "/debug/syncz", "/debug/list", "/debug/pprof/", "/debug/nothing"} {
		for _, peer := range []string{"10.0.0.9:1", "[2001:db8::1]:1", "unknown"} {
			if code, body := get(t, a, target, peer); code != http.StatusUnauthorized || strings.TrimSpace(body) != "authentication required" {
				t.Errorf("%s from %s: %d %s", target, peer, code, body)
			}
		}
	}
	for host, want := range map[string]int{"localhost:8080": 200, "[::1]:8080": 200, "127.0.0.1": 200, "rebound.example:8080": 401} {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+"/debug/list", nil)
		r.RemoteAddr = "[::1]:9"
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("host %s: %d", host, w.Code)
		}
	}
}

// TestNoOtherOriginChangesAnything is about requests that a web page has a browser of this host make. The page cannot
// read the answer, and must not cause anything either.
func TestNoOtherOriginChangesAnything(t *testing.T) {
	a, p := testAPI(t)
	a.o.Admin, a.o.Profile = true, true
	a = New(a.o)
	a.o.Authenticate = func(_ context.Context, address netip.AddrPort, _ string) (identity.Peer, error) {
		return identity.Peer{Address: address, Proof: identity.Token,
			ID: identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "x"}}, nil
	}
	a.o.Authorizer = authorize.New(authorize.Options{SystemNamespace: "istio-system"})
	ask := func(h http.Handler, method, target, header, value string) int {
		r := httptest.NewRequest(method, "http://localhost:15014"+target, nil)
		r.RemoteAddr = here
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, target := range []string{
		"/debug/adsz?push=true", "/debug/adsz?push", "/debug/adsz?namespace=a&push=1", "/debug/force_disconnect?proxyID=web-1.a",
		"/debug/pprof/cmdline", "/debug/adsz/?push",
	} {
		for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
			if code := ask(a.Handler(), http.MethodGet, target, header, value); code != http.StatusForbidden {
				t.Errorf("%s with %s %s: %d", target, header, value, code)
			}
		}
	}
	if p.pushed > 0 || len(p.ended) > 0 {
		t.Errorf("pushed %d times, ended %v", p.pushed, p.ended)
	}
	guarded := a.Guard(http.NotFoundHandler())
	if code := ask(guarded, http.MethodPut, "/scopej/ads", "Sec-Fetch-Site", "same-site"); code != http.StatusForbidden {
		t.Errorf("PUT of another origin: %d", code)
	}
	if code := ask(guarded, http.MethodPut, "/scopej/ads", "Sec-Fetch-Site", "same-origin"); code != http.StatusNotFound {
		t.Errorf("PUT of the same origin: %d", code)
	}
	for _, c := range [][3]string{
		{"/debug/syncz", "Sec-Fetch-Site", "cross-site"}, // a link
		{"/debug/adsz?push=true", "Sec-Fetch-Site", "none"},
		{"/debug/adsz?push=true", "Sec-Fetch-Site", "same-origin"},
		{"/debug/adsz?push=true", "User-Agent", "curl"},
		{"/debug/adsz?push=true", "Authorization", "Bearer x"},
	} {
		if code := ask(a.Handler(), http.MethodGet, c[0], c[1], c[2]); code != http.StatusOK {
			t.Errorf("%v: %d", c, code)
		}
	}
	if p.pushed != 4 {
		t.Errorf("pushed %d times", p.pushed)
	}
}

// Over HTTP a bearer token counts as it does over xDS, from wherever it comes, and a wrong one is refused even here.
func TestTokensOverHTTP(t *testing.T) {
	a, _ := testAPI(t)
	a.o.Authorizer = authorize.New(authorize.Options{SystemNamespace: "istio-system", DebugNamespaces: []string{"monitoring"}})
	a.o.Authenticate = func(_ context.Context, address netip.AddrPort, token string) (identity.Peer, error) {
		if token == "wrong" {
			return identity.Peer{}, errors.New("wrong")
		}
		return identity.Peer{
			Address: address, Proof: identity.Token, ID: identity.ID{TrustDomain: "cluster.local", Namespace: token, ServiceAccount: "x"},
		}, nil
	}
	for _, c := range []struct {
		token, peer, target string
		want                int
	}{
		{"istio-system", "10.0.0.9:1", "/debug/syncz", 200},
		{"istio-system", "10.0.0.9:1", "/debug", 200},
		{"monitoring", "10.0.0.9:1", "/debug/syncz", 200},
		{"a", "10.0.0.9:1", "/debug/syncz", 403},
		{"a", "10.0.0.9:1", "/debug", 403},
		{"a", "10.0.0.9:1", "/debug/config_dump?proxyID=web-1.a", 200},
		{"b", "10.0.0.9:1", "/debug/config_dump?proxyID=web-1.a", 403},
		{"b", "10.0.0.9:1", "/debug/config_dump?proxyID=nobody.b", 403},
		{"wrong", "10.0.0.9:1", "/debug/syncz", 401},
		{"wrong", here, "/debug/syncz", 401},
		{"", "10.0.0.9:1", "/debug/syncz", 401},
		{"", here, "/debug/syncz", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://istiod.istio-system:15014"+c.target, nil)
		r.RemoteAddr = c.peer
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		} else {
			r.Host = "localhost"
		}
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%v: %d %s", c, w.Code, w.Body)
		}
		guarded := httptest.NewRecorder()
		a.Guard(http.NotFoundHandler()).ServeHTTP(guarded, r)
		if all := c.token == "istio-system" || c.token == "monitoring" ||
			c.token == "" && c.peer == here; all != (guarded.Code == http.StatusNotFound) {
			t.Errorf("%v, guarded: %d", c, guarded.Code)
		}
	}
}

// Over xDS the dump of a proxy that is connected elsewhere is empty: istioctl would show a text as what differs.
func TestDumpOfNobody(t *testing.T) {
	a, _ := testAPI(t)
	a.o.Authorizer = authorize.New(authorize.Options{SystemNamespace: "istio-system"})
	peer := identity.Peer{
		Address: netip.MustParseAddrPort(here), Proof: identity.Token,
		ID: identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "default"},
	}
	for typeURL, names := range map[string][]string{
		xds.DebugType + "/config_dump": {"nobody.a"}, xds.DebugType: {"config_dump?proxyID=nobody.a"},
	} {
		list, err := a.Resources(peer, typeURL, names)
		switch {
		case err != nil:
			t.Errorf("%s: %v", typeURL, err)
		case typeURL == xds.DebugType+"/config_dump" && len(list) != 0, typeURL != xds.DebugType+"/config_dump" &&
			(len(list) != 1 || string(list[0].Value) != ErrNotConnected.Error()):
			t.Errorf("%s: %v", typeURL, list)
		}
	}
	for _, names := range [][]string{nil, {"web-1.a", "web-2.a"}} {
		for _, typeURL := range []string{xds.DebugType + "/config_dump", xds.DebugType} {
			if list, err := a.Resources(peer, typeURL, names); err == nil {
				t.Errorf("%s of %v: %v", typeURL, names, list)
			}
		}
	}
	if list, err := a.Resources(peer, xds.DebugType+"/config_dump", []string{"web-1.a"}); err != nil || len(list) == 0 {
		t.Errorf("the dump of a proxy that is connected: %v %v", list, err)
	}
}

// The page that ends streams is there only where it was asked for.
func TestForceDisconnect(t *testing.T) {
	a, p := testAPI(t)
	if code, _ := get(t, a, "/debug/force_disconnect?proxyID=web-1.a", here); code != http.StatusNotFound || len(p.ended) > 0 {
		t.Errorf("%d, ended %v", code, p.ended)
	}
	a.o.Admin = true
	a = New(a.o)
	if code, _ := get(t, a, "/debug/force_disconnect?proxyID=web-1.a", here); code != http.StatusOK ||
		!slices.Equal(p.ended, []string{"web-1.a-7"}) {
		t.Errorf("%d, ended %v", code, p.ended)
	}
	if code, _ := get(t, a, "/debug/force_disconnect?proxyID=nobody.a", here); code != http.StatusNotFound {
		t.Errorf("%d", code)
	}
}

// TestWaitingRequestsAreBounded: requests that wait for a push take no slot of others, and are so many at most.
func TestWaitingRequestsAreBounded(t *testing.T) {
	a, _ := testAPI(t)
	a.o.Pushes = pushes.New(pushes.Options{})
	a.Close() // each waits no longer than it must
	if code, body := get(t, a, "/debug/pushes?watch", here); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	for range maxWatchers {
		if a.watchers.Try(identity.Holder{}) == nil {
			t.Fatal("there are fewer")
		}
	}
	if code, body := get(t, a, "/debug/pushes?watch", here); code != http.StatusTooManyRequests {
		t.Errorf("one more waits: %d %s", code, body)
	}
	if code, body := get(t, a, "/debug/pushes", here); code != http.StatusOK {
		t.Errorf("one that does not wait: %d %s", code, body)
	}
}

func TestConcurrentRequestsAreBounded(t *testing.T) {
	a, _ := testAPI(t)
	entered, release := make(chan struct{}), make(chan struct{})
	i := slices.IndexFunc(a.pages, func(p page) bool { return p.name == "list" })
	a.pages[i].answer = func(url.Values) (any, error) {
		entered <- struct{}{}
		<-release
		return nil, nil
	}
	done := make(chan int)
	for range a.o.Limits.DebugRequests {
		go func() {
			code, _ := get(t, a, "/debug/list", here)
			done <- code
		}()
		<-entered
	}
	if code, _ := get(t, a, "/debug/syncz", here); code != http.StatusTooManyRequests {
		t.Errorf("one more is answered: %d", code)
	}
	close(release)
	for range a.o.Limits.DebugRequests {
		if code := <-done; code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	}
}

// TestDebugOfOneIdentity checks that an identity has one request for a page answered at a time, and a tenth of the
// requests that wait for a push, while another identity is answered.
func TestDebugOfOneIdentity(t *testing.T) {
	a, _ := testAPI(t)
	a.o.Authorizer = authorize.New(authorize.Options{SystemNamespace: "istio-system"})
	a.o.Authenticate = func(_ context.Context, address netip.AddrPort, token string) (identity.Peer, error) {
		return identity.Peer{
			Address: address, Proof: identity.Token,
			ID: identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: token},
		}, nil
	}
	a.o.Pushes = pushes.New(pushes.Options{})
	ask := func(account, target string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://istiod.istio-system:15014"+target, nil)
		r.RemoteAddr = "10.0.0.9:1"
		r.Header.Set("Authorization", "Bearer "+account)
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		return w.Code
	}
	entered, release := make(chan struct{}, 1), make(chan struct{})
	i := slices.IndexFunc(a.pages, func(p page) bool { return p.name == "list" })
	a.pages[i].answer = func(url.Values) (any, error) {
		entered <- struct{}{}
		<-release
		return nil, nil
	}
	var all sync.WaitGroup
	all.Go(func() {
		if code := ask("flood", "/debug/list"); code != http.StatusOK {
			t.Errorf("the first page: %d", code)
		}
	})
	<-entered
	for account, want := range map[string]int{"flood": http.StatusTooManyRequests, "web": http.StatusOK} {
		if code := ask(account, "/debug/syncz"); code != want {
			t.Errorf("another page for %s: %d", account, code)
		}
	}
	close(release)
	flood := identity.Holder{ID: identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "flood"}}
	for a.watchers.Try(flood) != nil {
	}
	all.Wait()
	a.Close() // none waits longer than it has to
	for account, want := range map[string]int{"flood": http.StatusTooManyRequests, "web": http.StatusOK} {
		if code := ask(account, "/debug/pushes?watch"); code != want {
			t.Errorf("%s waits for a push: %d", account, code)
		}
	}
}
