package mcp

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// watched is the state of one kind at the server.
type watched struct {
	kind     *kinds.Kind
	url      string
	version  string            // of the last accepted response
	answered bool              // answered on the current stream
	known    bool              // answered on any stream
	entries  map[string]*entry // by namespace/name
	findings []diag.Diagnostic // findings about responses as a whole
}

// entry is one object as the server sent it, and the versions in force.
type entry struct {
	config.Versions
	digest   [sha256.Size]byte // hash of the resource
	findings []diag.Diagnostic
}

// take handles a response with all objects of the kind. An error rejects it, and nothing changes. emptied reports
// whether a new stream has no objects of a kind that had some.
func (w *watched) take(l limits.Limits, resources []*anypb.Any) (changes []kinds.Change, emptied bool, err error) {
	next := make(map[string]*entry, len(resources))
	var findings []diag.Diagnostic
	for i, r := range resources {
		e, name, err := w.read(l, r)
		switch {
		case err != nil && w.kind.Security:
			w.findings = []diag.Diagnostic{{
				Severity: diag.Error, Code: "SourceRejected", Object: w.kind.Name,
				Message: fmt.Sprintf("resource %d of the response cannot be used: %v", i, err),
				Fix:     "the last good state of all objects of this kind stays in force until the server sends another response",
			}}
			return nil, false, fmt.Errorf("resource %d of %s: %w", i, w.url, err)
		case err != nil:
			findings = append(findings, config.Unusable(w.kind.Name, fmt.Sprintf("resource %d of the response is left out: %v", i, err)))
		case next[name] != nil:
			findings = append(findings, diag.Diagnostic{
				Severity: diag.Error, Code: "DuplicateObject", Object: w.kind.Name + " " + name,
				Message: "the server sends the object twice: the first one is in force",
				Fix:     "let the other control plane send it once",
			})
		default:
			next[name] = e
		}
	}
	before, after := inForce(w.entries), inForce(next)
	for key, o := range after {
		if before[key] != o {
			changes = append(changes, kinds.Change{Key: key, Object: o})
		}
	}
	for key := range before {
		if after[key] == nil {
			changes = append(changes, kinds.Change{Key: key})
		}
	}
	emptied = !w.answered && len(next) == 0 && len(w.entries) > 0
	w.entries, w.findings = next, findings
	return changes, emptied, nil
}

// read decodes one resource and returns it with the versions in force. It fails if the resource does not name its
// object, or if a required object has no usable part.
func (w *watched) read(l limits.Limits, r *anypb.Any) (*entry, string, error) {
	m := &mcpv1alpha1.Resource{}
	if err := r.UnmarshalTo(m); err != nil {
		return nil, "", fmt.Errorf("it is no %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	name := m.GetMetadata().GetName()
	ns, short, ok := strings.Cut(name, "/")
	if !ok || ns == "" || short == "" || len(name) > l.NameLength {
		return nil, "", fmt.Errorf("its name is %.100q, not namespace/name", name)
	}
	e, old := &entry{digest: sha256.Sum256(r.GetValue())}, w.entries[name]
	if old != nil && old.digest == e.digest {
		return old, name, nil
	}
	meta := validation.Metadata{Namespace: ns, Name: short, Labels: m.GetMetadata().GetLabels(), Annotations: m.GetMetadata().GetAnnotations()}
	spec, err := w.open(l, m, len(r.GetValue()), &meta)
	var doc validation.Document
	if err != nil {
		doc = validation.Unreadable(l, w.kind, meta, spec)
		doc.Findings = []diag.Diagnostic{config.Unusable(w.kind.Name+" "+name, err.Error())}
	} else {
		doc = validation.Message(l, w.kind, meta, spec)
	}
	if old == nil {
		old = &entry{}
	}
	next, force := old.After(doc, func(o *kinds.Object) { o.Relayed = true })
	if next.Object == nil && w.kind.Security {
		return nil, "", fmt.Errorf("%s: %s", name, doc.Findings[0].Message)
	}
	if e.Versions, e.findings = next, doc.Findings; force.Why != "" {
		e.findings = append(e.findings, config.Unusable(w.kind.Name+" "+name, force.Why))
	}
	return e, name, nil
}

// inForce returns the objects in force by key.
func inForce(entries map[string]*entry) map[kinds.Key]*kinds.Object {
	out := make(map[kinds.Key]*kinds.Object, len(entries))
	for _, e := range entries {
		for _, o := range e.InForce() {
			out[o.Key] = o
		}
	}
	return out
}

// open returns the spec of a resource, and completes its metadata. The spec is nil if it cannot be decoded.
func (w *watched) open(l limits.Limits, m *mcpv1alpha1.Resource, size int, meta *validation.Metadata) (proto.Message, error) {
	if size > l.ConfigObject {
		return nil, fmt.Errorf("the object has %d bytes, more than %d", size, l.ConfigObject)
	}
	if m.GetBody() == nil {
		return nil, errors.New("the object has no body")
	}
	spec := w.kind.New().(proto.Message)
	want := spec.ProtoReflect().Descriptor().FullName()
	if got := m.GetBody().MessageName(); !sameMessage(string(want), string(got)) {
		return nil, fmt.Errorf("its body is of type %q, not %s", got, want)
	}
	if err := proto.Unmarshal(m.GetBody().GetValue(), spec); err != nil {
		return nil, fmt.Errorf("its body cannot be decoded: %w", err)
	}
	if t := m.GetMetadata().GetCreateTime(); t != nil {
		if err := t.CheckValid(); err != nil {
			return spec, fmt.Errorf("its time of creation is none: %w", err)
		}
		if created := t.AsTime(); !created.IsZero() {
			meta.Created = created
		}
	}
	return spec, nil
}

// sameMessage reports whether two names are versions of one message, which share their encoding:
// istio.networking.v1beta1.Gateway is istio.networking.v1alpha3.Gateway.
func sameMessage(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	if len(x) == 4 && len(y) == 4 {
		x[2], y[2] = "", ""
	}
	return slices.Equal(x, y)
}
