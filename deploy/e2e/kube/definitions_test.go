package kube

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

const serviceEntry = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec: {hosts: [api.example.com], ports: [{name: http, number: 80, protocol: HTTP}], resolution: DNS,
    endpoints: [{address: api.example.org}]}
`

const entryCluster = "outbound|80||api.example.com"

// definition returns a CustomResourceDefinition as it can be applied again.
func (w *mesh) definition(name string) string {
	w.T.Helper()
	o, err := w.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}).Get(w.Ctx, name, metav1.GetOptions{})
	w.Must(err)
	delete(o.Object, "status")
	text, err := json.Marshal(o.Object)
	w.Must(err)
	return string(text)
}

// definitions defines one kind only now, and deletes and restores another. Other kinds are not read again.
func (w *mesh) definitions(entries string) {
	w.Between.Forget()
	w.Write(entries)
	w.Write(serviceEntry)
	w.arrives(envoy.ClusterType, entryCluster, "")
	w.steady("a definition that comes")

	rules := w.definition("destinationrules.networking.istio.io")
	w.gone = append(w.gone, firstSubset)
	w.remove(rules)
	w.goes(envoy.ClusterType, firstSubset)
	w.comes("a definition that goes")
	w.Write(rules)
	w.Write(destinationRule)
	w.arrives(envoy.ClusterType, firstSubset, "")
	w.steady("a definition that comes back")

	// The largest object that fits into etcd, beside those of the same kind.
	huge := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": map[string]any{"name": "huge", "namespace": "elsewhere"},
		"spec": map[string]any{
			"hosts": []any{"huge.example.com"}, "exportTo": []any{"."},
			"ports":      []any{map[string]any{"name": "http", "number": int64(80), "protocol": "HTTP"}},
			"resolution": "DNS", "subjectAltNames": []any{strings.Repeat("x", 1400<<10)},
		},
	}}
	kind := w.Dynamic().Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}).
		Namespace("elsewhere")
	w.Write("apiVersion: v1\nkind: Namespace\nmetadata: {name: elsewhere}\n")
	_, err := kind.Create(w.Ctx, huge, metav1.CreateOptions{})
	w.Must(err)
	w.Write(strings.NewReplacer("api.", "after-huge.", "name: api", "name: after-huge").Replace(serviceEntry))
	w.arrives(envoy.ClusterType, strings.Replace(entryCluster, "api.", "after-huge.", 1), "")

	for _, resource := range []string{"services", "pods", "endpointslices", "virtualservices", "sidecars"} {
		for _, r := range w.Between.Requests(faults.Match{Verbs: []string{"list", "watch"}, Resource: resource}) {
			if r.Initial || r.Verb == "list" {
				w.T.Errorf("%s were read anew: %s", resource, r.Query)
			}
		}
	}
}
