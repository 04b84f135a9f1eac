package validation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// object decodes one object. f has the faults of the text that are known already.
func (d *decoder) object(n *node, f *findings) {
	kind, skip := kindOf(n, f)
	if skip {
		if t, ok := template(n, d.namespace); ok {
			d.templates = append(d.templates, t)
		}
		group, _, _ := strings.Cut(n.str("apiVersion"), "/")
		if instead := succeeded(group); instead != "" {
			f.warnAt(n.get("apiVersion").pos, "apiVersion", "UnknownKind", instead,
				"no control plane reads %s of %s since Istio 1.6: the object has no effect", n.str("kind"), group)
			d.documents = append(d.documents, Document{Findings: f.finish(""), Line: n.line, Column: n.col})
		}
		return
	}
	if kind == nil {
		d.documents = append(d.documents, Document{Vital: d.mayRestrict(n), Findings: f.finish(""), Line: n.line, Column: n.col})
		return
	}
	d.documents = append(d.documents, d.decode(kind, n, f))
}

// decode decodes an object of a kind into a document.
func (d *decoder) decode(kind *kinds.Kind, n *node, f *findings) Document {
	text := onlyErrors(f.list)
	o := d.try(kind, n, f)
	doc := Document{Key: o.Key, Vital: kind.Security, Line: n.line, Column: n.col}
	if !f.failed() {
		doc.Object = o
	}
	name := o.String()
	if o.Name == "" {
		name = kind.Name
	}
	if !d.identified(n, o, f.list) {
		doc.Key.Name = ""
		doc.Vital = Restricts(kind)
	}
	if doc.Object == nil && doc.Key.Name != "" && (kind.Istio || len(units(kind)) > 0) && !d.admission() {
		known := onlyErrors(f.list)
		if d.review { // an error in a review may be a warning for an object in force
			known = text
		}
		d.salvage(&doc, n, known)
	}
	doc.Findings = f.finish(name)
	if d.stored {
		withoutPosition(doc.Findings)
	}
	return doc
}

// identified reports whether a document names its object. A name with characters that no API server accepts does too. A
// name or namespace that is missing, misspelt or in the wrong place does not.
func (d *decoder) identified(n *node, o *kinds.Object, list []diag.Diagnostic) bool {
	meta := n.get("metadata")
	if meta == nil || o.Name == "" {
		return false
	}
	misplaced := !d.stored && !o.Kind.Cluster && meta.get("namespace") == nil &&
		(n.get("namespace") != nil || n.mistypes("namespace") || meta.mistypes("namespace"))
	return !misplaced && !slices.ContainsFunc(list, func(d diag.Diagnostic) bool {
		switch d.Field {
		case "metadata", "metadata.namespace":
			return d.Severity == diag.Error
		case "metadata.name":
			return d.Severity == diag.Error && (d.Code != badValue || !writable.MatchString(o.Name))
		}
		return false
	})
}

// writable matches the names that an object in force can have although no API server accepts them.
var writable = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)

// salvage sets Kept, Cut, Closed and read of the document of an object with errors.
func (d *decoder) salvage(doc *Document, n *node, known []diag.Diagnostic) {
	inForce := *d
	inForce.review, inForce.salvages = false, true
	whole := salvage{d: &inForce, kind: doc.Key.Kind, root: n.clone()}
	doc.Kept = whole.run(known)
	doc.Cut, doc.Closed = whole.cut, whole.replaced
	if doc.Kept == nil && mayClose(doc.Key.Kind, n) {
		doc.Vital = true
	}
	doc.read = sync.OnceValue(func() *kinds.Object {
		bare := salvage{d: &inForce, kind: doc.Key.Kind, root: n.clone(), bare: true}
		return bare.run(known)
	})
}

// mayClose reports whether an object may deny something that is allowed without the object. DestinationRules and
// VirtualServices do so by some fields only.
func mayClose(k *kinds.Kind, n *node) bool {
	switch k {
	case kinds.DestinationRule:
		return n.mentions("tls")
	case kinds.VirtualService:
		return n.answersRequests()
	}
	return Restricts(k)
}

// try decodes and checks an object. The object can be used if f has no error afterwards.
func (d *decoder) try(kind *kinds.Kind, n *node, f *findings) *kinds.Object {
	o := &kinds.Object{Key: kinds.Key{Kind: kind}}
	if d.stored {
		n.get("metadata").slim()
	} else {
		o.Position = fmt.Sprintf("%s:%d:%d", d.file, n.line, n.col)
	}
	if m := n.get("metadata"); m != nil {
		m.remove("managedFields") // large, and not used here
		m.get("annotations").forget(corev1.LastAppliedConfigAnnotation)
	}
	if kind.Istio {
		d.istio(n, f, o)
	} else {
		d.kubernetes(n, f, o)
	}
	if d.stored {
		d.storedKey(n, f, o)
	} else {
		d.key(n, f, o)
	}
	judged := &findings{file: f.file}
	d.check(o, n, judged)
	f.addUnrelated(judged.list)
	d.definition(kind, n, f)
	return o
}

