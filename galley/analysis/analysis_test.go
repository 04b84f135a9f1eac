package analysis

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

func decode(t *testing.T, text string) []*kinds.Object {
	t.Helper()
	r := validation.Decode(limits.Default(), "mesh.yaml", []byte(text))
	if list := r.Findings(); validation.HasErrors(list) {
		t.Fatal(list)
	}
	var out []*kinds.Object
	for _, d := range r.Documents {
		out = append(out, d.Object)
	}
	return out
}

func run(objects []*kinds.Object) []diag.Diagnostic {
	m := mesh.Default()
	m.RootNamespace = "istio-system"
	return Run(objects, Options{Domain: "cluster.local", Mesh: m})
}

// Each case makes one mistake in a mesh that has none, by writing one text for another, and names the findings that
// follow.
func TestRun(t *testing.T) {
	data, err := os.ReadFile("testdata/right.yaml")
	must.Succeed(t, err)
	right := string(data)
	for _, c := range []struct {
		name, old, with string
		want            []string
	}{
		{name: "nothing is wrong"},
		{"subset", "subset: v1, port", "subset: v11, port", []string{
			`error: VirtualService shop/reviews: spec.http[2].route[0].destination.subset: ` +
				`no DestinationRule defines subset "v11" of reviews.shop.svc.cluster.local: requests get 503; did you mean "v1"? [IST0101]`,
		}},
		{"subset unlike any", "subset: v1, port", "subset: canary, port",
			[]string{`use one of v1, v2, or define it in DestinationRule shop/reviews`}},
		{"no rule", "host: reviews\n  subsets", "host: by-hand\n  subsets", []string{
			`spec.http[2].route[0].destination.subset: no DestinationRule defines subset "v1" of reviews.shop.svc.cluster.local`,
			`spec.http[2].route[1].destination.subset: no DestinationRule defines subset "v2"`,
		}},
		{"rule that callers do not see", "DestinationRule\nmetadata: {name: reviews, namespace: shop}",
			"DestinationRule\nmetadata: {name: reviews, namespace: elsewhere}", []string{
				`DestinationRule elsewhere/reviews: spec.host: no Service or ServiceEntry has the host reviews.elsewhere.svc.cluster.local: ` +
					`the rule has no effect; did you mean "reviews.shop.svc.cluster.local"?`,
				`route[0].destination.subset`, `route[1].destination.subset`,
			}},
		{"rule of another namespace", "DestinationRule\nmetadata: {name: reviews, namespace: shop}\nspec:\n  host: reviews",
			"DestinationRule\nmetadata: {name: reviews, namespace: elsewhere}\nspec:\n  host: reviews.shop.svc.cluster.local", []string{
				`route[0].destination.subset: DestinationRule elsewhere/reviews defines subset "v1", but is not in force for proxies of namespace shop`,
				`route[1].destination.subset`,
				`DestinationRule elsewhere/reviews: metadata.namespace: rules apply to callers of their own namespace, `,
			}},
		{"host", "{host: reviews, subset: v1, port", "{host: rewiews, port", []string{
			`error: VirtualService shop/reviews: spec.http[2].route[0].destination.host: ` +
				`no Service or ServiceEntry has the host rewiews.shop.svc.cluster.local: requests get 503; did you mean "reviews"? [IST0101]`,
		}},
		{"host cut short", "host: reviews.shop.svc.cluster.local, subset", "host: reviews.shop, subset",
			[]string{`has the host reviews.shop: requests get 503; did you mean "reviews.shop.svc.cluster.local"?`}},
		{"host of another namespace", "host: reviews.shop.svc.cluster.local, subset",
			"host: reviews.back.svc.cluster.local, subset", []string{`did you mean "reviews.shop.svc.cluster.local"?`}},
		{"host outside", "host: api.example.com", "host: apis.example.com", []string{`did you mean "api.example.com"?`}},
		{"host under a wildcard", "host: api.example.com", "host: a.wild.example.com",
			[]string{`only the wildcard *.wild.example.com of ServiceEntry shop/outside covers a.wild.example.com, ` +
				`and a route cannot lead to a wildcard: requests get 503; add a ServiceEntry with exactly that host`}},
		{"mirror", "mirror: {host: machines", "mirror: {host: machine", []string{`warning: VirtualService shop/reviews: ` +
			`spec.http[2].mirror.host: no Service or ServiceEntry has the host machine.example.com: the mirrored copies of requests are lost;`}},
		{"own host", "hosts: [reviews]", "hosts: [rewiews]", []string{`warning: VirtualService shop/reviews: spec.hosts[0]: no Service or ` +
			`ServiceEntry has the host rewiews.shop.svc.cluster.local: these routes apply to requests to that name only; did you mean "reviews"?`}},
		{"host that is not exported", "delegate: {name: more}", "route: [{destination: {host: private.back.svc.cluster.local}}]", []string{
			`warning: VirtualService shop/reviews: spec.http[1].route[0].destination.host: Service back/private does not export ` +
				`private.back.svc.cluster.local to proxies of namespace shop: requests get 503; export it to that namespace as well [IST0101]`,
		}},
		{"port", "port: {number: 9080}", "port: {number: 9090}",
			[]string{`error: VirtualService shop/reviews: spec.http[2].route[0].destination.port.number: ` +
				`reviews.shop.svc.cluster.local has no port 9090: requests get 503; use one of its ports: 9080, 9081 [IST0101]`}},
		{"delegate", "delegate: {name: more}", "delegate: {name: moer}",
			[]string{`there is no VirtualService shop/moer to delegate to: the route is left out; did you mean "more"? [IST0101]`}},
		{"delegate that is not exported", "{name: more, namespace: shop}\nspec:\n", "{name: more, namespace: shop}\nspec:\n  exportTo: [back]\n",
			[]string{`error: VirtualService shop/reviews: spec.http[1].delegate: VirtualService shop/more is not exported to namespace shop: ` +
				`the route is left out; export it to that namespace as well [IST0101]`}},
		{"delegate with hosts", "{name: more, namespace: shop}\nspec:\n", "{name: more, namespace: shop}\nspec:\n  hosts: [own.example.com]\n",
			[]string{`error: VirtualService shop/reviews: spec.http[1].delegate: VirtualService shop/more has hosts of its own, ` +
				`so no other may delegate to it: the route is left out; remove its hosts, or name another [IST0101]`}},
		{"gateway", "name: front-b, namespace: shop}\nspec:\n  hosts: [shop.example.com]\n  gateways: [istio-system/front]",
			"name: front-b, namespace: shop}\nspec:\n  hosts: [shop.example.com]\n  gateways: [front]", []string{
				`error: VirtualService shop/front-b: spec.gateways[0]: there is no Gateway shop/front: ` +
					`no gateway takes these routes; did you mean "istio-system/front"? [IST0101]`,
			}},
		{"two for one host", "exportTo: [\".\"]", "exportTo: [\"*\"]", []string{
			`warning: VirtualService shop/reviews: spec.hosts[0]: VirtualService back/for-back has the host reviews.shop.svc.cluster.local ` +
				`too and takes precedence for sidecars (both are of the same age, and it sorts first by name): ` +
				`these routes have no effect there; merge the two, or remove one [IST0109]`,
		}},
		{"one is older", "{name: for-back, namespace: back}\nspec:\n  hosts: [reviews.shop.svc.cluster.local]\n  exportTo: [\".\"]",
			"{name: a, namespace: back, creationTimestamp: 2020-01-01T00:00:00Z}\nspec:\n  hosts: [reviews.shop.svc.cluster.local]\n", []string{
				"VirtualService back/a: spec.hosts[0]: " +
					"VirtualService shop/reviews has the host reviews.shop.svc.cluster.local too and takes precedence for sidecars (it is older)",
			}},
		{"both take all of a gateway", "[{match: [{uri: {prefix: /a}}], route", "[{route", []string{
			`warning: VirtualService shop/front-b: spec.http[0]: ` +
				`VirtualService shop/front-a has the host shop.example.com on Gateway istio-system/front too and comes first (both are ` +
				`of the same age, and it sorts first by name): its spec.http[0] takes all that this route matches, so this route is never reached`,
		}},
		{"selector of a Service", "selector: {app: reviews}", "selector: {app: rewiews}", []string{
			`warning: Service shop/reviews: spec.selector: no Pod or WorkloadEntry of namespace shop has the labels app=rewiews: ` +
				`it has no endpoints, and requests to it get 503; did you mean app: reviews? [IST0127]`,
		}},
		{"selector of a Gateway", "selector: {istio: ingressgateway}", "selector: {istoi: ingressgateway}",
			[]string{`Gateway istio-system/front: spec.selector: no Pod or WorkloadEntry of any namespace has the labels istoi=ingressgateway: ` +
				`nothing listens on its ports; did you mean the label "istio"? [IST0127]`}},
		{"selector of a Sidecar", "labels: {version: v2}}\n  egress", "labels: {version: v3}}\n  egress",
			[]string{`Sidecar shop/some: spec.workloadSelector.labels: no Pod or WorkloadEntry of namespace shop has the labels version=v3: ` +
				`the object has no effect; did you mean version: v1? [IST0127]`}},
		{"selector of a policy", "matchLabels: {app: reviews}", "matchLabels: {app: review}", []string{
			`AuthorizationPolicy istio-system/some: spec.selector.matchLabels: no Pod or WorkloadEntry of any namespace has the labels app=review`,
		}},
		{"selector of a ServiceEntry", "workloadSelector: {labels: {app: machine}}",
			"workloadSelector: {labels: {app: machines}}", []string{`ServiceEntry shop/machines: spec.workloadSelector.labels`}},
		{"selector of a DestinationRule", "host: reviews\n  subsets", "host: reviews\n  workloadSelector: {matchLabels: {app: x}}\n  subsets",
			[]string{`DestinationRule shop/reviews: spec.workloadSelector.matchLabels`}},
		{"labels of a subset", "labels: {version: v2}}\n---", "labels: {version: two}}\n---",
			[]string{`DestinationRule shop/reviews: spec.subsets[1].labels: no workload of reviews.shop.svc.cluster.local has these labels: ` +
				`the subset "v2" has no endpoints, and requests to it get 503; version is one of v1, v2 there [IST0173]`}},
		{"labels of a subset with a slip", "labels: {version: v2}}\n---", "labels: {version: v3}}\n---",
			[]string{`the subset "v2" has no endpoints, and requests to it get 503; did you mean version: v2? [IST0173]`}},
		{"labels of a subset without workloads", "labels: {app: reviews, version: v2}", "labels: {app: reviews}",
			[]string{`the subset "v2" has no endpoints, and requests to it get 503; version is one of v1 there [IST0173]`, "IST0127"}},
		{"subset defined again", "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: shop}",
			"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: shop}\n" +
				"spec: {host: reviews.shop.svc.cluster.local, subsets: [{name: v1, labels: {version: v2}}]}\n---\n" +
				"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: shop}", []string{
				`warning: DestinationRule shop/reviews: spec.subsets[0].name: ` +
					`DestinationRule shop/a defines the subset "v1" of reviews.shop.svc.cluster.local too, and its definition is ` +
					`used (both are of the same age, and it sorts first by name): this one has no effect; rename one, or remove it [RepeatedSubset]`,
			}},
		{"number of a port in quotes", "targetPort: management", "targetPort: \"8080\"", []string{`no container of the pods that the Service ` +
			`selects has a port named "8080": the port has no endpoints, and requests to it get 503; remove the quotes: 8080 [TargetPortNotFound]`}},
		{"host of a pattern", `host: "*.local"`, `host: "*.locale"`,
			[]string{`DestinationRule istio-system/everything: spec.host: no Service or ServiceEntry has a host under *.locale`}},
		{"host of a pattern within a label", `host: "*.local"`, `host: "*iews.shop.svc.cluster.local"`, nil},
		{"port of a container by name", "targetPort: management", "targetPort: managment", []string{
			`error: Service shop/reviews: spec.ports[1].targetPort: no container of the pods that the Service selects has a port ` +
				`named "managment": the port has no endpoints, and requests to it get 503; did you mean "management"? [TargetPortNotFound]`,
		}},
		{"port of a container by number", "targetPort: 8080", "targetPort: 8888", []string{`warning: Service shop/reviews: ` +
			`spec.ports[0].targetPort: no container of the pods that the Service selects declares port 8888; the containers declare 8080, 8081`}},
		{"port of a container by default", ", targetPort: 8080", "",
			[]string{`Service shop/reviews: spec.ports[0].port: no container of the pods that the Service selects declares port 9080`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.old != "" && strings.Count(right, c.old) != 1 {
				t.Fatalf("%q is in the text %d times", c.old, strings.Count(right, c.old))
			}
			text := right
			if c.old != "" {
				text = strings.Replace(right, c.old, c.with, 1)
			}
			list := run(decode(t, text))
			if len(list) != len(c.want) {
				t.Errorf("%d findings, want %d", len(list), len(c.want))
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return strings.Contains(d.String(), want) }) {
					t.Errorf("missing: %s", want)
				}
			}
			if t.Failed() {
				for _, d := range list {
					t.Log(d)
				}
			}
		})
	}
}

