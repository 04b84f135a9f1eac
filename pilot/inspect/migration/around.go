package migration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Object is an object of any kind.
type Object struct{ *unstructured.Unstructured }

// Field returns the string at a path, or "".
func (o Object) Field(path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// List returns the objects of the list at a path.
func (o Object) List(path ...string) []map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)
	var out []map[string]any
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Named returns the kind, namespace and name of the object.
func (o Object) Named() string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// Around is what is in a cluster beside the mesh configuration, such as Namespaces and webhook configurations.
type Around struct {
	Objects   []Object
	Forbidden []string // resources that the user may not list, such as secrets
}

// AddAround adds points about what is beside the mesh configuration.
func (v *Verdict) AddAround(a Around) {
	for _, resource := range a.Forbidden {
		// The user needs to list only the names of remote clusters' Secrets, which are read as istiod reads them.
		v.Add("not looked at", Point{InTheWay: resource != "secrets", Text: "this user may not list " + resource,
			Fix: "grant the verb list on them"})
	}
	unread := map[string]int{}
	for _, o := range a.Objects {
		v.around(o)
		if g := o.GroupVersionKind(); ofIstio(g.Group) && kinds.Named(g.Group, g.Kind) == nil {
			unread[g.Kind+" of "+g.Group]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(unread)) {
		objects := "1 object"
		if n := unread[kind]; n != 1 {
			objects = fmt.Sprintf("%d objects", n)
		}
		v.Add("kinds that are not read", Point{Text: fmt.Sprintf("%s: %s, without an effect here", kind, objects)})
	}
}

func (v *Verdict) around(t Object) {
	labels := t.GetLabels()
	switch t.GetKind() {
	case "DaemonSet":
		if t.GetName() == "ztunnel" || labels["app"] == "ztunnel" {
			v.Add("ambient mesh", Point{InTheWay: true, Text: t.Named() + " is part of an ambient mesh, which is not served",
				Fix: "give these workloads sidecars first", Where: t.Named()})
		}
	case "Namespace":
		if labels[names.LabelDataplane] == "ambient" {
			v.Add("ambient mesh", Point{InTheWay: true, Text: t.Named() + " takes part in an ambient mesh, which is not served",
				Fix: "label it istio-injection=enabled instead", Where: t.Named()})
		}
		if r := cmp.Or(labels[names.LabelRevision], map[bool]string{true: "default"}[labels["istio-injection"] == "enabled"]); r != "" {
			v.Add("revisions", Point{Text: t.Named() + " is injected by revision " + r})
		}
	case "Gateway":
		if strings.HasPrefix(t.GetAPIVersion(), "gateway.networking.k8s.io/") &&
			strings.Contains(t.Field("spec", "gatewayClassName"), "waypoint") {
			v.Same--
			v.Add("ambient mesh", Point{InTheWay: true, Text: t.Named() + " is a waypoint of an ambient mesh, which is not served",
				Where: t.Named()})
		}
	case "Pod":
		if _, ambient := t.GetAnnotations()[names.AnnotationAmbient]; ambient || labels[names.LabelDataplane] == "ambient" {
			v.Add("ambient mesh", Point{InTheWay: true, Text: t.Named() + " takes part in an ambient mesh, which is not served", Where: t.Named()})
		}
	case "MutatingWebhookConfiguration":
		if labels["app"] == "sidecar-injector" || labels[names.LabelTag] != "" {
			revision := cmp.Or(labels[names.LabelRevision], "default")
			text := t.Named() + " injects for revision " + revision
			if tag := labels[names.LabelTag]; tag != "" {
				text = t.Named() + " points tag " + tag + " to revision " + revision
			}
			v.Add("webhooks", Point{Text: text, Fix: "it stays unchanged until the tag or the revision is moved"})
		}
	case "Secret":
		if labels["istio/multiCluster"] == "true" {
			v.Add("remote clusters", Point{Text: t.Named() + " names remote clusters, which are read as istiod reads them"})
		}
	case "Service":
		v.service(t)
	case "CustomResourceDefinition":
		v.kind(t)
	}
}

// kind adds a point about a kind of Istio or of the Gateway API that is not read.
func (v *Verdict) kind(t Object) {
	group, name := t.Field("spec", "group"), t.Field("spec", "names", "kind")
	if ofIstio(group) && kinds.Named(group, name) == nil {
		v.Add("kinds that are not read", Point{Text: name + " of " + group + ": its objects, if there are any, have no effect here"})
	}
}

// ofIstio reports whether a control plane of Istio reads kinds of a group.
func ofIstio(group string) bool {
	return strings.HasSuffix(group, "istio.io") && group != "install.istio.io" || group == "gateway.networking.k8s.io"
}

// service adds a point for each port of istiod's Service that is not served.
func (v *Verdict) service(t Object) {
	if t.GetLabels()["app"] != "istiod" {
		return
	}
	served := []string{"15010", "15012", "443", "15014", "15017", "8080"}
	var ports []string
	for _, p := range t.List("spec", "ports") {
		port := fmt.Sprint(p["port"])
		ports = append(ports, port)
		if !slices.Contains(served, port) {
			v.Add("ports", Point{InTheWay: true, Text: "port " + port + " of " + t.Named() + " is not served", Where: t.Named()})
		}
	}
	v.Add("ports", Point{Text: t.Named() + " has the ports " + strings.Join(ports, ", ")})
}
