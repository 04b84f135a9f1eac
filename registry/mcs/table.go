package mcs

import (
	"slices"
	"strings"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Name is the name of a Kubernetes Service, which is the same in all clusters.
type Name struct{ Namespace, Name string }

// Table holds what the clusters export and import.
type Table struct {
	o        clusterset.Options
	domain   string
	clusters map[string]*cluster // by ID, which is empty for the server's own; each has an object
}

type cluster struct {
	exports map[Name]struct{}
	imports map[Name][]string // addresses; empty for a ServiceImport without any
}

// New returns an empty Table for services of a DNS domain, or nil if the API is off. The methods of a nil Table answer
// as if no cluster had an object.
func New(o clusterset.Options, domain string) *Table {
	if !o.Discovery {
		return nil
	}
	return &Table{o, domain, map[string]*cluster{}}
}

// Apply applies changes and returns the names of the services that they concern.
func (t *Table) Apply(changes []kinds.Change) (concerned []Name) {
	if t == nil {
		return nil
	}
	for _, c := range changes {
		if c.Kind != kinds.ServiceExport && (c.Kind != kinds.ServiceImport || !t.o.Hosts) {
			continue
		}
		n := Name{c.Namespace, c.Name}
		at := t.clusters[c.Cluster]
		if at == nil {
			at = &cluster{map[Name]struct{}{}, map[Name][]string{}}
			t.clusters[c.Cluster] = at
		}
		switch {
		case c.Kind == kinds.ServiceExport && c.Object == nil:
			delete(at.exports, n)
		case c.Kind == kinds.ServiceExport:
			at.exports[n] = struct{}{}
		case c.Object == nil:
			delete(at.imports, n)
		default:
			at.imports[n] = clusterset.Addresses(c.Object.Spec.(*mcsv1alpha1.ServiceImport))
		}
		if len(at.exports)+len(at.imports) == 0 {
			delete(t.clusters, c.Cluster)
		}
		concerned = append(concerned, n)
	}
	return concerned
}

// Has reports whether a cluster has objects of the API.
func (t *Table) Has(cluster string) bool { return t != nil && t.clusters[cluster] != nil }

// Parse returns the name of the Kubernetes Service that a key is for, and whether the key's host is the one in all
// clusters. It returns false if there can be no such Service.
func (t *Table) Parse(k registry.ServiceKey) (n Name, set, ok bool) {
	if t == nil {
		return Name{}, false, false
	}
	if name, ok := strings.CutSuffix(k.Host, "."+k.Namespace+".svc."+t.domain); ok {
		return Name{k.Namespace, name}, false, true
	}
	if name, ok := strings.CutSuffix(k.Host, "."+k.Namespace+".svc."+clusterset.Domain); ok && t.o.Hosts {
		return Name{k.Namespace, name}, true, true
	}
	return Name{}, false, false
}

// Local returns the key of a Service in the cluster's own domain.
func (t *Table) Local(n Name) registry.ServiceKey {
	return registry.ServiceKey{Namespace: n.Namespace, Host: n.Name + "." + n.Namespace + ".svc." + t.domain}
}

// Set returns the key of a Service in all clusters. It returns false if there are no such services.
func (t *Table) Set(n Name) (registry.ServiceKey, bool) {
	return registry.ServiceKey{Namespace: n.Namespace, Host: clusterset.Host(n.Name, n.Namespace)}, t.o.Hosts
}

// Imports reports whether a cluster imports a service: its ServiceImport has an address.
func (t *Table) Imports(cluster string, n Name) bool {
	at := t.clusters[cluster]
	return at != nil && len(at.imports[n]) > 0
}

// Import returns an importing cluster's version of a service in all clusters, made from the Service, or nil if the
// Service has no address. own says whether the cluster itself has the Service. Otherwise no pod of the cluster serves
// it.
func (t *Table) Import(cluster string, n Name, service *registry.Service, own bool) *registry.Service {
	if service.Headless || service.Resolution == registry.Alias {
		return nil
	}
	s := *service
	s.Host, s.Addresses, s.Clusters = clusterset.Host(n.Name, n.Namespace), t.clusters[cluster].imports[n], nil
	if !own {
		s.Selector = nil
	}
	return &s
}

// Confine returns a cluster's endpoints of a service, of which proxies of other clusters may call the exported ones
// only. It does not modify the list. set says whether the host is the one in all clusters, for which the cluster must
// import the service too.
func (t *Table) Confine(cluster string, n Name, set bool, list []*registry.Endpoint) []*registry.Endpoint {
	if at := t.clusters[cluster]; at != nil && (set && len(at.imports[n]) > 0 || !set && !t.o.ClusterLocal) {
		if _, exported := at.exports[n]; exported {
			return list
		}
	}
	list = slices.Clone(list)
	for i, e := range list {
		confined := *e
		confined.SameCluster = true
		list[i] = &confined
	}
	return list
}
