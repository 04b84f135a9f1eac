package analysis

import (
	"strconv"

	typev1beta1 "istio.io/api/type/v1beta1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
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
	exists, gateways := map[kinds.Key]bool{}, map[kinds.Key]*kinds.Object{}
	var known map[kinds.Key][]string // names by kind and namespace
	for _, o := range a.objects {
		p, ok := o.Spec.(targeting)
		if !ok || p.GetTargetRef() == nil && len(p.GetTargetRefs()) == 0 {
			continue
		}
		if known == nil {
			known = map[kinds.Key][]string{}
			for _, o := range a.objects {
				switch o.Kind {
				case kinds.Service, kinds.ServiceEntry, kinds.KubeGateway:
					in := kinds.Key{Kind: o.Kind, Namespace: o.Namespace}
					exists[kinds.Key{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}] = true
					known[in] = append(known[in], o.Name)
					if o.Kind == kinds.KubeGateway {
						gateways[kinds.Key{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}] = o
					}
				}
			}
		}
		judge := func(r *typev1beta1.PolicyTargetReference, field string) {
			key := kinds.Key{Kind: targetKind(r), Namespace: o.Namespace, Name: r.GetName()}
			if key.Kind == kinds.KubeGateway && gateways[key] != nil {
				if service := a.unlabelledGateway(gateways[key]); service != "" {
					a.report(o, diag.Warning, codeNoProxies, field+".name", "add the label "+names.LabelGateway+": "+key.Name+" to these Pods",
						"the Pods of Service %s, which serve the Gateway, have no label that names it: the policy applies to no proxy", service)
				}
			}
			if key.Kind == nil || exists[key] || key.Kind == kinds.Service && len(a.services) == 0 {
				return
			}
			fix := ""
			if meant := a.nearest(r.GetName(), known[kinds.Key{Kind: key.Kind, Namespace: o.Namespace}]); meant != "" {
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

// unlabelledGateway returns the Service that a Gateway names as its address, if the Service selects Pods and none has
// the label of the Gateway. Otherwise it returns "".
func (a *analysis) unlabelledGateway(o *kinds.Object) string {
	gateway, ok := o.Spec.(*gatewayv1.Gateway)
	if !ok {
		return ""
	}
	for _, address := range gateway.Spec.Addresses {
		for _, h := range a.hosts[names.FQDN(address.Value, o.Namespace, a.domain)] {
			service, ok := h.object.Spec.(*corev1.Service)
			if !ok || len(service.Spec.Selector) == 0 {
				continue
			}
			pods, labelled := 0, false
			for w := range a.selected(h.object.Namespace, service.Spec.Selector) {
				pods++
				labelled = labelled || w.labels[names.LabelGateway] == o.Name || w.labels[names.LabelOldGateway] == o.Name
			}
			if pods > 0 && !labelled {
				return h.object.Namespace + "/" + h.object.Name
			}
		}
	}
	return ""
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
