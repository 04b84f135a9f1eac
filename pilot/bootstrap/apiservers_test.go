package bootstrap

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestAPIServersAreKnown checks that the addresses of API servers are the endpoints of the Service that they keep, and
// that there are none without it.
func TestAPIServersAreKnown(t *testing.T) {
	o := certificateOptions(t)
	s, err := New(o)
	must.Succeed(t, err)
	if all := s.apiServers(); len(all) != 0 {
		t.Errorf("%v before the first Snapshot", all)
	}
	run(t, s)
	eventually(t, "the server is ready", s.ready.Load)
	if all := s.apiServers(); len(all) != 0 {
		t.Errorf("%v without the Service", all)
	}
	write(t, filepath.Join(o.ConfigDir, "kubernetes.yaml"), `apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {clusterIP: 10.96.0.1, ports: [{name: https, port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 6443, protocol: TCP}]
endpoints: [{addresses: [10.0.0.9]}, {addresses: [10.0.0.8]}]
`)
	eventually(t, "the addresses", func() bool {
		all := s.apiServers()
		return len(all) == 2 && fmt.Sprint(all) == "[10.0.0.8 10.0.0.9]" || fmt.Sprint(all) == "[10.0.0.9 10.0.0.8]"
	})
}
