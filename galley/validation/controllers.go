package validation

import (
	"cmp"
	"slices"
)

// Template is the template of Pods in an object such as a Deployment, from which a controller of Kubernetes would
// create Pods. This project creates none; findings say so.
type Template struct {
	Name         string // kind, namespace and name, such as Deployment shop/web
	Namespace    string
	Selector     map[string]string // selects the Pods that the object owns
	Labels       map[string]string // labels of the Pods
	Line, Column int
}

// template returns the template of an object, and reports whether it has one.
func template(n *node, namespace string) (Template, bool) {
	path := []string{"spec", "template"}
	switch n.str("apiVersion") + " " + n.str("kind") {
	case "apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 DaemonSet", "apps/v1 ReplicaSet", "v1 ReplicationController", "batch/v1 Job":
	case "batch/v1 CronJob":
		path = slices.Concat([]string{"spec", "jobTemplate"}, path)
	default:
		return Template{}, false
	}
	t := Template{Namespace: n.str("metadata", "namespace"), Line: n.line, Column: n.col}
	t.Namespace = cmp.Or(t.Namespace, namespace)
	t.Name = n.str("kind") + " " + t.Namespace + "/" + n.str("metadata", "name")
	t.Labels = n.labelsAt(append(path, "metadata", "labels"))
	if t.Selector = n.labelsAt([]string{"spec", "selector", "matchLabels"}); len(t.Selector) == 0 {
		t.Selector = t.Labels
	}
	return t, true
}

func (n *node) labelsAt(path []string) map[string]string {
	for _, name := range path {
		n = n.get(name)
	}
	labels := map[string]string{}
	if n != nil {
		for _, f := range n.fields {
			labels[f.name] = f.value.value
		}
	}
	return labels
}