// TestTargets: a policy whose target does not exist is a finding.
func TestTargets(t *testing.T) {
	for _, c := range []struct{ target, want string }{
		{`targetRef: {kind: Service, name: web}`, ""},
		{`targetRefs: [{group: networking.istio.io, kind: ServiceEntry, name: outside}, {kind: Service, name: web}]`, ""},
		{`targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: any}]`, ""},
		{`targetRefs: [{kind: Service, name: web}, {kind: Service, name: webb}]`,
			`spec.targetRefs[1].name: there is no Service webb in namespace a: the policy does not apply to it; did you mean "web"?`},
		{`targetRefs: [{kind: Service, name: elsewhere}]`, `spec.targetRefs[0].name: there is no Service elsewhere in namespace a`},
		{`targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: web}`,
			`spec.targetRef.name: there is no Gateway web in namespace a`},
	} {
		list := run(decode(t, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere, namespace: b}
spec: {ports: [{port: 80, name: http}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: a}
spec: {hosts: [x.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: a}
spec: {`+c.target+"}\n"))
		if c.want == "" && len(list) > 0 || c.want != "" && (len(list) != 1 || !strings.Contains(list[0].String(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.target, list, c.want)
		}
	}
}

// TestTargetsWithoutProxies: a policy whose Gateway has proxies without the label that names it is a finding.
func TestTargetsWithoutProxies(t *testing.T) {
	for labels, found := range map[string]bool{
		"app: in": true, "app: in, gateway.networking.k8s.io/gateway-name: other": true,
		"app: in, gateway.networking.k8s.io/gateway-name: gw": false, "app: out": false,
	} {
		list := run(decode(t, `
apiVersion: v1
kind: Service
metadata: {name: in, namespace: a}
spec: {selector: {app: in}, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: in, namespace: a, labels: {`+labels+`}}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: a}
spec:
  gatewayClassName: istio
  addresses: [{type: Hostname, value: in.a.svc.cluster.local}]
  listeners: [{name: h, port: 80, protocol: HTTP}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: a}
spec: {action: DENY, rules: [{}], targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]}
`))
		got := slices.ContainsFunc(list, func(d diag.Diagnostic) bool {
			return d.Code == codeNoProxies && strings.Contains(d.String(), "spec.targetRefs[0].name: the Pods of Service a/in, which serve")
		})
		if got != found {
			t.Errorf("%s: %v, want %v", labels, list, found)
		}
	}
}

// Objects that are a part of a mesh get warnings, and without workloads no selector is checked.
func TestPartOfAMesh(t *testing.T) {
	list := run(decode(t, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: a}
spec: {hosts: [a], http: [{route: [{destination: {host: a, subset: x}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: a, namespace: a}
spec: {selector: {matchLabels: {app: a}}}
`))
	if len(list) != 1 || list[0].Severity != diag.Warning || list[0].Field != "spec.http[0].route[0].destination.host" {
		t.Errorf("got %v", list)
	}
}

// Where the objects are the whole mesh, a Service without endpoints is a finding, with the reason. Where they are not,
// a cluster may bring what is missing.
func TestServicesWithoutEndpoints(t *testing.T) {
	const service = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {selector: {app: web}, ports: [{port: 80}]}
`
	pod := func(status string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: a, labels: {app: web}}\nstatus: " + status + "\n"
	}
	slice := func(name string) string {
		return "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s, namespace: a, " +
			"labels: {kubernetes.io/service-name: " + name + "}}\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\n"
	}
	selectorless := strings.Replace(service, "selector: {app: web}, ", "", 1)
	for name, c := range map[string]struct{ text, want string }{
		"no pod": {service,
			"spec.selector: no Pod or WorkloadEntry of namespace a has the labels app=web: it has no endpoints, and requests to it get 503"},
		"no address": {service + pod("{}"), "spec.selector: no Pod that the Service selects has an IP address (web-1): " +
			"it has no endpoints, and requests to it get 503; write status.podIP into them [NoEndpoints]"},
		"not ready": {service + pod("{podIP: 10.0.0.1, conditions: [{type: Ready, status: \"False\"}]}"),
			"spec.selector: no Pod that the Service selects is ready (web-1): it has no endpoints"},
		"no selector":                 {selectorless, "the Service has no selector, and there is no EndpointSlice of it: it has no endpoints"},
		"another's slice":             {selectorless + slice("other"), "there is no EndpointSlice of it"},
		"ready":                       {service + pod("{podIP: 10.0.0.1, conditions: [{type: Ready, status: \"True\"}]}"), ""},
		"says nothing of being ready": {service + pod("{podIPs: [{ip: 10.0.0.1}]}"), ""},
		"not ready, and that is wanted": {strings.Replace(service, "spec: {", "spec: {publishNotReadyAddresses: true, ", 1) +
			pod("{podIP: 10.0.0.1, conditions: [{type: Ready, status: \"False\"}]}"), ""},
		"slice":                     {selectorless + slice("web"), ""},
		"slice beside the selector": {service + pod("{}") + slice("web"), ""},
		"elsewhere": {
			strings.Replace(selectorless, "spec: {", "spec: {type: ExternalName, externalName: x.example.com, ", 1), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := decode(t, c.text)
			list := Run(objects, Options{Domain: "cluster.local", Whole: true})
			if c.want == "" && len(list) > 0 || c.want != "" && (len(list) != 1 || !strings.Contains(list[0].String(), c.want)) {
				t.Errorf("got %v, want %q", list, c.want)
			}
			if list := run(objects); len(list) > 0 {
				t.Errorf("of a part of a mesh: %v", list)
			}
			pods := strings.Contains(c.want, "no Pod that the Service selects")
			if list := Run(objects, Options{Domain: "cluster.local", Still: true}); (len(list) > 0) != pods {
				t.Errorf("of a part that stays as it is: %v", list)
			}
		})
	}
}

// What remote clusters hold counts, and is checked by their own servers.
func TestRemoteClusters(t *testing.T) {
	objects := decode(t, `
apiVersion: v1
kind: Service
metadata: {name: a, namespace: a}
spec: {selector: {app: none}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, labels: {app: a}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: a}
spec: {hosts: [a], http: [{route: [{destination: {host: a}}]}]}
`)
	if list := run(objects); len(list) != 1 {
		t.Errorf("in the own cluster: %v", list)
	}
	objects[0].Cluster = "far"
	if list := run(objects); len(list) != 0 {
		t.Errorf("in a remote cluster: %v", list)
	}
}

// objectReader is a World that reads each object as the same Pod or Slice. It knows no endpoints.
type objectReader struct {
	pod   Pod
	slice Slice
}

func (r objectReader) Pod(*kinds.Object) Pod           { return r.pod }
func (r objectReader) Slice(*kinds.Object) Slice       { return r.slice }
func (objectReader) Endpoints(string) iter.Seq[Labels] { return func(func(Labels) bool) {} }

// TestLastGoodVersions has objects whose last good versions are in force beside them. What is found about an object is
// not found about its last good version too, and the two are no rivals.
func TestLastGoodVersions(t *testing.T) {
	objects := decode(t, `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: p, namespace: a}
spec: {selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, labels: {app: a}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: a}
spec: {selector: {matchLabels: {app: none}}, action: CUSTOM, provider: {name: none}, rules: [{}]}
`)
	found := run(objects)
	if len(found) == 0 {
		t.Fatal("nothing is found about the policy")
	}
	for _, i := range []int{0, 2} {
		beside := *objects[i]
		beside.Name += kinds.LastGood
		objects = append(objects, &beside)
	}
	if got := run(objects); !slices.Equal(got, found) {
		t.Errorf("with last good versions: %v\nwithout: %v", got, found)
	}
}

// Pods and EndpointSlices need not be whole: sources of many hand on what is read of them.
func TestPodsAndSlicesOfSources(t *testing.T) {
	objects := decode(t, `
apiVersion: v1
kind: Service
metadata: {name: a, namespace: a}
spec: {selector: {app: a}, ports: [{name: x, port: 80, targetPort: web}, {name: z, port: 81, targetPort: 82}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, labels: {app: a}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: a}
addressType: IPv4
`)
	objects[1].Spec, objects[2].Spec = "pod", "slice"
	pod, slice := Pod{Named: true, Ports: map[string]uint32{"web": 8080}}, Slice{}
	count := func() int {
		return len(Run(objects, Options{
			Domain: "cluster.local", World: objectReader{pod, slice},
		}))
	}
	if n := count(); n != 0 {
		t.Errorf("%d findings about what is right", n)
	}
	if pod.Ports = nil; count() != 1 {
		t.Error("no finding about a port that has no name")
	}
	if slice = (Slice{Service: "a", Ports: map[string]uint32{"x": 1}, Endpoints: 1}); count() != 0 {
		t.Error("a finding about a port that a slice has")
	}
	if slice, pod.Ended = (Slice{}), true; count() != 0 {
		t.Error("a pod that has ended counts")
	}
}

func many(t testing.TB, n int) []*kinds.Object {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v%d, namespace: a}\n"+
			"spec: {hosts: [h%d.example.com], http: [{route: [{destination: {host: x%d}}]}]}\n", i, i, i)
	}
	l := limits.Default()
	l.FileDocs, l.FileSize = n+1, 1<<30
	var out []*kinds.Object
	for _, d := range validation.Decode(l, "", []byte(b.String())).Documents {
		out = append(out, d.Object)
	}
	return out
}

// One mistake that is made everywhere costs a bounded number of findings, and the rest is counted.
func TestFindingsAreBounded(t *testing.T) {
	const more = 7
	list := run(many(t, maxFindings+more))
	if len(list) != maxFindings+1 || !strings.HasPrefix(list[maxFindings].Message, fmt.Sprint(more)) ||
		!LeftOut(list) || LeftOut(list[:maxFindings]) {
		t.Errorf("%d findings, the last: %v", len(list), list[len(list)-1])
	}
}

// Each analyzer has a bound of its own: advice that comes first leaves no error out. What is left out is as severe as
// the worst of it. Findings that nobody wants do not count.
func TestEachAnalyzerIsBounded(t *testing.T) {
	var b strings.Builder
	for i := range maxFindings + 3 {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Service, metadata: {name: s%d, namespace: a}, spec: {ports: [{port: 80, name: web}]}}\n", i)
	}
	b.WriteString("---\n{apiVersion: v1, kind: Service, metadata: {name: many, namespace: b}, " +
		"spec: {ports: [{port: 80, name: http-a}, {port: 81, name: http-b}]}}\n")
	b.WriteString("---\n{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: b}, " +
		"spec: {hosts: [x.example], gateways: [g], http: [{route: [{destination: {host: many}}]}]}}\n")
	l := limits.Default()
	l.FileDocs = 2 * maxFindings
	var objects []*kinds.Object
	for _, d := range validation.Decode(l, "", []byte(b.String())).Documents {
		objects = append(objects, d.Object)
	}
	count := func(o Options) map[string]int {
		codes := map[string]int{}
		o.Domain, o.Advice = "cluster.local", true
		for _, d := range Run(objects, o) {
			codes[d.Code+" "+d.Severity.String()]++
		}
		return codes
	}
	if got := count(Options{}); got[codePortName+" info"] != maxFindings ||
		got[codePortRequired+" error"] != 1 || got[codeLimit+" info"] != 1 {
		t.Errorf("of all: %v", got)
	}
	if got := count(Options{Concerns: func(o *kinds.Object) bool { return o.Namespace == "b" }}); got[codePortName+" info"] != 0 ||
		got[codePortRequired+" error"] != 1 || got[codeLimit+" info"] != 0 {
		t.Errorf("of one namespace: %v", got)
	}
	list := run(append(many(t, maxFindings+1), objects[0])) // with a Service the routes are errors
	if last := list[len(list)-1]; last.Code != codeLimit || last.Severity != diag.Error {
		t.Errorf("errors are left out, and the last finding is %s", last)
	}
}

// The order of the objects changes nothing.
func TestOrder(t *testing.T) {
	data, err := os.ReadFile("testdata/right.yaml")
	must.Succeed(t, err)
	objects := append(decode(t, string(data)), mistaken(t, 120)...)
	for i, o := range objects {
		annotated := *o
		annotated.Annotations = map[string]string{fmt.Sprintf("sidecar.istio.io/unknown%d", i): "x"}
		objects[i] = &annotated
	}
	var want []diag.Diagnostic
	for i := range 3 {
		rand.New(rand.NewPCG(1, uint64(i))).Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		got := Run(objects, Options{Domain: "cluster.local", Whole: true, Advice: true})
		if i == 0 {
			want = got
			continue
		}
		if len(got) != len(want) {
			t.Fatalf("%d findings, then %d", len(want), len(got))
		}
		for j := range got {
			if got[j] != want[j] {
				t.Fatalf("finding %d is\n%s\nthen\n%s", j, want[j], got[j])
			}
		}
	}
}

// An annotation names codes as they are here, or Istio's, or all.
func TestSuppressed(t *testing.T) {
	for annotation, want := range map[string]string{
		"": "WrongType BadCredential " + codeReference, "IST0106": "BadCredential " + codeReference,
		"WrongType, IST0161": codeReference, "*": "", "Wrong": "WrongType BadCredential " + codeReference,
	} {
		o := &kinds.Object{Key: kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "s"},
			Annotations: map[string]string{kinds.AnnotationSuppress: annotation}}
		var found []diag.Diagnostic
		for _, code := range []string{"WrongType", "BadCredential", codeReference} {
			found = append(found, diag.Diagnostic{Code: code, Object: o.String()})
		}
		found = append(found, diag.Diagnostic{Code: "other", Object: "Service a/other"})
		var got []string
		for _, d := range Unsuppressed(found, []*kinds.Object{o}) {
			got = append(got, d.Code)
		}
		if text := strings.TrimSpace(want + " other"); strings.Join(got, " ") != text {
			t.Errorf("%q: %v, want %s", annotation, got, text)
		}
	}
}

// A delegation that is left out because it asks for too much is a finding, at the first one.
func TestDelegationsThatDoNotFit(t *testing.T) {
	objects := decode(t, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: root, namespace: a}
spec: {hosts: [x.example], http: [{match: [{uri: {prefix: /a}}], delegate: {name: part}}, {delegate: {name: part}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: part, namespace: a}
spec: {http: [{redirect: {uri: /}}]}
`)
	for most, want := range map[int]string{0: "", 1000: "", 300: "spec.http[1].delegate", 100: "spec.http[0].delegate"} {
		got := ""
		for _, d := range Run(objects, Options{Domain: "cluster.local", RepeatedText: most}) {
			got += d.Field
		}
		if got != want {
			t.Errorf("of %d bytes: %q, want %q", most, got, want)
		}
	}
}

