package analysis

import (
	corev1 "k8s.io/api/core/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// clusterSets reports ServiceExports and ServiceImports that have no effect.
func (a *analysis) clusterSets() {
	exports, imports := a.of(kinds.ServiceExport), a.of(kinds.ServiceImport)
	of := a.options.MultiCluster
	for _, o := range exports {
		if !of.Discovery {
			a.ignoredSet(o, clusterset.DiscoveryVariable)
		} else if len(a.services) > 0 {
			a.serviceExport(o)
		}
	}
	for _, o := range imports {
		switch {
		case !of.Discovery:
			a.ignoredSet(o, clusterset.DiscoveryVariable+"=true and "+clusterset.HostsVariable)
		case !of.Hosts:
			a.ignoredSet(o, clusterset.HostsVariable)
		default:
			a.serviceImport(o, o.Spec.(*mcsv1alpha1.ServiceImport))
		}
	}
}

func (a *analysis) ignoredSet(o *kinds.Object, variables string) {
	a.report(o, diag.Info, codeClusterSet, "", "set "+variables+"=true in the environment of the control plane",
		"it has no effect: the control plane does not use the Multi-Cluster Services API")
}

// serviceExport reports a ServiceExport whose own cluster has no Service that can be exported.
func (a *analysis) serviceExport(o *kinds.Object) {
	for _, s := range a.servicesNamed(o) {
		if s.Cluster == o.Cluster {
			if !clusterset.Exportable(s.Spec.(*corev1.Service)) {
				a.report(o, diag.Warning, codeClusterSet, "metadata.name", "name a Service with endpoints, or delete the ServiceExport",
					"Service %s is an ExternalName, which has no endpoints to export: it has no effect", o.Name)
			}
			return
		}
	}
	fix := "add the Service, or delete the ServiceExport"
	if near := a.nearest(o.Name, a.inside[o.Namespace]); near != "" {
		fix = diag.DidYouMean(near)
	}
	a.report(o, diag.Warning, codeClusterSet, "metadata.name", fix,
		"there is no Service %s in namespace %s of the cluster: it has no effect", o.Name, o.Namespace)
}

// serviceImport reports a ServiceImport that has no host.
func (a *analysis) serviceImport(o *kinds.Object, spec *mcsv1alpha1.ServiceImport) {
	host := clusterset.Host(o.Name, o.Namespace)
	if len(clusterset.Addresses(spec)) == 0 {
		if spec.Spec.Type != mcsv1alpha1.Headless {
			a.report(o, diag.Info, codeClusterSet, "spec.ips", "let an MCS controller write its addresses, or write them",
				"it has no address: there is no host %s in this cluster", host)
		}
		return
	}
	if len(a.services) == 0 {
		return
	}
	services := a.servicesNamed(o)
	if len(services) == 0 {
		a.report(o, diag.Warning, codeClusterSet, "metadata.name", "add the Service to a cluster, or delete the ServiceImport",
			"no cluster has a Service %s in namespace %s: there is no host %s", o.Name, o.Namespace, host)
		return
	}
	if _, made := a.importedFrom(o); !made {
		a.report(o, diag.Warning, codeClusterSet, "metadata.name", "give the Service a cluster IP, or remove spec.ips",
			"Service %s is headless or an ExternalName, which has no address in all clusters: there is no host %s", o.Name, host)
	}
}

// servicesNamed returns the Services of all clusters with the name of an object, the server's own first.
func (x *index) servicesNamed(o *kinds.Object) (list []*kinds.Object) {
	for _, h := range x.hosts[names.FQDN(o.Name, o.Namespace, x.domain)] {
		if h.object.Kind == kinds.Service {
			list = append(list, h.object)
		}
	}
	return list
}

// importedFrom returns the Service that the service of a ServiceImport is made of: the one of the same cluster, or else
// the first cluster's. It returns false if there is no such service.
func (x *index) importedFrom(o *kinds.Object) (from *host, ok bool) {
	for _, h := range x.hosts[names.FQDN(o.Name, o.Namespace, x.domain)] {
		switch {
		case h.object.Kind != kinds.Service:
		case h.object.Cluster == o.Cluster:
			return h, clusterset.Importable(h.object.Spec.(*corev1.Service))
		case from == nil || h.object.Cluster < from.object.Cluster:
			from = h
		}
	}
	return from, from != nil && clusterset.Importable(from.object.Spec.(*corev1.Service))
}

// addImport adds the host of a ServiceImport, with the ports of the Service that it is made of. Services are added
// before.
func (x *index) addImport(o *kinds.Object) {
	if !x.options.MultiCluster.Hosts || len(clusterset.Addresses(o.Spec.(*mcsv1alpha1.ServiceImport))) == 0 {
		return
	}
	name := clusterset.Host(o.Name, o.Namespace)
	if from, ok := x.importedFrom(o); ok && len(x.hosts[name]) == 0 {
		h := *from
		h.name = name
		x.hosts[name] = append(x.hosts[name], &h)
	}
}
