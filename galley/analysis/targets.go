package analysis

import (
	"strconv"

	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// targeting is a policy that may name its targets.
type targeting interface {
	GetTargetRef() *typev1beta1.PolicyTargetReference
	GetTargetRefs() []*typev1beta1.PolicyTargetReference
}

// targetsOf returns the targets of a policy.
func targetsOf(p targeting) []*typev1beta1.PolicyTargetReference {
	if p.GetTargetRef() != nil {
		return append([]*typev1beta1.PolicyTargetReference{p.GetTargetRef()}, p.GetTargetRefs()...)
	}
	return p.GetTargetRefs()
}

// targets reports policies whose targets do not exist.
func (a *analysis) targets() {
	exists := map[kinds.Key]bool{}
	var names map[kinds.Key][]string // by kind and namespace
	for _, o := range a.objects {
		p, ok := o.Spec.(targeting)
		if !ok || p.GetTargetRef() == nil && len(p.GetTargetRefs()) == 0 {
			continue
		}
		if names == nil {
			names = map[kinds.Key][]string{}
			for _, o := range a.objects {
				switch o.Kind {
				case kinds.Service, kinds.ServiceEntry, kinds.KubeGateway:
					in := kinds.Key{Kind: o.Kind, Namespace: o.Namespace}
					exists[kinds.Key{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}] = true
					names[in] = append(names[in], o.Name)
				}
			}
		}
		judge := func(r *typev1beta1.PolicyTargetReference, field string) {
			key := kinds.Key{Kind: targetKind(r), Namespace: o.Namespace, Name: r.GetName()}
			if key.Kind == nil || exists[key] || key.Kind == kinds.Service && len(a.services) == 0 {
				return
			}
			fix := ""
			if meant := a.nearest(r.GetName(), names[kinds.Key{Kind: key.Kind, Namespace: o.Namespace}]); meant != "" {
				fix = diag.DidYouMean(meant)
			}
			a.report(o, diag.Warning, codeReference, field+".name", fix,
				"there is no %s %s in namespace %s: the policy does not apply to it", r.GetKind(), r.GetName(), o.Namespace)
		}
		judge(p.GetTargetRef(), "spec.targetRef")
		for i, r := range p.GetTargetRefs() {
			judge(r, "spec.targetRefs["+strconv.Itoa(i)+"]")
		}
	}
}

// targetKind returns the kind of a target. It returns nil for kinds that are not checked, such as cluster-wide classes.
func targetKind(r *typev1beta1.PolicyTargetReference) *kinds.Kind {
	switch r.GetKind() {
	case "Service":
		return kinds.Service
	case "ServiceEntry":
		return kinds.ServiceEntry
	case "Gateway":
		return kinds.KubeGateway
	}
	return nil
}