func (n *node) forget(name string) {
	if n != nil {
		n.remove(name)
	}
}

// kindOf returns the document's kind, or nil. skip reports whether the document is of a kind that is not read here.
func kindOf(n *node, f *findings) (kind *kinds.Kind, skip bool) {
	if n.shape != mapping {
		f.errorAt(n.pos, "", "WrongType", "begin the document with apiVersion and kind", "a document holds one object, found %s", n.describe())
		return nil, false
	}
	apiVersion, name := n.str("apiVersion"), n.str("kind")
	missing := false
	for _, field := range []string{"apiVersion", "kind"} {
		if n.str(field) == "" {
			missing = true
			p := n.pos
			if v := n.get(field); v != nil {
				p = v.pos
			}
			f.errorAt(p, field, "MissingField", unknownFieldFix(n, field), "the document does not say its %s", field)
		}
	}
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	if missing {
		return nil, false
	}
	if kind = kinds.Find(apiVersion, name); kind != nil {
		return kind, false
	}
	var names, all, groups, versions []string
	known := false
	for _, k := range kinds.All() {
		all, groups = append(all, k.Name), append(groups, k.Group)
		if k.Group == group {
			known = true
			names = append(names, k.Name)
			if k.Name == name {
				versions = k.Versions
			}
		}
	}
	switch {
	case !known && strings.HasSuffix(group, ".x-k8s.io"):
		return nil, true
	case versions != nil:
		f.errorAt(n.get("apiVersion").pos, "apiVersion", "UnknownVersion",
			"use one of "+strings.Join(versions, ", "), "%s has no version %q: the object is not used", name, version)
		return nil, false
	}
	meant := name
	if !known {
		meant = diag.Nearest(name, all)
	}
	if of := meantKind(group, version, meant); of != nil {
		if !slices.Contains(of.Versions, version) {
			version = of.Versions[0]
		}
		f.errorAt(n.get("apiVersion").pos, "apiVersion", "UnknownKind", "did you mean "+of.APIVersion(version)+"?",
			"%s of %s is no kind that is known: the object is not used", name, apiVersion)
		return nil, false
	}
	if near := diag.Nearest(group, groups); !known && near != "" {
		f.errorAt(n.get("apiVersion").pos, "apiVersion", "UnknownKind",
			diag.DidYouMean(near), "unknown API group %q: the object is not used", group)
		return nil, false
	}
	// Groups with kinds that are not read here.
	shared := group == "" && version == "v1" || group == kinds.Ingress.Group || group == kinds.XBackendTrafficPolicy.Group
	if !known || shared && diag.Nearest(strings.TrimSuffix(name, "List"), names) == "" {
		return nil, true // a kind that is not read here
	}
	f.errorAt(n.get("kind").pos, "kind", "UnknownKind", diag.UnknownName(name, names),
		"unknown kind %q of %s: the object is not used", name, apiVersion)
	return nil, false
}

// succeeded returns what to write instead of a kind of Istio's former groups, or "".
func succeeded(group string) string {
	switch group {
	case "authentication.istio.io":
		return "write PeerAuthentication and RequestAuthentication of security.istio.io"
	case "rbac.istio.io":
		return "write AuthorizationPolicy of security.istio.io"
	case "config.istio.io":
		return "write Telemetry of telemetry.istio.io, or EnvoyFilter"
	}
	return ""
}

