package bootstrap

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// The worlds of histories: the objects of package translate's pool, each in a few versions, and others that are made up
// each time, all in each other's way: hosts that stand for others, patterns over them, addresses and ports that several
// want, exports, scopes, delegates.

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func chance(r *rand.Rand, in int) bool { return r.IntN(in) == 0 }

// past makes the changes of one history.
type past struct {
	r       *rand.Rand
	keys    []kinds.Key
	moving  []kinds.Key // of endpoints
	pool    map[kinds.Key][]*kinds.Object
	present map[kinds.Key]*kinds.Object
	told    []string // what changed, for whoever reads of a failure
	// meshes are the versions of the mesh's ConfigMap, the newest last, of which one is in force while the present one
	// cannot be used. A version is nil where there was no ConfigMap.
	meshes []*kinds.Object
}

// usable reports whether the mesh configuration of a ConfigMap can be used.
func usable(o *kinds.Object) bool {
	return o == nil || !strings.Contains(o.Spec.(*corev1.ConfigMap).Data["mesh"], unusableMode)
}

// unusableMode is a mode of outboundTrafficPolicy that does not exist.
const unusableMode = "NOPE"

func readObjects(t *testing.T, name, text string) []*kinds.Object {
	t.Helper()
	read := validation.Decode(limits.Default(), name, []byte(text))
	if read.Broken != nil {
		t.Fatalf("%v in\n%s", read.Broken, text)
	}
	var list []*kinds.Object
	for _, d := range read.Documents {
		if d.Object == nil {
			t.Fatalf("%v in\n%s", d.Findings, text)
		}
		list = append(list, d.Object)
	}
	return list
}

// made are the objects that are made up each time, by kind.
func made() map[*kinds.Kind][]string {
	return map[*kinds.Kind][]string{
		kinds.Service:       {"a/g1", "a/g2", "b/g1", "b/g3"},
		kinds.EndpointSlice: {"a/g1", "a/g2", "b/g1", "b/g3"}, kinds.ServiceEntry: {"a/e1", "b/e1", "b/e2"},
		kinds.VirtualService:  {"a/v1", "a/v2", "b/v1", "b/v3", "a/part"},
		kinds.DestinationRule: {"a/r1", "a/r2", "b/r1", "istio-system/r1"}, kinds.Sidecar: {"a/s", "c/s"},
		kinds.Gateway: {"istio-system/gw2"}, kinds.ConfigMap: {"istio-system/istio"},
		kinds.PeerAuthentication: {"b/p"}, kinds.Namespace: {"/a", "/c"},
	}
}

func newPast(t *testing.T, seed uint64) *past {
	t.Helper()
	p := &past{r: rand.New(rand.NewPCG(seed, 0)), pool: map[kinds.Key][]*kinds.Object{},
		present: map[kinds.Key]*kinds.Object{}, meshes: []*kinds.Object{nil}}
	text, err := os.ReadFile("../translate/testdata/pool.yaml")
	must.Succeed(t, err)
	note := func(k kinds.Key) {
		p.keys = append(p.keys, k)
		switch k.Kind {
		case kinds.Pod, kinds.EndpointSlice, kinds.WorkloadEntry:
			p.moving = append(p.moving, k)
		}
	}
	all := readObjects(t, "pool.yaml", string(text))
	for _, o := range all[:len(all):len(all)] {
		switch o.Kind {
		case kinds.Service, kinds.EndpointSlice, kinds.Pod, kinds.Node, kinds.Namespace,
			kinds.WorkloadEntry, kinds.ServiceExport, kinds.ServiceImport: // another cluster holds the same names, in versions of its own
			remote := *o
			remote.Cluster = "remote"
			all = append(all, &remote)
		}
	}
	for _, o := range all {
		if p.pool[o.Key] == nil {
			note(o.Key)
		}
		p.pool[o.Key] = append(p.pool[o.Key], o)
	}
	for _, kind := range kinds.All() {
		for _, name := range made()[kind] {
			ns, name, _ := strings.Cut(name, "/")
			if k := (kinds.Key{Kind: kind, Namespace: ns, Name: name}); p.pool[k] == nil {
				note(k)
			}
		}
	}
	return p
}

