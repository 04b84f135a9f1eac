package authorize

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Options configure an Authorizer. The zero Options allow the least.
type Options struct {
	// Readers are the address ranges that may read configuration objects. The default, if it is nil, is this host's own
	// addresses.
	Readers []netip.Prefix
	// RegisterAnyone lets peers without a verified identity register workloads. Any client that reaches the port can
	// then register itself in any group and receive its traffic. Peers on this host may register in any case.
	RegisterAnyone bool
	// SystemNamespace is the namespace of the control plane. Identities in it may read every debug page. If it is
	// empty, no namespace has that right by default.
	SystemNamespace string
	// DebugNamespaces are further namespaces whose identities may read every debug page.
	DebugNamespaces []string
	// ClusterAliases maps names that proxies use for clusters to cluster IDs.
	ClusterAliases map[string]string
}

// Authorizer decides what peers may do. It is immutable.
type Authorizer struct{ o Options }

// New returns an Authorizer.
func New(o Options) *Authorizer { return &Authorizer{o} }

// Denied is the error of a refused request. Message names the peer and, where there is one, the remedy.
type Denied struct{ Message string }

func (d *Denied) Error() string { return d.Message }

func deny(format string, args ...any) error { return &Denied{fmt.Sprintf(format, args...)} }

// Proxy returns a Denied unless a peer may be served as a proxy of a namespace. A peer with a verified identity must
// be in that namespace. Without one, any namespace is allowed.
func (a *Authorizer) Proxy(peer identity.Peer, namespace string) error {
	if peer.Proved() && peer.ID.Namespace != namespace {
		return deny("%s may not connect as a proxy of namespace %s", peer, namespace)
	}
	return nil
}

// ClusterID resolves an alias of a cluster to its ID. It returns other names unchanged.
func (a *Authorizer) ClusterID(cluster string) string {
	if id, ok := a.o.ClusterAliases[cluster]; ok {
		return id
	}
	return cluster
}

// Workload returns a Denied unless a peer may be served as the proxy of a pod in a cluster. A credential that is
// bound to a pod is valid for that pod alone, and one bound to a cluster for that cluster alone. An empty cluster is
// not checked.
func (a *Authorizer) Workload(peer identity.Peer, pod, cluster string) error {
	cluster = a.ClusterID(cluster)
	switch b := peer.Bound; {
	case !peer.Proved():
	case b.Pod != "" && b.Pod != pod:
		return deny("the token of pod %s is not valid for a proxy named %s", b.Pod, pod)
	case b.Cluster != "" && cluster != "" && b.Cluster != cluster:
		return deny("a token of cluster %s is not valid for a proxy of cluster %s", b.Cluster, cluster)
	}
	return nil
}

// Account returns a Denied unless a peer may be served as the proxy of a pod with a service account. An empty account
// is not checked.
func (a *Authorizer) Account(peer identity.Peer, account string) error {
	if peer.Proved() && account != "" && peer.ID.ServiceAccount != account {
		return deny("%s may not connect as the proxy of a pod with service account %s", peer, account)
	}
	return nil
}

// ReadConfig returns a Denied unless a peer may read configuration objects, which describe the whole mesh. Proxies
// may not.
func (a *Authorizer) ReadConfig(peer identity.Peer) error {
	from := peer.Address.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(a.o.Readers, func(p netip.Prefix) bool { return p.Contains(from) }) || a.o.Readers == nil && peer.OnHost() {
		return nil
	}
	return deny("%s may not read configuration objects: the server must list its address in --apiClients", peer)
}

// Page is a debug page that a peer requests.
type Page struct {
	// Name is the page's name, such as config_dump.
	Name string
	// OwnProxy reports whether identities may read the page about proxies of their own namespace.
	OwnProxy bool
	// OwnObject reports whether identities may read the page about objects of their own namespace.
	OwnObject bool
	// Namespace is the namespace of the proxy or the object that the page is about. It is empty for pages about all
	// proxies or the mesh.
	Namespace string
	// Guesses is true if the page says whether a guess of the peer is the content of a Secret.
	Guesses bool
}

