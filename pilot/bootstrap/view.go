package bootstrap

import (
	"cmp"
	"fmt"
	"iter"
	"net/url"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// view is the interface of the server for streams and pages. It is an xds.World, a ui.World, a debug.World and a
// debug.Server.
type view struct {
	*ingest.World
	s       *Server
	secrets *ingest.SecretDemand // nil without a cluster
}

// Findings returns the findings about objects and connected proxies.
func (v view) Findings() []diag.Diagnostic { return v.s.allFindings() }

// SingleFindings returns the findings about single objects.
func (v view) SingleFindings() []diag.Diagnostic { return v.s.findings() }

// ObjectFindings returns the findings about objects, their references and their effect on proxies.
func (v view) ObjectFindings() []diag.Diagnostic { return v.s.objectFindings() }

// Templates returns the injection templates by name.
func (v view) Templates() map[string]string { return v.s.templates() }

// Clusters returns the clusters that the server reads.
func (v view) Clusters() any { return v.s.from.Clusters() }

// Why traces a request through the configuration of proxies.
func (v view) Why(query url.Values) (any, error) {
	way, err := inspect.Running{Options: v.s.o.Options, World: v.World, Translator: v.s.translator, Discovery: v.s.discovery,
		Pushes: v.s.pushes, Findings: v.s.from.Findings()}.Why(query)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", debug.ErrBadQuery, err)
	}
	return way, nil
}

// WorkloadKnown reports whether a snapshot has the workload of a proxy. It returns true for proxies whose workload no
// API server and no registration can add. A server that does not read the services of its own cluster still reads the
// ones of remote clusters.
func (v view) WorkloadKnown(snap *snapshot.Snapshot, p *node.Proxy) bool {
	o := &v.s.o
	remote := p.Cluster != "" && p.Cluster != o.ClusterID
	late := o.Client != nil && (remote || !o.NoServices) || o.Kubeconfigs != "" && remote || !o.NoRegistration && p.RegisterGroup != ""
	return !late || cohort.Workload(snap, p) != nil
}

// Workload returns the workload of a proxy in a snapshot, or nil.
func (view) Workload(snap *snapshot.Snapshot, p *node.Proxy) *registry.Workload {
	return cohort.Workload(snap, p)
}

// Running yields the Pods of the server's own cluster that run a proxy of this revision. It leaves out a Pod whose
// application uses xDS itself, because such an application may never connect.
func (v view) Running(snap *snapshot.Snapshot) iter.Seq[*registry.Workload] {
	revision := cmp.Or(v.s.o.Revision, "default")
	return func(yield func(*registry.Workload) bool) {
		if !v.s.o.member() {
			return // it cannot ask other instances for their proxies
		}
		for _, o := range v.s.world.ObjectsOf(kinds.Pod) {
			f := kube.FactsOfPod(o)
			if o.Cluster != "" || !f.Running || !f.Ready || f.ProxyImage == "" || f.Revision != revision || inspect.UsesXDS(o) {
				continue
			}
			w := snap.Workload(registry.WorkloadKey{Kind: kinds.Pod, Namespace: o.Namespace, Name: o.Name})
			if w != nil && !yield(w) {
				return
			}
		}
	}
}

// ClusterPending reports whether a Secret or a file names the proxy's cluster and the cluster is unread.
func (v view) ClusterPending(p *node.Proxy) bool { return v.s.from.Lacks(p.Cluster) }

// ServiceAccount returns the service account of a proxy's pod, or "" if it is unknown.
func (view) ServiceAccount(snap *snapshot.Snapshot, p *node.Proxy) string {
	return cohort.Account(snap, p)
}

// InCluster reports whether a peer is in the cluster that its proxy names. A certificate does not prove that, because
// it is valid in each cluster. If the server's own cluster is the only one, the peer is in it.
func (v view) InCluster(snap *snapshot.Snapshot, peer identity.Peer, p *node.Proxy) bool {
	own := p.Cluster == "" || p.Cluster == v.s.o.ClusterID
	return v.s.o.Client == nil && v.s.o.Kubeconfigs == "" || own && !v.s.from.HasRemote() || cohort.RunsAs(snap, p, peer.ID.ServiceAccount)
}

// WantSecrets replaces the Secrets and ConfigMaps that the sources read for streams.
func (v view) WantSecrets(keys []kinds.Key) {
	if v.secrets != nil {
		v.secrets.Set(keys)
	}
}

// Sources returns the objects that a resource is made of. For a derived object, it returns its origin.
func (v view) Sources(r *envoy.Resource) []pushes.Object {
	var list []pushes.Object
	for _, k := range v.s.translator.Sources(r) {
		o := v.Origin(k)
		if o != nil {
			k = o.Key
		}
		list = append(list, pushes.ObjectOf(k, o))
	}
	return list
}

// DebugPages answers a request for debug pages over xDS.
func (v view) DebugPages(peer identity.Peer, typeURL string, names []string) ([]*anypb.Any, error) {
	return v.s.debug.Resources(peer, typeURL, names)
}
