package analysis

import (
	"strings"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// namespaceNames reports names of namespaces that do not exist. It does nothing if no Namespace is known.
func (a *analysis) namespaceNames() {
	there := map[string]bool{a.root: true}
	var list []string
	for _, o := range a.of(kinds.Namespace) {
		there[o.Name] = true
		list = append(list, o.Name)
	}
	if len(list) == 0 {
		return
	}
	judge := func(o *kinds.Object, field, name, effect string) {
		if strings.ContainsAny(name, "*.~/") || name == "" || there[name] {
			return
		}
		fix := "create it, or name another"
		if near := a.nearest(name, list); near != "" {
			fix = diag.DidYouMean(near)
		}
		a.report(o, diag.Warning, codeReference, field, fix, "there is no namespace %s: %s", name, effect)
	}
	for _, kind := range []*kinds.Kind{kinds.VirtualService, kinds.DestinationRule, kinds.ServiceEntry} {
		for _, o := range a.of(kind) {
			for i, name := range o.Spec.(interface{ GetExportTo() []string }).GetExportTo() {
				judge(o, indexed("spec.exportTo", i), name, "no proxy there sees the object")
			}
		}
	}
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		for i, r := range o.Spec.(*securityv1.AuthorizationPolicy).Rules {
			for j, from := range r.From {
				path := indexed(indexed("spec.rules", i)+".from", j) + ".source"
				for k, name := range from.GetSource().GetNamespaces() {
					judge(o, indexed(path+".namespaces", k), name, "it matches no request")
				}
				for k, name := range from.GetSource().GetNotNamespaces() {
					judge(o, indexed(path+".notNamespaces", k), name, "it excludes no request")
				}
			}
		}
	}
}
