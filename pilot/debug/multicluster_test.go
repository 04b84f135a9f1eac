package debug

import (
	"strings"
	"testing"
	"time"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestMCSZ has what two clusters export and import, with istiod's keys.
func TestMCSZ(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Cluster: "Kubernetes", Mesh: mesh.Default()})
	local := &registry.Service{Host: "web.a.svc.cluster.local", Namespace: "a", Name: "web"}
	set := &registry.Service{Host: "web.a.svc.clusterset.local", Namespace: "a", Name: "web", Addresses: []string{"10.9.0.1"}}
	b.ApplyRegistry(registry.Changes{Services: map[registry.ServiceKey]*registry.Service{local.Key(): local, set.Key(): set}})
	object := func(k *kinds.Kind, cluster, name string, spec any) *kinds.Object {
		return &kinds.Object{Key: kinds.Key{Kind: k, Namespace: "a", Name: name, Cluster: cluster}, Spec: spec}
	}
	imported := &mcsv1alpha1.ServiceImport{Spec: mcsv1alpha1.ServiceImportSpec{IPs: []string{"10.9.0.2", "10.9.0.1"}}}
	w := &world{snapshot: b.Commit(time.Time{}), objects: []*kinds.Object{
		object(kinds.ServiceImport, "", "web", imported), object(kinds.ServiceExport, "", "web", &mcsv1alpha1.ServiceExport{}),
		object(kinds.ServiceExport, "east", "web", &mcsv1alpha1.ServiceExport{}), object(kinds.ServiceImport, "", "none", imported),
	}}
	for _, c := range []struct {
		of   clusterset.Options
		want string
	}{
		{clusterset.Options{}, `[]`},
		{clusterset.Options{Discovery: true, Hosts: true}, `[
			{"Cluster":"Kubernetes","Name":"none","Namespace":"a","Exported":false,"Imported":true,"ClusterSetVIP":"","Discoverability":null},
			{"Cluster":"Kubernetes","Name":"web","Namespace":"a","Exported":true,"Imported":true,"ClusterSetVIP":"10.9.0.1","Discoverability":
				{"web.a.svc.cluster.local":"AlwaysDiscoverable","web.a.svc.clusterset.local":"AlwaysDiscoverable"}},
			{"Cluster":"east","Name":"web","Namespace":"a","Exported":true,"Imported":false,"ClusterSetVIP":"","Discoverability":{}}]`},
		{clusterset.Options{Discovery: true, Hosts: true, ClusterLocal: true}, `[
			{"Cluster":"Kubernetes","Name":"none","Namespace":"a","Exported":false,"Imported":true,"ClusterSetVIP":"","Discoverability":null},
			{"Cluster":"Kubernetes","Name":"web","Namespace":"a","Exported":true,"Imported":true,"ClusterSetVIP":"10.9.0.1","Discoverability":
				{"web.a.svc.cluster.local":"DiscoverableFromSameCluster","web.a.svc.clusterset.local":"AlwaysDiscoverable"}},
			{"Cluster":"east","Name":"web","Namespace":"a","Exported":true,"Imported":false,"ClusterSetVIP":"","Discoverability":{}}]`},
	} {
		a := New(Options{
			World: w, Proxies: &proxies{}, Cluster: "Kubernetes", Domain: "cluster.local", MultiCluster: c.of, Limits: limits.Default(),
		})
		status, got := get(t, a, "/debug/mcsz", here)
		compact := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if status != 200 || compact(got) != compact(c.want) {
			t.Errorf("%+v: %d %s", c.of, status, got)
		}
	}
}
