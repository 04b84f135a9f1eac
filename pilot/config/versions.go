package config

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// Versions are the versions of one object that a source keeps. Each may be nil.
type Versions struct {
	Good   *kinds.Object // the last version without an error
	Object *kinds.Object // the object in force
	Beside *kinds.Object // last good version, if it is in force in addition to Object
}

// After returns the versions after a document was read, and the text for its findings. stamp sets fields that the
// source knows. An object in force that equals the previous one keeps its pointer.
func (v Versions) After(d validation.Document, stamp func(*kinds.Object)) (Versions, validation.InForce) {
	force := d.InForce(v.Good)
	partial := force.Why != "" || slices.ContainsFunc(d.Findings, func(f diag.Diagnostic) bool { return f.Code == "UnknownField" })
	mark := func(o *kinds.Object) {
		o.Partial = partial
		stamp(o)
	}
	next := Versions{Good: v.Good, Object: stamped(force.Object, v.Object, mark), Beside: stamped(force.Beside, v.Beside, mark)}
	if d.Object != nil {
		next.Good = next.Object
	}
	return next, force
}

func stamped(o, old *kinds.Object, stamp func(*kinds.Object)) *kinds.Object {
	if o == nil || o == old {
		return o
	}
	out := *o
	stamp(&out)
	if old != nil && old.Generation == out.Generation && Equal(old, &out) {
		return old
	}
	return &out
}

// InForce returns the objects in force: none, one or two.
func (v Versions) InForce() []*kinds.Object {
	switch {
	case v.Object == nil:
		return nil
	case v.Beside == nil:
		return []*kinds.Object{v.Object}
	}
	return []*kinds.Object{v.Object, v.Beside}
}

// Unusable returns the finding about an object that is not in force as written.
func Unusable(object, why string) diag.Diagnostic {
	return diag.Diagnostic{Severity: diag.Error, Code: unusable, Object: object, Message: why}
}

const unusable = "Unusable"

// IsUnusable reports whether a finding is one of Unusable.
func IsUnusable(d diag.Diagnostic) bool { return d.Code == unusable }

// BreaksFile reports whether a finding says that the whole file of an object is not used. Then the object is as the
// last good content of the file has it. The object may be nil. BreaksFile returns false for a Secret, because its
// content is its version.
func BreaksFile(d diag.Diagnostic, o *kinds.Object) bool {
	if o == nil || o.Kind == kinds.Secret || d.Severity != diag.Error || d.File == "" || d.Object != "" || d.Field != "" {
		return false
	}
	at, inFile := strings.CutPrefix(o.Position, d.File)
	return inFile && strings.HasPrefix(at, ":") && slices.Contains([]string{"Syntax", "Limit", "Unreadable"}, d.Code)
}
