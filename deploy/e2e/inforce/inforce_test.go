package inforce

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// routeYAML returns a version of the route of all proxies. Its answers name it. A subset may be empty.
func routeYAML(version int, subset string) string {
	if subset != "" {
		subset = ", subset: " + subset
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: server, namespace: shop}
spec:
  hosts: [server.shop.svc.cluster.local, server.example.com]
  gateways: [mesh, edge/edge]
  http:
  - headers: {response: {set: {x-version: "%d"}}}
    route: [{destination: {host: server.shop.svc.cluster.local%s}}]
---
`, version, subset)
}

// subsetsYAML has clusters for the versions of the server.
const subsetsYAML = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: shop}
spec:
  host: server.shop.svc.cluster.local
  subsets: [{name: old, labels: {version: old}}, {name: new, labels: {version: new}}]
---
`

// listenersYAML has a listener of sidecars, which leads to an address, and a port of gateways.
func listenersYAML(address string, port int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: lines, namespace: shop}
spec:
  hosts: [lines.example.com]
  addresses: [240.240.9.1]
  ports: [{number: 9000, name: tcp, protocol: TCP}]
  resolution: STATIC
  endpoints: [{address: %s}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: more, namespace: edge}
spec: {selector: {role: gateway}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: more, namespace: edge}
spec:
  hosts: [server.example.com]
  gateways: [more]
  http: [{route: [{destination: {host: server.shop.svc.cluster.local, subset: old}}]}]
---
`, address, port)
}

// denyYAML denies calls of a path everywhere.
func denyYAML(path string) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: istio-system}
spec: {action: DENY, rules: [{to: [{operation: {paths: ["%s"]}}]}]}
---
`, path)
}

// telemetryYAML logs calls everywhere. A filter may be empty.
func telemetryYAML(filter string) string {
	if filter != "" {
		filter = fmt.Sprintf(", filter: {expression: %q}", filter)
	}
	return fmt.Sprintf(`apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: logs, namespace: istio-system}
spec: {accessLogging: [{providers: [{name: envoy}]%s}]}
---
`, filter)
}

// secureYAML has a port of gateways with a certificate.
const secureYAML = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: secure, namespace: edge}
spec:
  selector: {role: gateway}
  servers: [{port: {number: 8443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: server}}]
---
`

// secretYAML returns a Secret with a new certificate.
func secretYAML(t *testing.T, serial int64) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{"server.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	encoded := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: server, namespace: edge}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
---
`, encoded("CERTIFICATE", der), encoded("PRIVATE KEY", private))
}

