package analysis

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"istio.io/api/annotation"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/settings"
)

// annotations reports Istio's annotations and labels without effect: unknown names of annotations, names that do not
// apply to the kind of object, and settings that have no effect here.
func (a *analysis) annotations() {
	known := map[string]*annotation.Instance{}
	for _, i := range append(annotation.AllResourceAnnotations(), newer()...) {
		known[i.Name] = i
	}
	all := slices.Collect(maps.Keys(known))
	for _, o := range a.objects {
		for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
			if ofIstio(name) && !(name == names.LabelDataplane && o.Labels[name] == "none") {
				a.idle(o, "label", name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(o.Annotations)) {
			if !ofIstio(name) {
				continue
			}
			field, i := "metadata.annotations["+strconv.Quote(name)+"]", known[name]
			switch {
			case name == kinds.AnnotationIgnorePolicy: // missing from Istio's own list
				if o.Kind != kinds.BackendTLSPolicy && o.Kind != kinds.XBackendTrafficPolicy {
					a.report(o, diag.Warning, codeMisplaced, field, "move it to a BackendTLSPolicy or an XBackendTrafficPolicy",
						"the annotation %s has no effect on a %s", name, o.Kind.Name)
				}
			case i == nil:
				fix := "remove it"
				if near := a.nearest(name, all); near != "" {
					fix = diag.DidYouMean(near)
				}
				a.report(o, diag.Warning, codeUnknownAnnotation, field, fix, "no annotation has the name %s: it has no effect", name)
			case a.idle(o, "annotation", name):
			case i.Deprecated:
				fix := "remove it"
				if name == names.LabelInject {
					fix = "use the label of that name"
				}
				a.report(o, diag.Warning, codeDeprecatedNote, field, fix, "the annotation %s is deprecated", name)
			case !belongs(i, o.Kind):
				a.report(o, diag.Warning, codeMisplaced, field, "move it to "+kindsOf(i), "the annotation %s has no effect on a %s", name, o.Kind.Name)
			}
		}
	}
}

// idle reports an annotation or a label, as of says, if it has no effect here.
func (a *analysis) idle(o *kinds.Object, of, name string) bool {
	s := settings.Find(settings.Metadata(), of+":"+name)
	if s == nil || s.Effect != settings.Without {
		return false
	}
	a.report(o, diag.Warning, codeNoEffect, "metadata."+of+"s["+strconv.Quote(name)+"]", "remove it",
		"the %s %s has no effect here: %s", of, name, s.Why)
	return true
}

// newer returns the annotations of Istio 1.31 that are missing from its own list.
func newer() []*annotation.Instance {
	return []*annotation.Instance{
		{Name: names.AnnotationScrapeTargets, Resources: []annotation.ResourceTypes{annotation.Pod}},
		{Name: names.AnnotationSecurePort, Resources: []annotation.ResourceTypes{annotation.Pod}},
	}
}

// ofIstio reports whether Istio would define an annotation of that name. Annotations of other operators, and
// annotations that this project derives from a status, are not checked.
func ofIstio(name string) bool {
	domain, _, qualified := strings.Cut(name, "/")
	return qualified && (domain == "istio.io" || strings.HasSuffix(domain, ".istio.io")) && !strings.Contains(domain, "operator.istio.io") &&
		name != kinds.AnnotationHealthy && name != kinds.AnnotationAddresses
}

// belongs reports whether an annotation has an effect on objects of a kind.
func belongs(i *annotation.Instance, kind *kinds.Kind) bool {
	return slices.ContainsFunc(i.Resources, func(r annotation.ResourceTypes) bool {
		return r == annotation.Any || r == annotation.Unknown || r.String() == kind.Name
	})
}

func kindsOf(i *annotation.Instance) string {
	list := lists.Map(i.Resources, func(r annotation.ResourceTypes) string { return "a " + r.String() })
	return strings.Join(list, " or ")
}