// start returns a world in which most objects are there.
func (p *past) start(t *testing.T) []kinds.Change {
	t.Helper()
	var all []kinds.Change
	for _, k := range p.keys {
		if !chance(p.r, 4) {
			all = append(all, p.change(t, k, false))
		}
	}
	return all
}

// next returns changes of a few objects, each once.
func (p *past) next(t *testing.T) []kinds.Change {
	t.Helper()
	keys := p.keys
	if chance(p.r, 3) {
		keys = p.moving
	}
	var all []kinds.Change
	for _, i := range p.r.Perm(len(keys))[:1+p.r.IntN(3)] {
		all = append(all, p.change(t, keys[i], chance(p.r, 4)))
	}
	return all
}

func (p *past) change(t *testing.T, k kinds.Key, gone bool) kinds.Change {
	t.Helper()
	c := kinds.Change{Key: k}
	versions := p.pool[k]
	what := "gone"
	switch {
	case gone:
	case p.present[k] != nil && chance(p.r, 6):
		c.Object, what = p.retouched(p.present[k])
	case versions != nil && (k.Kind != kinds.Namespace || chance(p.r, 2)):
		i := p.r.IntN(len(versions))
		c.Object, what = versions[i], fmt.Sprintf("version %d of the pool", i)
	default:
		what = p.text(k)
		c.Object = readObjects(t, "made.yaml", what)[0]
	}
	if p.present[k] = c.Object; c.Object == nil {
		delete(p.present, k)
	}
	if k.Kind == kinds.ConfigMap && usable(c.Object) {
		p.meshes = append(p.meshes, c.Object)
	}
	p.told = append(p.told, fmt.Sprintf("%v: %s", k, what))
	return c
}

// retouched returns an object that says what it said, with other metadata.
func (p *past) retouched(of *kinds.Object) (*kinds.Object, string) {
	o := *of
	with := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		if m == nil {
			m = map[string]string{}
		}
		m["example.com/note"] = strconv.Itoa(p.r.IntN(9))
		return m
	}
	switch p.r.IntN(4) {
	case 0:
		o.Labels = with(o.Labels)
		return &o, "as it was, with another label"
	case 1:
		o.Annotations = with(o.Annotations)
		return &o, "as it was, with another annotation"
	case 2:
		o.Generation++
		return &o, "as it was, in another generation"
	}
	o.Position = "moved.yaml:7:1"
	return &o, "as it was, in another file"
}

