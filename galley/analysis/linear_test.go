package analysis

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// manyMistakes is a part of a mesh that has it many times; %d is the number of the part. Each reference is one that is
// searched for in some list.
const manyMistakes = `---
{apiVersion: v1, kind: Service, metadata: {name: s%[1]d, namespace: a},
  spec: {selector: {app: web}, ports: [{name: a, port: 80, targetPort: none}, {name: b, port: 81, targetPort: 9}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p%[1]d, namespace: a, labels: {app: web, i: n%[1]d}},
  spec: {containers: [{name: c, image: c, ports: [{name: p%[1]d, containerPort: %[2]d}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p%[1]d, namespace: front, labels: {istio: gateway}}}
---
{apiVersion: v1, kind: Service, metadata: {name: f%[1]d, namespace: front}, spec: {selector: {istio: gateway},
  ports: [{name: tcp, port: 80}, {name: https, port: 443}, {name: quic, protocol: UDP, port: 443}, {name: tcp-b, port: %[2]d}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g%[1]d, namespace: a},
  spec: {selector: {istio: gateway},
    servers: [{hosts: ["g%[1]d.example", "n%[1]d/one.example"], port: {number: 80, name: a, protocol: HTTP}},
      {hosts: ["g%[1]d.example"], port: {number: 443, name: b, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: c}}]}}
---
{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: w%[1]d, namespace: front},
  spec: {selector: {matchLabels: {i: n%[1]d}}, type: NETWORK, url: "oci://w.example/w:1"}}
---
{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: r%[1]d, namespace: a},
  spec: {selector: {matchLabels: {app: web}}, jwtRules: [{issuer: x, jwks: '{"keys":[]}'}]}}
---
{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: r%[1]d, namespace: front},
  spec: {selector: {matchLabels: {i: n%[1]d}}, jwtRules: [{issuer: x, jwks: '{"keys":[]}'}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: e%[1]d, namespace: a},
  spec: {hosts: ["*.w%[1]d.example", one.example], ports: [{number: %[2]d, name: a, protocol: HTTP}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n%[1]d}, status: {addresses: [{type: InternalIP, address: "fd00::%[1]d"}]}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: w%[1]d, namespace: hosts}, spec: {address: "fd00::%[1]d"}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: l%[1]d, namespace: a},
  addressType: IPv6, endpoints: [{addresses: ["fd00::%[1]d"], targetRef: {kind: Pod, name: p%[1]d}}]}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: d%[1]d, namespace: a},
  spec: {host: s0, subsets: [{name: x%[1]d, labels: {app: web, n: m}}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: m%[1]d, namespace: a}, spec: {host: away%[1]d.example}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: w%[1]d, namespace: a}, spec: {host: "*t%[1]d.example"}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p%[1]d, namespace: istio-system},
  spec: {selector: {matchLabels: {app: web, istio: gateway}}}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: t%[1]d, namespace: front},
  spec: {selector: {matchLabels: {i: n%[1]d}}, rules: [{from: [{source: {requestPrincipals: ["y%[1]d/*"]}}]}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: d%[1]d, namespace: front},
  spec: {selector: {matchLabels: {i: n%[1]d}}, action: DENY, rules: [{from: [{source: {namespaces: [b%[1]d]}}]}]}}
---
{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: p%[1]d, namespace: front},
  spec: {selector: {matchLabels: {i: m%[1]d}}, mtls: {mode: STRICT}}}
---
{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: f%[1]d, namespace: f%[1]d},
  spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: c%[1]d, namespace: c%[1]d},
  spec: {ingress: [{port: {number: 80, name: http, protocol: HTTP}, defaultEndpoint: "127.0.0.1:80"}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: o%[1]d, namespace: o%[1]d},
  spec: {hosts: [one.example], exportTo: ["."], ports: [{number: 443, name: a, protocol: HTTP}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: o%[1]d, namespace: o%[1]d},
  spec: {host: "*.local", trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: h%[1]d, namespace: front},
  spec: {parentRefs: [{name: g}], hostnames: [h%[1]d.example], rules: [{backendRefs: [{name: f%[1]d, port: 443}]}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: t%[1]d, namespace: a},
  spec: {host: f%[1]d.front.svc.cluster.local, trafficPolicy: {tls: {mode: DISABLE}}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v%[1]d, namespace: a}
spec:
  hosts: [h%[1]d.example]
  gateways: [mesh, missing%[1]d, g0]
  http:
  - {match: [{uri: {prefix: /a}, headers: {"@request.auth.claims.group": {exact: a}}}], delegate: {name: none%[1]d}}
  - match: [{uri: {prefix: /b}}]
    route: [{destination: {host: gone%[1]d.example}}]
    mirror: {host: s0, subset: none}
  - route: [{destination: {host: one.example, port: {number: 9}}}]
    mirror: {host: s0, subset: x%[1]d}
`

