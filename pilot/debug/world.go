package debug

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// configObject is an object in the format of the Kubernetes API.
type configObject struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       any      `json:"spec,omitempty"`
	Data       any      `json:"data,omitempty"`
	Type       string   `json:"type,omitempty"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	UID         string            `json:"uid,omitempty"`
	Generation  int64             `json:"generation,omitempty"`
	Created     *time.Time        `json:"creationTimestamp,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Position    string            `json:"position,omitempty"` // file:line:column; Kubernetes has no such field
}

// lastApplied is the annotation with kubectl's copy of the whole object, which for a Secret includes its data.
const lastApplied = names.AnnotationLastApplied

// configz returns the objects of Istio and the Gateway API, and Secrets without their data.
func (a *API) configz(query url.Values) (any, error) {
	out := []configObject{}
	for _, o := range a.sorted() {
		if !shown(o.Kind) || query.Get("kind") != "" && query.Get("kind") != o.Kind.Name {
			continue
		}
		c, err := describe(o)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func shown(k *kinds.Kind) bool {
	return k.Istio || k.Group == kinds.HTTPRoute.Group || k == kinds.Secret
}

func describe(o *kinds.Object) (configObject, error) {
	c := configObject{APIVersion: o.Kind.APIVersion(o.Kind.Versions[0]), Kind: o.Kind.Name, Metadata: describeMeta(o)}
	switch spec := o.Spec.(type) {
	case *corev1.Secret:
		redacted := map[string]string{}
		for key := range spec.Data {
			redacted[key] = "[redacted]"
		}
		for key := range spec.StringData {
			redacted[key] = "[redacted]"
		}
		c.Data, c.Type = redacted, string(spec.Type)
	case proto.Message:
		text, err := protoJSON(spec)
		if err != nil {
			return c, err
		}
		c.Spec = text
	default:
		text, err := json.Marshal(spec)
		if err != nil {
			return c, err
		}
		var whole struct {
			Spec json.RawMessage `json:"spec"`
		}
		if err := json.Unmarshal(text, &whole); err != nil {
			return c, err
		}
		c.Spec = whole.Spec
	}
	return c, nil
}

func describeMeta(o *kinds.Object) metadata {
	m := metadata{Name: o.Name, Namespace: o.Namespace, UID: o.UID, Generation: o.Generation, Labels: o.Labels, Position: o.Position}
	if !o.Created.IsZero() {
		m.Created = &o.Created
	}
	if len(o.Annotations) > 0 {
		m.Annotations = maps.Clone(o.Annotations)
		delete(m.Annotations, lastApplied)
	}
	return m
}

func protoJSON(m proto.Message) (json.RawMessage, error) {
	return protojson.MarshalOptions{}.Marshal(m)
}

// sorted returns all objects sorted by kind, namespace and name.
func (a *API) sorted() []*kinds.Object {
	objects := slices.Clone(a.o.World.Objects())
	slices.SortFunc(objects, func(x, y *kinds.Object) int {
		return cmp.Or(cmp.Compare(x.Kind.Name, y.Kind.Name), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return objects
}

func (a *API) mesh(url.Values) (any, error) {
	s := a.o.World.Snapshot()
	if s == nil {
		return struct{}{}, nil
	}
	return protoJSON(s.Mesh.MeshConfig)
}

// clusterz lists the remote clusters.
func (a *API) clusterz(url.Values) (any, error) {
	if a.o.Server == nil {
		return []struct{}{}, nil
	}
	return a.o.Server.Clusters(), nil
}

// inject returns the injection templates by name.
func (a *API) inject(url.Values) (any, error) {
	if a.o.Server == nil {
		return struct{}{}, nil
	}
	return a.o.Server.Templates(), nil
}