// text makes an object up.
func (p *past) text(k kinds.Key) string {
	r := p.r
	kubernetes := func(version, body string, args ...any) string {
		return fmt.Sprintf("apiVersion: %s\nkind: %s\n", version, k.Kind.Name) + fmt.Sprintf(body, args...)
	}
	istio := func(spec string, args ...any) string {
		group := "networking.istio.io/v1"
		if k.Kind == kinds.PeerAuthentication {
			group = "security.istio.io/v1"
		}
		return kubernetes(group, "metadata: {name: %s, namespace: %s, creationTimestamp: \"2024-01-0%dT00:00:00Z\"}\nspec:\n", k.Name,
			k.Namespace, 1+r.IntN(3)) + fmt.Sprintf(spec, args...)
	}
	exports := func() string { return one(r, "[]", "[]", "[]", `["."]`, `["b"]`, `["*"]`) }
	hosts := []string{
		"web.a.svc.cluster.local", "api.b.svc.cluster.local", "g1.a.svc.cluster.local", "g1.b.svc.cluster.local",
		"g2.a.svc.cluster.local", "x.example.com", "y.example.com", "*.example.com", "ext.example.com", "alone.example.org",
		"other.b.svc.cluster.local",
	}
	switch k.Kind {
	case kinds.Service:
		var spec string
		switch r.IntN(8) {
		case 0:
			spec = "  type: ExternalName\n  externalName: " +
				one(r, "web.a.svc.cluster.local", "g1.b.svc.cluster.local", "x.example.com", "nowhere.example.com")
		case 1:
			spec = "  clusterIP: None"
		default:
			spec = "  clusterIP: 10.64.1." + one(r, "1", "2", "3")
		}
		if chance(r, 2) {
			spec += "\n  selector: {app: " + one(r, "web", "api", "pets") + "}"
		}
		ports := one(r, "{name: http, port: 80, targetPort: 8080}", "{name: http, port: 80}, {name: tcp, port: 9000}",
			"{name: tcp, port: 80}", "{name: grpc-x, port: 9000}", "{name: any, port: 9000}",
			"{name: tls, port: 443}, {name: mongo, port: 9000}", "{name: http, port: 80}, {name: http-b, port: 8000}")
		return kubernetes("v1", "metadata: {name: %s, namespace: %s, creationTimestamp: \"2024-01-0%dT00:00:00Z\", "+
			"annotations: {networking.istio.io/exportTo: %q}}\nspec:\n%s\n  ports: [%s]\n",
			k.Name, k.Namespace, 1+r.IntN(3), one(r, "", "", "", ".", "b", "~"), spec, ports)
	case kinds.EndpointSlice:
		endpoints := ""
		for range r.IntN(4) {
			endpoints += fmt.Sprintf("{addresses: [10.1.%d.%d], conditions: {ready: %t}},", r.IntN(2), 1+r.IntN(9), !chance(r, 4))
		}
		return kubernetes("discovery.k8s.io/v1", "metadata: {name: %s, namespace: %s, labels: {kubernetes.io/service-name: %s}}\n"+
			"addressType: IPv4\nports: [{name: http, port: %d}, {name: tcp, port: 9000}, {name: any, port: 9001}]\nendpoints: [%s]\n",
			k.Name, k.Namespace, k.Name, 8080+r.IntN(2), endpoints)
	case kinds.Namespace:
		return kubernetes("v1", "metadata: {name: %s, labels: {mesh: %q, topology.istio.io/network: %s}}\n", k.Name,
			one(r, "yes", "yes", "no"), one(r, "n1", "n2", `""`))
	case kinds.ConfigMap:
		return kubernetes("v1", "metadata: {name: %s, namespace: %s}\ndata:\n  mesh: |\n    %s\n  meshNetworks: |\n    %s\n", k.Name, k.Namespace,
			one(r, "{}", "{}", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "enableAutoMtls: false", `defaultServiceExportTo: ["."]`,
				`defaultVirtualServiceExportTo: ["b"]`, "{trustDomain: other.example, trustDomainAliases: [cluster.local]}",
				"accessLogFile: /dev/stdout", "h2UpgradePolicy: UPGRADE", `defaultDestinationRuleExportTo: ["."]`,
				"pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}", "trustDomainAliases: [old.example]", "connectTimeout: 3s",
				"protocolDetectionTimeout: 2s", "ingressControllerMode: STRICT", "ingressControllerMode: \"OFF\"",
				"outboundTrafficPolicy: {mode: "+unusableMode+"}", "localityLbSetting: {failoverPriority: [topology.kubernetes.io/zone]}",
				"defaultHttpRetryPolicy: {attempts: 5}", "defaultConfig: {gatewayTopology: {numTrustedProxies: 2}, "+
					"holdApplicationUntilProxyStarts: true}", "verifyCertificateAtClient: false", "enablePrometheusMerge: false",
				"{extensionProviders: [{name: authorizer, envoyExtAuthzGrpc: {service: api.b.svc.cluster.local, port: 80}}, "+
					"{name: spans, zipkin: {service: web.a.svc.cluster.local, port: 80}}], defaultProviders: {tracing: [spans]}}",
				`discoverySelectors: [{matchExpressions: [{key: mesh, operator: NotIn, values: ["no"]}]}]`,
				`serviceSettings: [{settings: {clusterLocal: true}, hosts: ["*.a.svc.cluster.local"]}]`),
			one(r, "{}", "{}", "networks: {n1: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{address: 192.0.2.9, port: 15443}]}}",
				"networks: {n2: {endpoints: [{fromCidr: 10.1.1.0/24}], gateways: [{address: 192.0.2.8, port: 15443}]}}"))
	case kinds.ServiceEntry:
		host := one(r, "x.example.com", "y.example.com", "*.example.com", "z.x.example.com")
		resolution, endpoints, addresses := "NONE", "", one(r, "[]", "[]", "[10.64.1.1]")
		if !strings.HasPrefix(host, "*") {
			resolution = one(r, "NONE", "STATIC", "DNS")
		}
		if resolution == "NONE" && chance(r, 3) {
			addresses = "[10.90.0.0/16]"
		}
		if resolution != "NONE" {
			endpoints = "  endpoints: [" + one(r, "", "{address: 10.7.0.1, labels: {version: v1}}",
				"{address: 10.7.0.1, labels: {version: v1}}, {address: 10.7.0.2, labels: {version: v2}}") + "]\n"
		}
		return istio("  hosts: [%q]\n  addresses: %s\n  location: %s\n  resolution: %s\n  exportTo: %s\n  ports: [%s]\n%s", host,
			addresses, one(r, "MESH_INTERNAL", "MESH_EXTERNAL"), resolution, exports(),
			one(r, "{number: 80, name: http, protocol: HTTP}", "{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}",
				"{number: 9000, name: http, protocol: HTTP}"), endpoints)
	case kinds.VirtualService:
		text := fmt.Sprintf("  exportTo: %s\n", exports())
		if k.Name != "part" {
			text += fmt.Sprintf("  hosts: [%q, %s]\n  gateways: %s\n",
				one(r, append(hosts, "*t.example.com", "*xt.example.com", "*1.a.svc.cluster.local")...),
				one(r, `"web"`, `"g1"`, `"*.example.org"`, `"v.example.org"`),
				one(r, "[]", "[]", "[mesh]", "[istio-system/gw]", "[istio-system/gw2, mesh]"))
		}
		text += "  http:\n"
		for range 1 + r.IntN(2) {
			match := one(r, "", "", "match: [{uri: {prefix: /x}}], ", "match: [{sourceLabels: {app: web}}], ", "match: [{sourceNamespace: b}], ")
			if k.Name != "part" && chance(r, 4) {
				text += fmt.Sprintf("  - {%sdelegate: {name: part, namespace: a}}\n", match)
				continue
			}
			text += fmt.Sprintf("  - {%stimeout: %ds, route: [{destination: {host: %s%s}}]}\n", match, 1+r.IntN(2),
				strings.TrimPrefix(one(r, hosts...), "*."), one(r, "", "", ", subset: v1", ", port: {number: 80}"))
		}
		return istio("%s", text)
	case kinds.DestinationRule:
		return istio("  host: %q\n  exportTo: %s\n  trafficPolicy: %s\n  subsets: %s\n%s",
			one(r, append(hosts, "*.svc.cluster.local", "g1")...), exports(),
			one(r, "{}", "{connectionPool: {tcp: {maxConnections: 5}}}", "{loadBalancer: {consistentHash: {httpHeaderName: x}}}",
				"{tls: {mode: ISTIO_MUTUAL}}", "{outlierDetection: {consecutive5xxErrors: 2}}"),
			one(r, "[]", "[{name: v1, labels: {version: v1}}]", "[{name: v1, labels: {version: v2}}]",
				"[{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]"),
			one(r, "", "", "", "  workloadSelector: {matchLabels: {app: web}}\n"))
	case kinds.Sidecar:
		return istio("%s", one(r,
			"  egress: [{hosts: [\"./*\"]}]\n", "  egress: [{hosts: [\"*/*.example.com\", \"a/*\"]}]\n",
			"  outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n", "  egress: [{hosts: [\"b/*\", \"istio-system/*\"]}]\n",
			"  egress: [{port: {number: 9000, protocol: HTTP, name: x}, bind: 127.0.0.9, hosts: [\"*/*\"]}, {hosts: [\"a/*\"]}]\n",
			"  workloadSelector: {labels: {app: web}}\n  egress: [{hosts: [\"b/*\"]}]\n",
			"  egress: [{port: {number: 3128, protocol: HTTP_PROXY, name: x}, bind: 127.0.0.9, hosts: [\"*/*\"]}, {hosts: [\"a/*\"]}]\n"))
	case kinds.PeerAuthentication:
		return istio("  mtls: {mode: %s}\n", one(r, "STRICT", "PERMISSIVE", "DISABLE"))
	case kinds.Gateway:
		return istio("  selector: {istio: gw}\n  servers: [%s]\n", one(r, `{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}`,
			`{port: {number: 8090, name: h, protocol: HTTP}, hosts: ["*.example.com", "b/*"]}`,
			`{port: {number: 15443, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*.local"]}`))
	}
	panic("no text for " + k.String())
}
