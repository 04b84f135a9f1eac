package validation

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// describe copies the metadata that readers use.
func describe(o *kinds.Object, meta *metav1.ObjectMeta) {
	o.UID = string(meta.UID)
	o.Labels = meta.Labels
	o.Annotations = meta.Annotations
	o.Created = meta.CreationTimestamp.Time
}

// key reads name and namespace from the tree, so that even a document that does not decode has a key, and checks the
// metadata by the rules of the API server.
func (d *decoder) key(n *node, f *findings, o *kinds.Object) {
	meta := n.get("metadata")
	if meta == nil || meta.shape != mapping {
		if meta == nil && n.mistypes("metadata") {
			return // already reported as an unknown field
		}
		if meta == nil || meta.shape == null {
			f.errorAt(n.pos, "metadata", "MissingField", "add metadata with a name", "the object has no metadata")
		}
		return
	}
	c := fieldRef{checker: &checker{findings: f, limits: &d.limits}, node: meta, pos: meta.pos, base: "metadata"}
	o.Name = meta.str("name")
	switch name := c.at("name"); {
	case name.absent() && meta.mistypes("name"):
	case name.absent():
		code := "add a name"
		if !c.at("generateName").absent() {
			code = "write the whole name: only an API server makes names up"
		}
		c.missing("name", code, "the object has no name")
	case d.stored: // another control plane may serve a last good version
		name.problems(nameRule(o.Kind)(strings.TrimSuffix(o.Name, kinds.LastGood)))
	case !d.salvages:
		name.problems(nameRule(o.Kind)(o.Name))
	}
	ns := c.at("namespace")
	switch {
	case o.Kind.Cluster:
		if !ns.absent() {
			ns.warn("remove it", "%s is cluster-scoped and has no namespace", o.Kind.Name)
		}
	case meta.str("namespace") == "":
		o.Namespace = d.namespace
	default:
		o.Namespace = meta.str("namespace")
		ns.problems(kvalidation.IsDNS1123Label(o.Namespace))
	}
	c.at("labels").labels()
	c.at("annotations").each(func(key string, value fieldRef) {
		value.problems(kvalidation.IsQualifiedName(strings.ToLower(key)))
	})
}

// mistypes reports whether an unknown field is most likely a misspelling of a field.
func (n *node) mistypes(name string) bool {
	return slices.ContainsFunc(n.fields, func(f field) bool { return f.name != name && diag.Nearest(f.name, metadataNames()) == name })
}

// metadataNames returns the names that a misspelt field may be meant for.
func metadataNames() []string {
	return []string{"apiVersion", "kind", "metadata", "spec", "status", "data",
		"name", "namespace", "generateName", "labels", "annotations", "uid"}
}

func nameRule(k *kinds.Kind) func(string) []string {
	switch k {
	case kinds.Namespace:
		return kvalidation.IsDNS1123Label
	case kinds.Service:
		return kvalidation.IsDNS1123Label
	}
	return kvalidation.IsDNS1123Subdomain
}

// labels checks a mapping of label names to values.
func (p fieldRef) labels() {
	p.each(func(key string, value fieldRef) {
		value.problems(kvalidation.IsQualifiedName(key))
		value.problems(kvalidation.IsValidLabelValue(value.text()))
	})
}

// workloadLabels checks the labels of workloads outside of clusters, which no API server checks.
func (p fieldRef) workloadLabels() {
	p.each(func(key string, value fieldRef) {
		if len(value.text()) <= 63 {
			value.problems(kvalidation.IsValidLabelValue(value.text()))
		} else {
			value.warn("shorten it", "the value has more than 63 characters: nothing in a cluster can have the label")
		}
		value.problems(kvalidation.IsQualifiedName(key))
	})
}

// problems reports the faults that Kubernetes' own rules find in the value.
func (p fieldRef) problems(list []string) {
	for _, why := range list {
		p.add(diag.Error, badValue, "", "%s", why)
	}
}
