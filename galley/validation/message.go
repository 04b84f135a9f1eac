package validation

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Metadata is the metadata of an object that another control plane sent.
type Metadata struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	Created             time.Time
}

// Message checks one object of an Istio kind that another control plane sent; its spec is a message of the kind's type.
// It is checked like an object in Object, and its metadata is checked too, because no API server has checked it. A
// field that is unknown here is a warning, and an error in a security object.
func Message(l limits.Limits, kind *kinds.Kind, meta Metadata, spec proto.Message) Document {
	f := &findings{}
	key := kinds.Key{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}
	text, err := messageJSON(meta, spec)
	var n *node
	if err == nil {
		n, err = parseJSON(text, l.YAMLDepth)
	}
	if err != nil {
		f.errorAt(pos{}, "spec", "Syntax", "", "the object cannot be read: %v", err)
		return Document{Key: key, Vital: kind.Security, Findings: withoutPosition(f.finish(key.String()))}
	}
	d := &decoder{limits: l, stored: true}
	d.key(n, f, &kinds.Object{Key: kinds.Key{Kind: kind}})
	faults := f.failed()
	if unknown(spec.ProtoReflect()) {
		severity := diag.Warning
		if kind.Security {
			severity = diag.Error
		}
		f.add(severity, pos{}, "spec", "UnknownField", "update this control plane", "the object has fields that are not known here")
	}
	doc := d.decode(kind, n, f)
	if doc.Key = key; faults {
		doc.Object = nil
	}
	if doc.Object == nil && doc.Kept == nil {
		doc.Kept = Unreadable(l, kind, meta, spec).Kept
	}
	for _, o := range []*kinds.Object{doc.Object, doc.Kept} {
		if o != nil {
			o.Created = meta.Created // JSON has only seconds
		}
	}
	return doc
}

func messageJSON(meta Metadata, spec proto.Message) ([]byte, error) {
	body := []byte("null")
	if spec != nil {
		var err error
		if body, err = protojson.Marshal(spec); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"name": meta.Name, "namespace": meta.Namespace, "labels": meta.Labels, "annotations": meta.Annotations},
		"spec":     json.RawMessage(body),
	})
}

// unknown reports whether a message, or one inside it, has fields that its type does not declare.
func unknown(m protoreflect.Message) (found bool) {
	_ = protorange.Range(m, func(at protopath.Values) error {
		if at.Path.Index(-1).Kind() == protopath.UnknownAccessStep {
			found = true
			return protorange.Terminate
		}
		return nil
	})
	return found
}

// Unreadable returns the document of an object of which only the metadata is known and, if it is not nil, the spec. A
// security object is replaced by the strictest object for the same workloads; see Closed.
func Unreadable(l limits.Limits, kind *kinds.Kind, meta Metadata, spec proto.Message) Document {
	meta.Labels, meta.Annotations = nil, nil // they may be the fault
	doc := Document{Key: kinds.Key{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}, Vital: kind.Security}
	text, err := messageJSON(meta, spec)
	if err != nil {
		text, err = messageJSON(meta, nil)
	}
	f := &findings{}
	if n, parseErr := parseJSON(text, l.YAMLDepth); err == nil && parseErr == nil {
		(&decoder{limits: l, stored: true}).key(n, f, &kinds.Object{Key: doc.Key})
		if !f.failed() {
			doc.Kept = Closed(l, kind, text)
		}
	}
	return doc
}
