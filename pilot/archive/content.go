package archive

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// maxContent bounds the content of one version in bytes.
const maxContent = 64 << 10

// Content returns a hash of what an object says: its labels, annotations and everything but its metadata and status. It
// is the version of an object whose kind has no generations. The hash of a Secret is about its type and data alone, as
// an API server stores them, and must not be shown.
func Content(o *kinds.Object) string {
	if s, ok := o.Spec.(*corev1.Secret); ok {
		stored := corev1.Secret{Type: cmp.Or(s.Type, corev1.SecretTypeOpaque), Data: maps.Clone(s.Data)}
		for key, value := range s.StringData {
			if stored.Data == nil {
				stored.Data = map[string][]byte{}
			}
			stored.Data[key] = []byte(value)
		}
		o = &kinds.Object{Key: o.Key, Spec: &stored}
	}
	m, err := describe(o)
	if err != nil {
		return ""
	}
	delete(m["metadata"].(map[string]any), "name")
	delete(m["metadata"].(map[string]any), "namespace")
	text, err := json.Marshal(m) // the keys are sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// describe returns an object as a user writes it.
func describe(o *kinds.Object) (map[string]any, error) {
	var text []byte
	var err error
	out := map[string]any{}
	if m, ok := o.Spec.(proto.Message); ok && o.Kind.Istio {
		var spec any
		if text, err = protojson.Marshal(m); err == nil {
			err = json.Unmarshal(text, &spec)
		}
		out["spec"] = spec
	} else if text, err = json.Marshal(o.Spec); err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", o.Key, err)
	}
	delete(out, "status")
	meta := map[string]any{"name": o.Name}
	if o.Namespace != "" {
		meta["namespace"] = o.Namespace
	}
	if len(o.Labels) > 0 {
		meta["labels"] = o.Labels
	}
	notes := maps.Clone(o.Annotations)
	for _, status := range []string{kinds.AnnotationHealthy, kinds.AnnotationAddresses, corev1.LastAppliedConfigAnnotation} {
		delete(notes, status)
	}
	if len(notes) > 0 {
		meta["annotations"] = notes
	}
	out["apiVersion"], out["kind"], out["metadata"] = o.Kind.APIVersion(o.Kind.Versions[0]), o.Kind.Name, meta
	return out, nil
}

// contentOf returns an object as YAML, or says why it cannot be brought back.
func contentOf(o *kinds.Object) (text []byte, lost string) {
	switch {
	case o.Partial:
		return nil, "not all that was written was in force"
	case o.Position == "" && !o.Kind.Istio && !o.Kind.IsGatewayAPI():
		return nil, "only parts of objects of this kind are read"
	}
	m, err := describe(o)
	if err == nil {
		text, err = yaml.Marshal(m)
	}
	switch {
	case err != nil:
		return nil, "it cannot be encoded"
	case len(text) > maxContent:
		return nil, "it is too large"
	}
	return text, ""
}

// tooOld is the reason for content that was dropped.
const tooOld = "it is too old"

// Restore is how an earlier version of an object is brought back.
type Restore struct {
	Command string // what to run or, for an object in a file, what to write; empty if there is none
	Lost    string // why there is none
}

// Restore returns how the version before an object's version with index i is brought back.
func (a *Archive) Restore(k kinds.Key, i int) Restore {
	a.mu.Lock()
	e, ok := a.cacheOf(k.Kind).entries.Peek(k)
	if !ok || i < 0 || i >= len(e.versions) {
		a.mu.Unlock()
		return Restore{Lost: tooOld}
	}
	v, whole := *e.versions[i], !e.trimmed
	var before *version
	if i > 0 {
		copied := *e.versions[i-1]
		before = &copied
	}
	a.mu.Unlock()
	switch {
	case before == nil && whole && !v.AsOld && !v.Gone, before != nil && before.Gone:
		return removal(k, v.Position)
	case before == nil:
		return Restore{Lost: tooOld}
	case before.object != nil:
		before.content, before.lost = contentOf(before.object)
	}
	if before.content == nil {
		return Restore{Lost: before.lost}
	}
	return before.command(k)
}

// removal returns how an object is deleted that did not exist before.
func removal(k kinds.Key, position string) Restore {
	if position != "" {
		return Restore{Command: "remove " + k.String() + " from " + position}
	}
	if k.Kind == kinds.Secret || k.Kind.IsWorkload() {
		return Restore{Lost: "objects of this kind have more than one writer"}
	}
	command := "kubectl delete " + k.Kind.Plural
	if k.Kind.Group != "" {
		command += "." + k.Kind.Group
	}
	command += " " + k.Name
	if k.Namespace != "" {
		command += " -n " + k.Namespace
	}
	return Restore{Command: command + of(k)}
}

// command returns how a version is brought back.
func (v *version) command(k kinds.Key) Restore {
	if v.Position != "" {
		return Restore{Command: "write to " + v.Position + ":\n" + string(v.content)}
	}
	// The end of the text depends on the whole text, so that no text of a user can contain it.
	sum := sha256.Sum256(v.content)
	end := "END_" + strings.ToUpper(hex.EncodeToString(sum[:8]))
	return Restore{Command: "kubectl apply -f - <<'" + end + "'" + of(k) + "\n" + string(v.content) + end}
}

// of returns a comment with the cluster of an object that is in a remote cluster.
func of(k kinds.Key) string {
	if k.Cluster == "" {
		return ""
	}
	return " # in cluster " + k.Cluster
}
