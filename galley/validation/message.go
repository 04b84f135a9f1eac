package validation

import (
	"encoding/json"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Metadata is what a message of another control plane says of an object.
type Metadata struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	Created             time.Time
}

// Message judges one object of an Istio kind that another control plane sent: its spec is a message of the kind's type.
// It is judged as Object does, and so is its metadata, for nobody has yet. A field that is unknown here is a warning,
// in a security object an error.
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
		return Document{Key: key, Security: kind.Security, Findings: withoutPosition(f.finish(key.String()))}
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
	if doc.Object != nil {
		doc.Object.Created = meta.Created // JSON has only seconds
	}
	return doc
}

func messageJSON(meta Metadata, spec proto.Message) ([]byte, error) {
	body, err := protojson.Marshal(spec)
	if err != nil {
		return nil, err
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

// Closed returns the strictest object of a security kind, to stand in for one that cannot be used: an
// AuthorizationPolicy that denies everything, or, where it is one of action ALLOW, allows nothing; a
// PeerAuthentication that takes only mTLS; a RequestAuthentication that accepts no token. It selects what spec
// selects, if that is known and can be used, else the whole namespace. It is nil only where namespace and name cannot
// be used.
func Closed(l limits.Limits, kind *kinds.Kind, meta Metadata, spec proto.Message) *kinds.Object {
	meta.Labels, meta.Annotations = nil, nil
	partly, whole := kind.New().(proto.Message), kind.New().(proto.Message)
	if spec != nil {
		spec.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if slices.Contains([]protoreflect.Name{"selector", "targetRef", "targetRefs"}, f.Name()) {
				partly.ProtoReflect().Set(f, v)
			}
			return true
		})
	}
	for _, m := range []proto.Message{partly, whole} {
		switch p := m.(type) {
		case *securityv1.AuthorizationPolicy:
			given, known := spec.(*securityv1.AuthorizationPolicy)
			switch {
			case known && given.Action == securityv1.AuthorizationPolicy_ALLOW:
			case known && given.Action == securityv1.AuthorizationPolicy_AUDIT: // it would not have refused anything
				p.Action = given.Action
			default:
				p.Action, p.Rules = securityv1.AuthorizationPolicy_DENY, []*securityv1.Rule{{}}
			}
		case *securityv1.PeerAuthentication:
			p.Mtls = &securityv1.PeerAuthentication_MutualTLS{Mode: securityv1.PeerAuthentication_MutualTLS_STRICT}
		case *securityv1.RequestAuthentication:
			p.JwtRules = []*securityv1.JWTRule{{Issuer: "unusable", Jwks: jwks.Nobody}}
		}
		if o := Message(l, kind, meta, m).Object; o != nil {
			return o
		}
	}
	return nil
}
