package suite

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

// NamespacesYAML returns the documents of Namespaces, with a separator behind each.
func NamespacesYAML(names ...string) string {
	var all strings.Builder
	for _, n := range names {
		fmt.Fprintf(&all, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", n)
	}
	return all.String()
}

// PodYAML returns the document of a Pod whose app and service account have its name, with a separator behind it. args
// are those of its echo server. label replaces the one that says that it has a sidecar.
func PodYAML(name, namespace, address, args, label string) string {
	if label == "" {
		label = "security.istio.io/tlsMode: istio"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s, labels: {app: %[1]s, %[5]s}}
spec: {serviceAccountName: %[1]s, containers: [{name: app, image: echo, args: [%[4]s]}]}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: "True"}]}
---
`, name, namespace, address, args, label)
}

// Serve serves on a port of a pod, until the test ends.
func Serve(t *testing.T, pod *world.Running, port int, serve func(net.Listener) error, stop func()) {
	t.Helper()
	l, err := pod.Location.Listen(net.JoinHostPort(pod.Node.Addr.String(), strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = serve(l) }()
	t.Cleanup(func() { stop(); <-ended })
}
