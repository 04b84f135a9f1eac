package debug

import (
	"cmp"
	"maps"
	"net/url"
	"slices"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
)

// setService is what one cluster exports and imports of a service, with istiod's keys.
type setService struct {
	Cluster         string
	Name            string
	Namespace       string
	Exported        bool
	Imported        bool
	ClusterSetVIP   string
	Discoverability map[string]string // which proxies may call the cluster's endpoints, by host
}

// istiod's words for which proxies may call endpoints.
const (
	fromAnywhere    = "AlwaysDiscoverable"
	fromSameCluster = "DiscoverableFromSameCluster"
)

// mcsz lists what the clusters export and import.
func (a *API) mcsz(url.Values) (any, error) {
	s, of := a.o.World.Snapshot(), a.o.MultiCluster
	if s == nil || !of.Discovery {
		return []setService{}, nil
	}
	all := map[kinds.Key]*setService{}
	at := func(o *kinds.Object) *setService {
		k := o.Key
		k.Kind = kinds.Service
		if all[k] == nil {
			all[k] = &setService{Cluster: cmp.Or(k.Cluster, a.o.Cluster), Name: k.Name, Namespace: k.Namespace}
		}
		return all[k]
	}
	has := func(k kinds.Key, host string) *registry.Service {
		if service := s.Service(registry.ServiceKey{Namespace: k.Namespace, Host: host}); service != nil {
			return service.ClusterVersion(k.Cluster)
		}
		return nil
	}
	for _, o := range a.o.World.Objects() {
		set := clusterset.Host(o.Name, o.Namespace)
		switch {
		case o.Kind == kinds.ServiceExport:
			x := at(o)
			x.Exported, x.Discoverability = true, map[string]string{}
			if local := names.FQDN(o.Name, o.Namespace, a.o.Domain); has(o.Key, local) != nil {
				x.Discoverability[local] = fromAnywhere
				if of.ClusterLocal {
					x.Discoverability[local] = fromSameCluster
				}
			}
			if has(o.Key, set) != nil {
				x.Discoverability[set] = fromAnywhere
			}
		case o.Kind == kinds.ServiceImport && of.Hosts:
			x := at(o)
			x.Imported = true
			if addresses := clusterset.Addresses(o.Spec.(*mcsv1alpha1.ServiceImport)); has(o.Key, set) != nil {
				x.ClusterSetVIP = addresses[0]
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(x, y *setService) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	}), nil
}
