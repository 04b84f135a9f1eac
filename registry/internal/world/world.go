package world

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

var separator = regexp.MustCompile(`(?m)^---\s*$`)

// ParseFile returns the changes of a file, see Parse.
func ParseFile(tb testing.TB, path string) []kinds.Change {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return Parse(tb, string(text))
}

// Parse returns a change for each document, which creates or updates its object. A document with
// metadata.deletionTimestamp is an object that is being deleted.
func Parse(tb testing.TB, text string) []kinds.Change {
	tb.Helper()
	var changes []kinds.Change
	for _, doc := range separator.Split(text, -1) {
		var head struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Metadata   metav1.ObjectMeta `json:"metadata"`
			Spec       json.RawMessage   `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			tb.Fatalf("decode %q: %v", doc, err)
		}
		if head.Kind == "" {
			continue
		}
		kind := kinds.Find(head.APIVersion, head.Kind)
		if kind == nil {
			tb.Fatalf("unknown kind %s %s", head.APIVersion, head.Kind)
		}
		spec := kind.New()
		var err error
		switch {
		case !kind.Istio:
			err = yaml.UnmarshalStrict([]byte(doc), spec)
		case len(head.Spec) > 0:
			err = protojson.Unmarshal(head.Spec, spec.(proto.Message))
		}
		if err != nil {
			tb.Fatalf("decode %q: %v", doc, err)
		}
		key := kinds.Key{Kind: kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}
		changes = append(changes, kinds.Change{Key: key, Object: &kinds.Object{
			Key: key, UID: string(head.Metadata.UID), Labels: head.Metadata.Labels, Annotations: head.Metadata.Annotations,
			Created: head.Metadata.CreationTimestamp.Time, Spec: spec,
		}})
	}
	return changes
}

// In returns the changes with the ID of a cluster, which is empty for the server's own.
func In(cluster string, changes []kinds.Change) []kinds.Change {
	var out []kinds.Change
	for _, c := range changes {
		c.Cluster = cluster
		if c.Object != nil {
			o := *c.Object
			o.Cluster = cluster
			c.Object = &o
		}
		out = append(out, c)
	}
	return out
}

// Delete returns a change for each object in changes that deletes it.
func Delete(changes []kinds.Change) []kinds.Change {
	return lists.Map(changes, func(c kinds.Change) kinds.Change { return kinds.Change{Key: c.Key} })
}