// linearSize is the environment variable that holds how many parts the mesh of TestLinear has.
const linearSize = "LINEAR_SIZE"

// TestLinear: a run costs in proportion to the objects. The cost is the number of statements that run, as the coverage
// counters of a program built for that count.
func TestLinear(t *testing.T) {
	if size := os.Getenv(linearSize); size != "" {
		n, err := strconv.Atoi(size)
		must.Succeed(t, err)
		Run(mistaken(t, n), Options{Domain: "cluster.local", Advice: true, HTTP3: true})
		return
	}
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	histories.NoRace(t)
	program := filepath.Join(t.TempDir(), "linear.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-covermode=count",
		"-coverpkg=.,../../api/diag,../../api/names,../../api/kinds", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const size, most = 600, 2.3
	one, two := statements(t, program, size), statements(t, program, 2*size)
	sum := func(blocks map[string]int) (all int) {
		for _, n := range blocks {
			all += n
		}
		return all
	}
	if float64(sum(two)) > most*float64(sum(one)) {
		t.Errorf("of %d parts %d statements run, of %d parts %d", size, sum(one), 2*size, sum(two))
	}
	for block, n := range two {
		if n > 3*one[block]+20*size { // what is beyond a bound grows faster at first
			t.Errorf("%s: %d statements of %d parts, %d of %d", block, one[block], size, n, 2*size)
		}
	}
}

func mistaken(t *testing.T, n int) []*kinds.Object {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, manyMistakes, i, 1000+i)
	}
	b.WriteString("---\n{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: rewrites, namespace: a}, " +
		"spec: {hosts: [rewrites.example], http: [{rewrite: {uri: /}, route: [{destination: {host: s0}}], match: [")
	for i := range n {
		fmt.Fprintf(&b, "{uri: {prefix: /p%d}},\n", i)
	}
	b.WriteString("]}]}}\n")
	l := limits.Default()
	l.FileDocs, l.FileSize = 40*n, 1<<30
	var out []*kinds.Object
	for _, d := range validation.Decode(l, "", []byte(b.String())).Documents {
		if d.Object == nil {
			t.Fatal(d.Findings)
		}
		out = append(out, d.Object)
	}
	return out
}

// statements returns how many statements of each block run for a mesh of n parts.
func statements(t *testing.T, program string, n int) map[string]int {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	run := exec.CommandContext(t.Context(), program, "-test.run=^TestLinear$", "-test.coverprofile="+profile)
	run.Env = append(os.Environ(), fmt.Sprintf("%s=%d", linearSize, n))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(profile)
	must.Succeed(t, err)
	blocks := map[string]int{}
	for line := range strings.Lines(string(text)) {
		block, statements, count := "", 0, 0
		if n, _ := fmt.Sscan(line, &block, &statements, &count); n == 3 && count > 0 {
			blocks[block] = statements * count
		}
	}
	if len(blocks) < 100 {
		t.Fatalf("the profile has %d blocks that ran", len(blocks))
	}
	return blocks
}