// Debug returns a Denied unless a peer may read a debug page. Identities in the system namespace or in
// DebugNamespaces may read every page. Other identities may read pages about proxies and objects of their own
// namespace, unless the page has Guesses. A peer without a verified identity may read every page if it is on this host.
func (a *Authorizer) Debug(peer identity.Peer, page Page) error {
	switch {
	case !peer.Proved() && peer.OnHost(), peer.Proved() && !peer.Federated && a.readsAll(peer.ID.Namespace):
		return nil
	case peer.Federated:
		return deny("%s may not read debug pages: its root is trusted for aliases of the trust domain alone", peer)
	case !peer.Proved():
		return deny("debug pages are served only to peers on the control plane's host, and on the secure port to peers that prove their identity")
	case !page.OwnProxy && !page.OwnObject:
		return deny("the debug page %s is served only to service accounts of namespace %s", page.Name, strings.Join(a.debugNamespaces(), ", "))
	case page.Namespace == "" || page.Namespace != peer.ID.Namespace:
		return deny("%s may read debug pages only about proxies and objects of its own namespace", peer)
	case page.Guesses:
		return deny("%s may not ask for a Secret by the hash of its content, because guesses of the content could be tried out: "+
			"ask about the one that the API server has, by generation=current (pilot-discovery wait Secret/NAME.NAMESPACE --current), "+
			"or with a service account of namespace %s", peer, strings.Join(a.debugNamespaces(), ", "))
	}
	return nil
}

// readsAll reports whether identities in a namespace may read every debug page.
func (a *Authorizer) readsAll(namespace string) bool {
	return namespace != "" && slices.Contains(a.debugNamespaces(), namespace)
}

// debugNamespaces returns the namespaces whose identities may read every debug page.
func (a *Authorizer) debugNamespaces() []string {
	return append([]string{a.o.SystemNamespace}, a.o.DebugNamespaces...)
}

// Register returns a Denied unless a peer may register a workload in a namespace. If serviceAccount is not empty, the
// peer must have that service account. The error does not reveal the service account to peers of other namespaces.
func (a *Authorizer) Register(peer identity.Peer, namespace, serviceAccount string) error {
	switch {
	case !peer.Proved() && !peer.OnHost() && !a.o.RegisterAnyone:
		return deny("a workload is registered only for a proxy that proves its identity: the proxy must connect to the secure port, " +
			"or the server must be started with --registerUnauthenticated")
	case peer.Federated:
		return deny("%s may not register a workload: its root is trusted for aliases of the trust domain alone", peer)
	case peer.Proved() && peer.ID.Namespace != namespace:
		return deny("%s may not register a workload in namespace %s", peer, namespace)
	case peer.Proved() && serviceAccount != "" && peer.ID.ServiceAccount != serviceAccount:
		return deny("%s may not register a workload for service account %q", peer, serviceAccount)
	}
	return nil
}

// Secret returns a Denied unless a peer has a verified identity in the namespace of the secrets. Peers on this host
// are not exempt.
func (a *Authorizer) Secret(peer identity.Peer, namespace string) error {
	if err := a.SharedSecret(peer); err != nil {
		return err
	}
	if peer.ID.Namespace != namespace {
		return deny("%s may not receive the secrets of namespace %s", peer, namespace)
	}
	return nil
}

// SharedSecret returns a Denied unless a peer may receive secrets that are shared with its namespace, its service
// account, or every identity.
func (a *Authorizer) SharedSecret(peer identity.Peer) error {
	switch {
	case !peer.Proved():
		return deny("secrets are served only to a proxy that proves its identity: the proxy must connect to the secure port")
	case peer.Federated:
		return deny("%s may not receive secrets: its root is trusted for aliases of the trust domain alone", peer)
	}
	return nil
}
