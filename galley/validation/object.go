package validation

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Object reads one object of the given kind, as JSON of an API server or of another control plane. It is checked like a
// document of a file, with these differences:
//   - Findings have an object and a field, but no file and line.
//   - The metadata is not checked: the API server has checked it.
//   - A field that is unknown here was written by a newer release, and its author cannot be told to correct it: it is
//     left out with a warning. In a security object it is an error, because without it the object might allow more than
//     intended.
func Object(l limits.Limits, kind *kinds.Kind, data []byte) Document {
	d := &decoder{limits: l, stored: true}
	doc := d.json(kind, data)
	if doc.Object == nil && doc.Kept == nil {
		doc.Kept = Closed(l, kind, data)
	}
	return doc
}

// json reads one object of an API server.
func (d *decoder) json(kind *kinds.Kind, data []byte) Document {
	f := &findings{}
	n, err := parseJSON(data, d.limits.YAMLDepth)
	if err == nil && n.shape != mapping {
		err = fmt.Errorf("expected an object, found %s", n.shape)
	}
	if err != nil {
		code := "Syntax"
		if errors.Is(err, errDeep) || errors.Is(err, errMany) {
			code = "Limit"
		}
		f.errorAt(pos{}, "", code, "", "the object cannot be read: %v", err)
		return Document{Key: kinds.Key{Kind: kind}, Vital: kind.Security, Findings: withoutPosition(f.finish(kind.Name))}
	}
	return d.decode(kind, n, f)
}

// storedKey reads the metadata that is used of an object that an API server has checked.
func (d *decoder) storedKey(n *node, f *findings, o *kinds.Object) {
	meta := n.get("metadata")
	o.Name, o.Namespace = meta.str("name"), meta.str("namespace")
	if o.Name == "" && !d.review {
		f.errorAt(pos{}, "metadata.name", "MissingField", "", "the object has no name")
	}
	if o.Kind.Cluster {
		o.Namespace = ""
	}
}

// slim removes all metadata of a stored object that the control plane does not use. keptMeta has what it leaves.
func (n *node) slim() {
	if n == nil {
		return
	}
	n.fields = slices.DeleteFunc(n.fields, func(f field) bool {
		switch f.name {
		case "name", "namespace", "uid", "labels", "annotations", "creationTimestamp", "deletionTimestamp", "generation":
			return false
		}
		return true
	})
}

// slimMeta checks the types of what slim leaves, and reports whether only a decoder finds all that is wrong with it.
func (n *node) slimMeta(f *findings) (doubt bool) {
	goSchema{findings: f}.value(n, reflect.TypeFor[keptMeta](), "metadata")
	return n.repeats() || n.get("labels").repeats() || n.get("annotations").repeats()
}

// keptMeta has the fields of metav1.ObjectMeta that slim leaves.
type keptMeta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               types.UID         `json:"uid"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	Generation        int64             `json:"generation"`
}

// health copies the health in the status of a WorkloadEntry into an annotation, because objects have no status here.
func health(n *node, o *kinds.Object) {
	for _, c := range n.get("status").get("conditions").list() {
		if c.str("type") != "Healthy" {
			continue
		}
		value := strings.ToLower(c.str("status"))
		if value != "true" && value != "false" {
			return
		}
		annotate(o, kinds.AnnotationHealthy, value)
		return
	}
}

// addresses copies the assigned addresses in the status of a ServiceEntry into an annotation.
func addresses(n *node, o *kinds.Object) {
	var lines []string
	for _, a := range n.get("status").get("addresses").list() {
		if ip, err := netip.ParseAddr(a.str("value")); err == nil {
			lines = append(lines, strings.ToLower(a.str("host"))+" "+ip.String())
		}
	}
	if len(lines) > 0 {
		annotate(o, kinds.AnnotationAddresses, strings.Join(lines, "\n"))
	}
}

func annotate(o *kinds.Object, name, value string) {
	if o.Annotations = maps.Clone(o.Annotations); o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[name] = value
}

func (n *node) list() []*node {
	if n == nil {
		return nil
	}
	return n.items
}

// withoutPosition removes lines and columns from findings about an object that was not read from a file.
func withoutPosition(list []diag.Diagnostic) []diag.Diagnostic {
	for i := range list {
		list[i].Line, list[i].Column = 0, 0
	}
	return list
}