// meantKind returns the kind with a name whose group the user most likely meant, or nil. The written group is almost
// the same, or is Istio's, or is missing, or is the group of another of our kinds.
func meantKind(group, version, name string) *kinds.Kind {
	const most = 3 // different letters; groups are long
	var best *kinds.Kind
	least := most + 1
	for _, k := range kinds.All() {
		if k.Name != name || k.Group == "" && group != "" {
			continue
		}
		d := diag.Distance(group, k.Group)
		if k.Group != "" && d > most {
			ours := slices.ContainsFunc(kinds.All(), func(k *kinds.Kind) bool { return k.Group == group })
			if ours || strings.Contains(group, "istio") || version == k.Group {
				d = most
			}
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

func unknownFieldFix(n *node, field string) string {
	var names []string
	for _, f := range n.fields {
		names = append(names, f.name)
	}
	if typed := diag.Nearest(field, names); typed != "" && typed != field {
		return fmt.Sprintf("write %s instead of %s", field, typed)
	}
	return "add " + field
}

// istio decodes an object whose spec is a proto message.
func (d *decoder) istio(n *node, f *findings, o *kinds.Object) {
	spec := o.Kind.New().(proto.Message)
	o.Spec = spec
	doubt := false
	for i := range n.fields {
		field := &n.fields[i]
		switch field.name {
		case "apiVersion", "kind", "status":
		case "metadata":
			switch {
			case !d.stored:
				goSchema{findings: f}.value(field.value, reflect.TypeFor[metav1.ObjectMeta](), "metadata")
			case d.review:
				doubt = field.value.slimMeta(f) || doubt
			}
		case "spec":
			if field.value.shape == null {
				field.value.shape = mapping
			}
			s := protoSchema{findings: f, strict: !d.stored, secure: o.Kind.Security, admission: d.admission(), doubt: &doubt}
			s.lenient = d.admission() || d.stored && !s.secure
			s.message(field.value, spec.ProtoReflect().Descriptor(), "spec")
		default:
			if d.stored && !d.review { // the annotation is not part of the object's meaning
				continue
			}
			fix := diag.UnknownName(field.name, []string{"metadata", "spec", "status"})
			if protoField(spec, field.name) {
				fix = "indent it under spec"
			}
			f.errorAt(field.pos, field.name, "UnknownField", fix, "unknown field %q", field.name)
		}
	}
	if f.failed() || d.admission() && !doubt { // a review needs no message
		return
	}
	if s := n.get("spec"); s != nil {
		var marks []mark
		text := s.appendJSON(nil, &marks)
		if err := protojson.Unmarshal(text, spec); err != nil {
			offset, why := protoMessage(err)
			f.errorAt(find(marks, offset), "spec", "WrongType", "", "%s", why)
		}
	}
	var meta metav1.ObjectMeta
	if m := n.get("metadata"); m != nil {
		d.strict(m, f, "metadata", &meta)
	}
	describe(o, &meta)
	switch o.Kind {
	case kinds.WorkloadEntry:
		health(n, o)
	case kinds.ServiceEntry:
		addresses(n, o)
	}
}

// kubernetes decodes an object of a kind whose Spec is the whole object.
func (d *decoder) kubernetes(n *node, f *findings, o *kinds.Object) {
	var status *node
	// The status is written by controllers, and its faults are not reported.
	if o.Kind.IsGatewayAPI() || o.Kind.IsMultiCluster() {
		status = n.get("status")
		n.remove("status")
	}
	o.Spec = o.Kind.New()
	goSchema{findings: f, lenient: d.stored && !o.Kind.Security}.value(n, reflect.TypeOf(o.Spec), "")
	if f.failed() {
		return
	}
	d.strict(n, f, "", o.Spec)
	if field := reflect.ValueOf(o.Spec).Elem().FieldByName("Status"); status != nil && field.IsValid() {
		into := reflect.New(field.Type())
		if json.Unmarshal(status.appendJSON(nil, new([]mark)), into.Interface()) == nil {
			field.Set(into.Elem())
		}
	}
	meta := o.Spec.(metav1.ObjectMetaAccessor).GetObjectMeta()
	if o.Kind.Cluster {
		meta.SetNamespace("")
	} else if meta.GetNamespace() == "" {
		meta.SetNamespace(cmp.Or(d.namespace, metav1.NamespaceDefault))
	}
	// TypeMeta is empty, as in objects of an informer: the type determines the kind, whatever version the document has.
	reflect.ValueOf(o.Spec).Elem().FieldByName("TypeMeta").SetZero()
	describe(o, meta.(*metav1.ObjectMeta))
}

// strict decodes a tree by the rules of the API server. The schema has been checked, so an error here is one of the
// rare ones that the schema does not cover.
func (d *decoder) strict(n *node, f *findings, path string, into any) {
	var marks []mark
	text := n.appendJSON(nil, &marks)
	unknown, err := kjson.UnmarshalStrict(text, into)
	if err == nil && len(unknown) > 0 {
		err = unknown[0]
	}
	if err != nil {
		p := n.pos
		if bad, ok := err.(*json.UnmarshalTypeError); ok {
			p = find(marks, int(bad.Offset)-1)
		}
		f.errorAt(p, path, "WrongType", "", "%v", err)
	}
}

// protoMessage splits an error of protojson into the offset in the text and the reason.
func protoMessage(err error) (offset int, why string) {
	why = strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto:")
	why = strings.TrimSpace(why)
	var line, column int
	if _, scanErr := fmt.Sscanf(strings.TrimPrefix(why, "syntax error "), "(line %d:%d):", &line, &column); scanErr == nil {
		_, why, _ = strings.Cut(why, "): ")
	}
	return max(0, column-1), why
}

func protoField(m proto.Message, name string) bool {
	return m.ProtoReflect().Descriptor().Fields().ByJSONName(name) != nil
}

// hasField reports whether the spec of a kind has a field of that name.
func hasField(kind *kinds.Kind, name string) bool {
	if kind.Istio {
		return protoField(kind.New().(proto.Message), name)
	}
	fields := map[string]reflect.Type{}
	if spec, ok := reflect.TypeOf(kind.New()).Elem().FieldByName("Spec"); ok {
		jsonFields(spec.Type, fields)
	}
	return fields[name] != nil
}