// Subsets that are left out because of the ports of their host are a finding of the rule in which the first of them is.
func TestSubsetsThatDoNotFit(t *testing.T) {
	objects := decode(t, `
apiVersion: v1
kind: Service
metadata: {name: wide, namespace: a}
spec: {ports: [{name: a, port: 1}, {name: b, port: 2}, {name: c, port: 3}, {name: d, port: 4}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: exact, namespace: a}
spec: {host: wide, subsets: [{name: v1}, {name: v2}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: later, namespace: a}
spec: {host: wide, subsets: [{name: v3}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: shadowed, namespace: a}
spec: {host: "*.a.svc.cluster.local", subsets: [{name: v1}, {name: v2}, {name: v3}, {name: v4}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: wild, namespace: b}
spec: {host: "*.a.svc.cluster.local", subsets: [{name: v1}, {name: v2}, {name: v3}, {name: v4}]}
`)
	for most, want := range map[int]string{
		0: "", 20: "", 16: "DestinationRule b/wild: the first 3",
		12: "DestinationRule a/later: the first 0, DestinationRule b/wild: the first 2",
		8:  "DestinationRule a/exact: the first 1, DestinationRule a/later: the first 0, DestinationRule b/wild: the first 1",
	} {
		var got []string
		for _, d := range Run(objects, Options{Domain: "cluster.local", HostClusters: most}) {
			if d.Code == codeLimit {
				_, stay, _ := strings.Cut(d.Message, "(HostClusters): ")
				stay, _, _ = strings.Cut(stay, " of this")
				got = append(got, d.Object+": "+stay)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("of %d clusters: %q, want %q", most, text, want)
		}
	}
}
