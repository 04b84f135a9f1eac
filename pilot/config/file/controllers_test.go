package file

import (
	"testing"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: a}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web, version: v1}}}
`

// A Deployment makes no Pods here, which is a finding, unless there is something in their place.
func TestDeployments(t *testing.T) {
	w := newWorld(t, map[string]string{"web.yaml": deployment})
	w.run(Options{})
	d := w.finding("NoController", true)
	if d.Line != 1 || d.Object != "Deployment a/web" {
		t.Errorf("got %+v", d)
	}
	w.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a, labels: {app: web, more: x}}\n")
	w.finding("NoController", false)
	w.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a, labels: {app: other}}\n")
	w.finding("NoController", true)
	w.write("slice.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: a}\n"+
		"spec: {selector: {version: v1}, ports: [{port: 80}]}\n---\n"+
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
		"metadata: {name: s, namespace: a, labels: {kubernetes.io/service-name: s}}\naddressType: IPv4\n")
	w.finding("NoController", false)
}
