package authorize

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Options of an Authorizer. The zero Options allow the least.
type Options struct {
	// Readers are the addresses that may read objects of configuration; nil: this host's.
	Readers []netip.Prefix
	// RegisterAnyone lets peers register workloads that proved no ID: whoever reaches the port may then receive traffic
	// meant for any group. Peers on this host may in any case.
	RegisterAnyone bool
	// SystemNamespace is where the control plane is. Who has an ID there may read every debug page; empty: nobody has.
	SystemNamespace string
	// DebugNamespaces are others whose IDs may read every debug page.
	DebugNamespaces []string
	// ClusterAliases are names that proxies have for clusters, with the IDs of those.
	ClusterAliases map[string]string
}

// Authorizer decides what peers may do. It is immutable.
type Authorizer struct{ o Options }

// New returns an Authorizer.
func New(o Options) *Authorizer { return &Authorizer{o} }

// Denied says what a peer may not do, and what would allow it.
type Denied struct{ Message string }

func (d *Denied) Error() string { return d.Message }

func deny(format string, args ...any) error { return &Denied{fmt.Sprintf(format, args...)} }

// Proxy returns an error unless a peer may be served as a proxy of a namespace. A peer that proved an ID is served as a
// proxy of the ID's namespace alone; of one that did not, the node's word counts.
func (a *Authorizer) Proxy(peer identity.Peer, namespace string) error {
	if peer.Proved() && peer.ID.Namespace != namespace {
		return deny("%s is not served as a proxy of namespace %s", peer, namespace)
	}
	return nil
}

// ClusterID returns the ID of a cluster by the name that a proxy has for it.
func (a *Authorizer) ClusterID(cluster string) string {
	if id, ok := a.o.ClusterAliases[cluster]; ok {
		return id
	}
	return cluster
}

// Workload returns an error unless a peer may be served as the proxy of a pod of a cluster. A peer whose proof is bound
// to a pod is served as that pod alone, and one whose proof is of a cluster as a proxy of that cluster alone. An empty
// cluster is not checked.
func (a *Authorizer) Workload(peer identity.Peer, pod, cluster string) error {
	cluster = a.ClusterID(cluster)
	switch b := peer.Bound; {
	case !peer.Proved():
	case b.Pod != "" && b.Pod != pod:
		return deny("the token of pod %s is not good for a proxy that is called %s", b.Pod, pod)
	case b.Cluster != "" && cluster != "" && b.Cluster != cluster:
		return deny("a token of cluster %s is not good for a proxy of cluster %s", b.Cluster, cluster)
	}
	return nil
}

// Account returns an error unless a peer may be served as the proxy of a pod that runs as a service account. An empty
// one is not checked.
func (a *Authorizer) Account(peer identity.Peer, account string) error {
	if peer.Proved() && account != "" && peer.ID.ServiceAccount != account {
		return deny("%s is not served as the proxy of a pod of service account %s", peer, account)
	}
	return nil
}

// ReadConfig returns an error unless a peer may read objects of configuration. The configuration of the whole mesh is
// no business of a proxy's.
func (a *Authorizer) ReadConfig(peer identity.Peer) error {
	from := peer.Address.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(a.o.Readers, func(p netip.Prefix) bool { return p.Contains(from) }) || a.o.Readers == nil && peer.OnHost() {
		return nil
	}
	return deny("objects of configuration are not served to %s: the server has to be told to, by --apiClients", peer)
}

// Page is a debug page that a peer asks for.
type Page struct {
	Name string // config_dump
	// OwnProxy reports whether the page may be read about proxies of the reader's own namespace.
	OwnProxy bool
	// Namespace is that of the proxy that the page is about; empty for a page about all proxies, or about the mesh.
	Namespace string
}

// Debug returns an error unless a peer may read a debug page. A peer that proved an ID of the system namespace, or of
// one of DebugNamespaces, may read all of them; one that proved another may read what a proxy of its own namespace was
// sent. A peer that proved none may read all of them if it is on this host.
func (a *Authorizer) Debug(peer identity.Peer, page Page) error {
	switch {
	case !peer.Proved() && peer.OnHost(), peer.Proved() && !peer.Federated && a.readsAll(peer.ID.Namespace):
		return nil
	case peer.Federated:
		return deny("debug pages are not served to %s: its root counts for aliases of the trust domain alone", peer)
	case !peer.Proved():
		return deny("debug pages are served to peers on the control plane's host, and over the secure port to those that prove their identity")
	case !page.OwnProxy:
		return deny("the debug page %s is served to service accounts of namespace %s alone", page.Name, a.o.SystemNamespace)
	case page.Namespace == "" || page.Namespace != peer.ID.Namespace:
		return deny("%s may read debug pages about proxies of its own namespace alone", peer)
	}
	return nil
}

// readsAll reports whether IDs of a namespace may read every debug page.
func (a *Authorizer) readsAll(namespace string) bool {
	return namespace != "" && (namespace == a.o.SystemNamespace || slices.Contains(a.o.DebugNamespaces, namespace))
}

// Register returns an error unless a peer may register a workload of a namespace, for a service account if that is not
// empty. A peer of another namespace does not learn the service account.
func (a *Authorizer) Register(peer identity.Peer, namespace, serviceAccount string) error {
	switch {
	case !peer.Proved() && !peer.OnHost() && !a.o.RegisterAnyone:
		return deny("a workload is registered only for a proxy that proves its identity: it must connect to the secure port, or the server " +
			"have --registerUnauthenticated")
	case peer.Federated:
		return deny("%s may not register a workload: its root counts for aliases of the trust domain alone", peer)
	case peer.Proved() && peer.ID.Namespace != namespace:
		return deny("%s may not register a workload in namespace %s", peer, namespace)
	case peer.Proved() && serviceAccount != "" && peer.ID.ServiceAccount != serviceAccount:
		return deny("%s may not register a workload for service account %q", peer, serviceAccount)
	}
	return nil
}

// Secret returns an error unless a peer may receive the secrets of a namespace: only one that proved an ID there may,
// wherever it connects from.
func (a *Authorizer) Secret(peer identity.Peer, namespace string) error {
	if err := a.SharedSecret(peer); err != nil {
		return err
	}
	if peer.ID.Namespace != namespace {
		return deny("%s may not receive the secrets of namespace %s", peer, namespace)
	}
	return nil
}

// SharedSecret returns an error unless a peer may receive the secrets that are shared with its namespace, its service
// account, or all.
func (a *Authorizer) SharedSecret(peer identity.Peer) error {
	switch {
	case !peer.Proved():
		return deny("secrets are served only to a proxy that proves its identity: it must connect to the secure port")
	case peer.Federated:
		return deny("%s may not receive secrets: its root counts for aliases of the trust domain alone", peer)
	}
	return nil
}
