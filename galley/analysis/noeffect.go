package analysis

import (
	"maps"
	"slices"
	"strings"

	securityv1 "istio.io/api/security/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// noEffect reports objects in places where they have no effect: objects of a namespace with almost the name of the root
// namespace, PeerAuthentications of the root namespace with a selector, and mesh configuration in other ConfigMaps.
func (a *analysis) noEffect() {
	var policies, maps []*kinds.Object
	lives := map[string]bool{} // namespaces with services or workloads
	for _, o := range a.objects {
		switch o.Kind {
		case kinds.Service, kinds.ServiceEntry, kinds.Pod, kinds.WorkloadEntry, kinds.WorkloadGroup, kinds.EndpointSlice:
			lives[o.Namespace] = true
		case kinds.ConfigMap:
			maps = append(maps, o)
		default:
			if o.Kind.Istio {
				policies = append(policies, o)
			}
		}
	}
	near := map[string]bool{}
	for _, o := range policies {
		ns := o.Namespace
		if p, ok := o.Spec.(*securityv1.PeerAuthentication); ok && ns == a.root && len(p.GetSelector().GetMatchLabels()) > 0 {
			a.report(o, diag.Warning, codeSelector, "spec.selector", "remove the selector, or write the policy into the namespace of the workloads",
				"in the root namespace a PeerAuthentication with a selector has no effect, there and elsewhere")
		}
		if _, known := near[ns]; !known {
			near[ns] = ns != a.root && !lives[ns] && diag.Nearest(ns, []string{a.root}) != ""
		}
		if near[ns] {
			a.report(o, diag.Warning, codeNamespace, "metadata.namespace", diag.DidYouMean(a.root),
				"nothing else is in namespace %s, and it is not the root namespace: the object has no effect", ns)
		}
	}
	for _, o := range maps {
		a.configMap(o)
	}
}

// configMap checks a ConfigMap that holds the mesh configuration or resembles it.
func (a *analysis) configMap(o *kinds.Object) {
	const meshKey, networksKey = "mesh", "meshNetworks"
	cm, whole := o.Spec.(*corev1.ConfigMap)
	if !whole || len(a.options.MeshConfig) == 0 {
		return
	}
	if slices.Contains(a.options.MeshConfig, o.Key) {
		for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
			if key == meshKey || key == networksKey {
				continue
			}
			if meant := diag.Nearest(key, []string{meshKey, networksKey}); meant != "" && cm.Data[meant] == "" {
				a.report(o, diag.Warning, codeMesh, "data."+key, diag.DidYouMean(meant), "the key %q of the mesh configuration has no effect", key)
			}
		}
		return
	}
	read := a.options.MeshConfig[len(a.options.MeshConfig)-1]
	// A ConfigMap of another revision belongs to another control plane.
	revision := o.Namespace == read.Namespace && len(o.Name) > len("istio-") && o.Name[:len("istio-")] == "istio-"
	byFlag := strings.HasPrefix(o.Name, "--") // the name is a flag, such as --meshConfig
	if _, holds := cm.Data[meshKey]; holds && !revision && !byFlag {
		a.report(o, diag.Warning, codeMesh, "metadata", "name it "+read.Name+" in namespace "+read.Namespace,
			"it looks like the mesh configuration but has no effect: the server reads %s", read)
	}
}
