package traffic

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	callTimeout = 30 * time.Second
	port        = 17070
)

var grpcYAML = suite.NamespacesYAML("istio-system", "a") + suite.ServiceYAML("greeter", "a", "10.96.0.10",
	"{name: grpc, port: 7070, targetPort: 17070}") + podYAML("v1", "greeter", "10.10.0.21", "region1.zone1") +
	podYAML("v2", "greeter", "10.10.0.22", "region2.zone1") +
	podYAML("client", "client", "10.10.0.23", "region1.zone1")

func podYAML(name, app, address, locality string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: a, labels: {app: %[2]s, version: %[1]s, istio-locality: %[4]s, sidecar.istio.io/inject: "false"}}
spec: {serviceAccountName: %[2]s, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: "True"}]}
---
`, name, app, address, locality)
}

const ruleYAML = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: greeter, namespace: a}
spec:
  host: greeter
  trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
`

const routeYAML = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: greeter, namespace: a}
spec:
  hosts: [greeter.a.svc.cluster.local]
  http:
`

const (
	byHeader = routeYAML + `
  - match: [{headers: {x-version: {exact: v2}}}]
    route: [{destination: {host: greeter, subset: v2}}]
  - route: [{destination: {host: greeter, subset: v1}}]
`
	split = routeYAML + `
  - route: [{destination: {host: greeter, subset: v1}, weight: 80}, {destination: {host: greeter, subset: v2}, weight: 20}]
    corsPolicy: {allowOrigins: [{exact: a}]}
`
	fault = routeYAML + `
  - fault: {abort: {percentage: {value: 100}, grpcStatus: ABORTED}}
    route: [{destination: {host: greeter}}]
`
)

// TestApplications: clients and servers of grpc-go route, split, fail over, eject and use mutual TLS as configured. No
// change fails a call.
func TestApplications(t *testing.T) {
	m := grpcMesh{start(t, grpcYAML, suite.MeshOptions{CA: true, Files: map[string]string{"rule.yaml": ruleYAML, "route.yaml": byHeader}})}
	v1, v2 := m.serve("v1", "region1", "zone1"), m.serve("v2", "region2", "zone1")
	suite.Eventually(t, "the servers have their listeners", func() bool { return v1.serving.Load() && v2.serving.Load() })
	c := m.dial("client", "client", "greeter.a.svc.cluster.local:7070")

	t.Run("Header", func(t *testing.T) {
		c.only("v1")
		c.only("v2", "x-version", "v2")
		m.why("client", hello, 200, "v1")
		m.why("client", hello, 200, "v2", "x-version", "v2")
		for _, target := range []string{"greeter:7070", "greeter.a:7070", "greeter.a.svc:7070"} {
			m.dial("client", "client", target).only("v1")
		}
	})
	t.Run("MutualTLS", func(t *testing.T) {
		conn, err := grpc.NewClient("passthrough:///10.10.0.21:17070", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(m.dialer("client")))
		must.Succeed(t, err)
		defer conn.Close()
		if name, err := (grpcClient{conn, t}).call(hello); err == nil {
			t.Errorf("%s answered over plaintext", name)
		}
	})
	t.Run("ChangesFailNoCall", func(t *testing.T) {
		var failed atomic.Pointer[error]
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := c.call(hello); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		}()
		m.write("route.yaml", split)
		suite.Eventually(t, "calls are split", func() bool {
			got := c.answers(200)
			return got["v1"] > 120 && got["v2"] > 10 && got["v1"]+got["v2"] == 200
		})
		m.write("route.yaml", byHeader)
		c.only("v1")
		close(done)
		<-ended
		if err := failed.Load(); err != nil {
			t.Errorf("a call failed: %v", *err)
		}
	})
	t.Run("Fault", func(t *testing.T) {
		m.write("route.yaml", fault)
		suite.Eventually(t, "calls are aborted", func() bool { return c.answers(1)["Aborted"] == 1 })
		m.why("client", hello, 200, "") // as with HTTP, and no server is called
		m.write("route.yaml", "")
		suite.Eventually(t, "both answer", func() bool { got := c.answers(20); return got["v1"] > 0 && got["v2"] > 0 && len(got) == 2 })
	})
	t.Run("Policy", func(t *testing.T) {
		m.write("policy.yaml", `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: greeter, namespace: a}
spec:
  selector: {matchLabels: {app: greeter}}
  rules: [{from: [{source: {principals: ["cluster.local/ns/a/sa/client"]}}], to: [{operation: {paths: ["/test.Greeter/Hello"]}}]}]
`)
		other := m.dial("client", "other", "greeter:7070")
		suite.Eventually(t, "policies apply", func() bool {
			_, denied := c.call(secret)
			_, allowed := c.call(hello)
			_, stranger := other.call(hello)
			return status.Code(denied) == codes.PermissionDenied && allowed == nil && status.Code(stranger) == codes.PermissionDenied
		})
		m.why("client", hello, 200, "v1,v2")
		m.why("client", secret, 403, "v1,v2")
		m.write("policy.yaml", "")
		suite.Eventually(t, "all may call", func() bool { _, err := c.call(secret); return err == nil })
	})
	t.Run("Locality", func(t *testing.T) {
		const policy = `  trafficPolicy: {tls: {mode: ISTIO_MUTUAL}, outlierDetection: {consecutive5xxErrors: 2, interval: 1s, ` +
			`baseEjectionTime: 1s, maxEjectionPercent: 100}}`
		m.write("rule.yaml", `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: greeter, namespace: a}
spec:
  host: greeter
`+policy+"\n")
		c.only("v1") // the near one
		v1.broken.Store(true)
		c.only("v2") // it ejects the near one
		v1.broken.Store(false)
		c.only("v1")
	})
	t.Run("Plaintext", func(t *testing.T) {
		m.write("rule.yaml", "")
		m.write("mode.yaml", `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: a}
spec: {mtls: {mode: DISABLE}}
`)
		suite.Eventually(t, "both answer over plaintext",
			func() bool { got := c.answers(20); return got["v1"] > 0 && got["v2"] > 0 && len(got) == 2 })
		m.why("client", hello, 200, "v1,v2")
	})
}