// oddYAML is a filter that Envoy rejects with its own words.
const oddYAML = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: odd, namespace: shop}
spec:
  workloadSelector: {labels: {app: web-5}}
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_OUTBOUND
      listener:
        filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: odd
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code: {inline_string: "error('it is odd')"}
---
`

// TestInForce: what wait and the conditions say is what requests meet.
func TestInForce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	m := start(ctx, t)
	if len(m.proxies) != proxies {
		t.Fatalf("%d proxies, want %d", len(m.proxies), proxies)
	}
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"routes", func(t *testing.T) {
			for range 2 {
				m.change(t, m.next("")+subsetsYAML)
				m.meetAny(t)
			}
		}},
		{"clusters", func(t *testing.T) {
			m.change(t, m.next("new"))
			m.meet(t, m.now()+" new", route("/"))
			m.change(t, strings.ReplaceAll(subsetsYAML, "name: old", "name: gone")+m.next("gone"))
			m.meet(t, m.now()+" old", route("/"))
			m.change(t, subsetsYAML+m.next("new"))
			m.meet(t, m.now()+" new", route("/"))
		}},
		{"listeners", func(t *testing.T) {
			m.change(t, listenersYAML("10.10.3.1", 9090))
			m.meet(t, "old", line("240.240.9.1:9000"))
			m.meet(t, "200 old", m.port(9090))
			changed := listenersYAML("10.10.3.2", 9091)
			m.change(t, changed)
			m.meet(t, "new", line("240.240.9.1:9000"))
			m.meet(t, "200 old", m.port(9091))
			m.meet(t, "refused", m.port(9090))
			m.remove(t, changed)
			m.meet(t, "closed", line("240.240.9.1:9000"))
			m.meet(t, "refused", m.port(9091))
		}},
		{"policies", func(t *testing.T) {
			m.change(t, denyYAML("/one"))
			m.status(t, "403", "/one")
			m.change(t, denyYAML("/two"))
			m.status(t, "403", "/two")
			m.status(t, "200", "/one")
			m.remove(t, denyYAML("/two"))
			m.status(t, "200", "/two")
		}},
		{"telemetry", func(t *testing.T) {
			now := m.now() + " new"
			m.change(t, telemetryYAML(""))
			m.meet(t, now, route("/logged"))
			m.change(t, telemetryYAML("request.headers['x-keep'] == 'yes'"))
			m.meet(t, now, route("/left-out"))
			m.meet(t, now, route("/kept", "x-keep", "yes"))
			m.remove(t, telemetryYAML(""))
			m.meet(t, now, route("/off", "x-keep", "yes"))
			m.logged(t, "/logged", each())
			m.logged(t, "/kept", each())
			time.Sleep(flushTime) // the lines that must not come would be there
			m.logged(t, "/left-out", 0)
			m.logged(t, "/off", 0)
		}},
		{"certificates", func(t *testing.T) {
			m.change(t, secretYAML(t, 1)+secureYAML)
			m.meet(t, "1", m.certificate)
			last := secretYAML(t, 2)
			m.change(t, last)
			m.meet(t, "2", m.certificate)
			broken := m.apply(t, strings.Replace(secretYAML(t, 3), "tls.key: ", "tls.key: AAAA", 1))
			if text, code := m.wait(t, "-f", broken); code != 79 || !strings.Contains(text, "invalid") {
				t.Errorf("wait for a Secret with an error ends with %d: %s", code, text)
			}
			m.meet(t, "2", m.certificate)
			m.remove(t, last+secureYAML) // an Envoy keeps a secret that is removed, as long as it has a listener for it
			m.meet(t, "refused", m.certificate)
		}},
		{"held-back", m.heldBack},
		{"rejected", m.rejected},
		{"deletions", func(t *testing.T) {
			m.change(t, m.next(""))
			m.remove(t, subsetsYAML)
			m.meetAny(t)
			m.remove(t, routeYAML(m.version, ""))
			m.meetAll(t, func(proxy string, _ int) string {
				if strings.HasPrefix(proxy, "gateway") {
					return "404"
				}
				return "200"
			}, anyServer(route("/")))
			m.change(t, m.next(""))
		}},
		{"replica-dies", m.replicaDies},
		{"all-replicas-die", m.allReplicasDie},
	} {
		if !t.Run(step.name, step.run) {
			break // the next steps need what this one leaves
		}
	}
	if n := m.requests.Load(); !t.Failed() && n < total {
		t.Errorf("%d requests, want %d", n, total)
	}
}

// flushTime is more than Envoys take to write their logs.
const flushTime = 1500 * time.Millisecond

// anyServer is a kind of requests whose answers do not name the server.
func anyServer(ask func(p *member) (asker, func())) func(p *member) (asker, func()) {
	return func(p *member) (asker, func()) {
		one, end := ask(p)
		if one == nil {
			return nil, nil
		}
		return func(ctx context.Context, i int) (string, error) {
			text, err := one(ctx, i)
			return strings.TrimSuffix(strings.TrimSuffix(text, " old"), " new"), err
		}, end
	}
}

// next returns the next version of the route.
func (m *mesh) next(subset string) string {
	m.version++
	return routeYAML(m.version, subset)
}

// now is what an answer by the last version of the route begins with.
func (m *mesh) now() string { return fmt.Sprint("200 ", m.version) }

// meetAny sends requests that meet the last version of the route, and any server.
func (m *mesh) meetAny(t *testing.T) {
	t.Helper()
	m.meet(t, m.now(), anyServer(route("/")))
}

// status sends requests of a path to all pods and gateways, and looks at the status of the answers only.
func (m *mesh) status(t *testing.T, want, path string) {
	t.Helper()
	m.meet(t, want, func(p *member) (asker, func()) {
		one, end := m.inbound(path)(p)
		return func(ctx context.Context, i int) (string, error) {
			text, err := one(ctx, i)
			status, _, _ := strings.Cut(text, " ")
			return status, err
		}, end
	})
}

// routes are the objects of the route's kind.
var routes = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}

// errNoCondition is returned for an object whose newest generation has no such condition.
var errNoCondition = errors.New("no condition about the newest generation")

// condition returns the status and the message of a condition of the route, about its newest generation.
func (m *mesh) condition(name string) (string, error) {
	u, err := m.cluster.Dynamic().Resource(routes).Namespace("shop").Get(m.ctx, "server", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	list, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return "", err
	}
	for _, c := range list {
		if c := c.(map[string]any); c["type"] == name && c["observedGeneration"] == u.GetGeneration() {
			return fmt.Sprint(c["status"], " ", c["message"]), nil
		}
	}
	return "", errNoCondition
}

// says waits until a condition says something that a regular expression matches.
func (m *mesh) says(t *testing.T, name, want string) {
	t.Helper()
	pattern := regexp.MustCompile(want)
	var last string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last condition %s: %s", name, last)
		}
	})
	suite.Eventually(t, name+": "+want, func() bool {
		text, err := m.condition(name)
		if last = text; err != nil {
			last = err.Error()
		}
		return err == nil && pattern.MatchString(text)
	})
}

// proxy returns a proxy.
func (m *mesh) proxy(t *testing.T, name string) *member {
	t.Helper()
	for _, p := range m.proxies {
		if p.Node.Name == name {
			return p
		}
	}
	t.Fatalf("there is no proxy %s", name)
	return nil
}

// What wait says about a proxy that is stopped, and about one that rejects.
var (
	held = regexp.MustCompile(`(?s)behind +19 of 20 proxies.*\n  web-3\.shop: behind since (\S+), connected to istiod-[01]`)
	odd  = regexp.MustCompile(`(?s)rejected.*\n  web-5\.shop: rejected since \S+, connected to istiod-[01]: LDS: .*it is odd`)
)

// heldBack changes the route while one proxy is stopped.
func (m *mesh) heldBack(t *testing.T) {
	m.change(t, m.next("new"))
	m.says(t, "Reconciled", `^True 20 of 20 proxies`)
	release := m.hold(t, m.proxy(t, "web-3"))
	before := time.Now()
	file := m.apply(t, m.next("new"))
	text, code := m.wait(t, "-f", file, "--timeout", "3s")
	found := held.FindStringSubmatch(text)
	if code != 79 || found == nil {
		t.Fatalf("wait with a proxy that is held back ends with %d: %s", code, text)
	}
	since, err := time.ParseInLocation("2006-01-02 15:04:05.000", before.Format("2006-01-02 ")+found[1], time.Local)
	if must.Succeed(t, err); since.Before(before.Add(-time.Millisecond)) || since.After(time.Now().Add(-2*time.Second)) {
		t.Errorf("it is behind since %s, and was held back at %s", since, before)
	}
	m.says(t, "Reconciled", `^False 19 of 20 proxies`)
	m.says(t, "Reconciling", `^True waiting for web-3\.shop since 20`)
	if text, code := m.wait(t, "-f", file, "--timeout", "100ms"); code != 79 || !strings.Contains(text, "web-3.shop") {
		t.Errorf("wait ends with %d: %s", code, text)
	}
	release()
	m.awaits(t, "-f", file)
	m.meet(t, m.now()+" new", route("/"))
	m.says(t, "Reconciled", `^True 20 of 20 proxies`)
}

// rejected makes a proxy reject a change. Later changes of others come into force.
func (m *mesh) rejected(t *testing.T) {
	file := m.apply(t, oddYAML)
	text, code := m.wait(t, "-f", file, "--timeout", "30s")
	if code != 79 || !odd.MatchString(text) {
		t.Fatalf("wait with a proxy that rejects ends with %d: %s", code, text)
	}
	m.change(t, m.next("new"))
	m.meet(t, m.now()+" new", route("/"))
	m.remove(t, oddYAML)
	m.meet(t, m.now()+" new", route("/"))
}
