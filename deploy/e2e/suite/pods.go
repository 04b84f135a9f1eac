package suite

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

// NamespacesYAML returns the documents of Namespaces, with a separator after each.
func NamespacesYAML(names ...string) string {
	var all strings.Builder
	for _, n := range names {
		fmt.Fprintf(&all, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", n)
	}
	return all.String()
}

// Labels of pods, in addition to app.
const (
	Sidecar  = "security.istio.io/tlsMode: istio"             // the world starts an Envoy for it
	Outside  = `sidecar.istio.io/inject: "false"`             // it is not in the mesh
	OwnAgent = Sidecar + `, sidecar.istio.io/inject: "false"` // the test starts its Envoy
)

// PodYAML returns the document of a Pod with a separator after it. Its app and service account have its name. args are
// the arguments of its echo server.
func PodYAML(name, namespace, address, args, labels string) string {
	return podYAML(name, namespace, address, args, labels, "")
}

// GatewayPodYAML returns the document of a Pod that is a gateway, like PodYAML.
func GatewayPodYAML(name, namespace, address string, labels ...string) string {
	return podYAML(name, namespace, address, "", strings.Join(append(labels, Sidecar), ", "),
		", annotations: {inject.istio.io/templates: gateway}")
}

func podYAML(name, namespace, address, args, labels, annotations string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s, labels: {app: %[1]s, %[5]s}%[6]s}
spec: {serviceAccountName: %[1]s, containers: [{name: app, image: echo, args: [%[4]s]}]}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: "True"}]}
---
`, name, namespace, address, args, labels, annotations)
}

// ServiceYAML returns the document of a Service with a separator after it. It selects pods with its name as their app.
// ports are in YAML. By default it has the HTTP port 80, which leads to 8080.
func ServiceYAML(name, namespace, address string, ports ...string) string {
	if len(ports) == 0 {
		ports = []string{"{name: http, port: 80, targetPort: 8080}"}
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {clusterIP: %[3]s, selector: {app: %[1]s}, ports: [%[4]s]}
---
`, name, namespace, address, strings.Join(ports, ", "))
}

// GatewayYAML returns the document of a Gateway with a separator after it. It selects the pods with the app "gateway",
// and accepts HTTP for all hosts.
func GatewayYAML(name, namespace string, port int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %s, namespace: %s}
spec: {selector: {app: gateway}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
`, name, namespace, port)
}

// PeerAuthenticationYAML returns the document of the mesh-wide mode, with a separator after it.
func PeerAuthenticationYAML(mode string) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: %s}}
---
`, mode)
}

// UncapturedYAML has the documents of a namespace b without redirection, with a separator after each. The sidecars of
// the service "server" listen on port 8443, and all others are forward proxies on port 7070.
const UncapturedYAML = `apiVersion: v1
kind: Service
metadata: {name: server, namespace: b}
spec:
  selector: {app: server}
  ports: [{name: http, port: 80, targetPort: 8443}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: server, namespace: b}
spec:
  workloadSelector: {labels: {app: server}}
  ingress: [{port: {number: 8443, protocol: HTTP, name: http}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: "0.0.0.0:8080"}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: b}
spec:
  egress: [{port: {number: 7070, protocol: HTTP_PROXY, name: proxy}, bind: 127.0.0.1, captureMode: NONE, hosts: ["*/*"]}]
---
`

// Serve serves on a port of a pod until the test ends.
func Serve(t *testing.T, pod *world.Running, port int, serve func(net.Listener) error, stop func()) {
	t.Helper()
	ServeAt(t, pod, pod.Node.Addr.String(), port, serve, stop)
}

// ServeAt serves on a port of an address of a pod, or of "0.0.0.0", until the test ends.
func ServeAt(t *testing.T, pod *world.Running, host string, port int, serve func(net.Listener) error, stop func()) {
	t.Helper()
	l, err := pod.Location.Listen(net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = serve(l) }()
	t.Cleanup(func() { stop(); _ = l.Close(); <-ended })
}
