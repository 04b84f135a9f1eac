package ingest

import (
	"fmt"

	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// Workloads answers which pods and service accounts run in the clusters of the mesh, by cluster ID. It is safe for
// concurrent use.
type Workloads struct {
	World   *World
	Sources interface { // *Sources
		Clusters() []multicluster.Cluster
		Current(cluster string, k *kinds.Kind) bool
	}
}

// inKeys returns the name of a cluster in keys, given its ID.
func (w Workloads) inKeys(cluster string) string {
	if cluster == w.World.o.ClusterID {
		return ""
	}
	return cluster
}

// Pod returns a pod, or the zero value if it does not exist. It reports false if the pod is not known.
func (w Workloads) Pod(cluster, namespace, name string) (identity.Pod, bool) {
	if w.World.Snapshot() == nil || w.World.o.NoServices {
		return identity.Pod{}, false
	}
	o := w.World.Object(kinds.Key{Kind: kinds.Pod, Cluster: w.inKeys(cluster), Namespace: namespace, Name: name})
	if o == nil {
		return identity.Pod{}, true
	}
	f := kube.FactsOfPod(o)
	return identity.Pod{UID: o.UID, ServiceAccount: f.ServiceAccount, Node: f.NodeName}, o.UID != ""
}

// CurrentPods reports whether the known pods of a cluster are up to date.
func (w Workloads) CurrentPods(cluster string) bool {
	return !w.World.o.NoServices && w.Sources.Current(cluster, kinds.Pod)
}

// RunsOn reports whether a pod of the service account runs on the node. The result is false unless
// Options.CountNodeAccounts is set.
func (w Workloads) RunsOn(cluster, node, namespace, account string) bool {
	return w.World.RunsOn(w.inKeys(cluster), node, namespace, account)
}

// HasAccount reports whether any object, in any cluster, can run as the service account. The result is true if Pods are
// not read. It fails if objects are not up to date, and the error names their kind and cluster.
func (w Workloads) HasAccount(namespace, account string) (bool, error) {
	o := w.World.o
	if o.Client == nil || o.NoServices || w.World.HasAccount(namespace, account) {
		return true, nil
	}
	for _, c := range w.Sources.Clusters() {
		for _, k := range []*kinds.Kind{kinds.Pod, kinds.WorkloadEntry, kinds.WorkloadGroup} {
			if !w.Sources.Current(c.ID, k) {
				return false, fmt.Errorf("it is not known which objects of kind %s cluster %s has now", k.Name, c.ID)
			}
		}
	}
	return false, nil
}

// ProxyConfigs returns the ProxyConfigs that apply to a pod, as Snapshot.ProxyConfigs does. Before the first Snapshot
// there are none.
func (w *World) ProxyConfigs(
	namespace string, labels map[string]string,
) (whole []*networkingv1beta1.ProxyConfig, selecting *networkingv1beta1.ProxyConfig) {
	if s := w.Snapshot(); s != nil {
		return s.ProxyConfigs(namespace, labels)
	}
	return nil, nil
}

// Mesh returns the mesh configuration in force, or nil before the first Snapshot.
func (w *World) Mesh() *mesh.Config {
	if s := w.Snapshot(); s != nil {
		return s.Mesh
	}
	return nil
}
