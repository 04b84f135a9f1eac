package ingest

import (
	"cmp"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// NotAPod is a part of each Instance that is not a pod. No pod name can contain it.
const NotAPod = "_"

// Options name the sources of objects, and describe this server.
type Options struct {
	Logger  *slog.Logger
	Version string // of the build

	// Sources. If both files and a cluster are given, the files hold the configuration and the cluster has the
	// services.
	ConfigDir     string      // directory of YAML files, or empty
	Texts         *file.Texts // files in memory, used instead of ConfigDir
	MeshConfig    string      // file; without one, the ConfigMap istio in the root namespace
	MeshNetworks  string      // file with networks, in the format of the ConfigMap's key meshNetworks
	TraceSampling float64     // percentage of requests that proxies trace by default; 0 for Istio's default
	snapshot.Settings
	// Compliance limits the TLS of proxies, and of connections to other control planes.
	Compliance compliance.Policy
	// NoHostNames leaves out gateways of other networks whose addresses are host names.
	NoHostNames bool
	// AutoAddresses are the ranges of addresses that ServiceEntries without addresses get.
	AutoAddresses serviceentry.Ranges
	// MultiCluster are the settings for the Multi-Cluster Services API. Its objects are read only if it is enabled.
	MultiCluster clusterset.Options
	// AlphaGatewayAPI reads the alpha parts of the Gateway API, and puts them into force.
	AlphaGatewayAPI bool
	// SharedMesh names a ConfigMap in the root namespace with a mesh configuration. The server's own takes precedence
	// over it. Empty for none.
	SharedMesh string
	Cluster    *crd.Listing // objects listed once from an API server, used instead of Client
	Client     *rest.Config // API server of the server's own cluster; nil if there is no cluster

	// WatchNamespace is the only namespace, beside the root namespace, whose objects are read from API servers, and in
	// which roots are published. Empty for all.
	WatchNamespace string

	// Ignored are kinds of configuration that are not read from API servers.
	Ignored []*kinds.Kind

	GatewayController string // controller of the GatewayClasses that are served; default istio.io/gateway-controller
	GatewayClass      string // default GatewayClass; default istio

	NoServices bool // read only the cluster's configuration, not its services

	RemoteClient crd.ClientOptions // defaults for the kubeconfigs of remote clusters
	// Kubeconfigs is a directory with the kubeconfigs of remote clusters, used instead of Secrets, or empty.
	Kubeconfigs string
	// SecretsClient is the API server with the Secrets of remote clusters, if it is not Client.
	SecretsClient *rest.Config
	RemoteTimeout time.Duration // how long the first snapshot waits for remote clusters; 0 for 30 s

	Poll    time.Duration // interval at which the directory is scanned, in addition to file events
	NoWatch bool          // scan the directory without file events

	// This server.
	Namespace string // root namespace
	Domain    string // such as cluster.local
	ClusterID string
	// ClusterAliases maps cluster names that proxies use to cluster IDs.
	ClusterAliases map[string]string
	PodName        string
	Process        string // unique name of this process if PodName is empty
	Revision       string // revision of this server, compared with the label istio.io/rev of objects; empty for "default"

	Advice bool // also report allowed but unusual configuration
	// Concerns limits findings about references to the objects for which it returns true. Nil for all objects.
	Concerns func(*kinds.Object) bool

	// Writes is told who wrote the versions that are read from the API server of the server's own cluster. It may be nil.
	Writes config.Writes

	// Once is true if the sources are read only once. Then it is an error if the mesh configuration is unusable.
	Once bool

	CountNodeAccounts bool // count the service accounts on each node, for World.RunsOn

	Limits limits.Limits
}

// whole reports whether the sources hold the whole mesh: no cluster adds objects, and no file is left out.
func (o Options) whole() bool {
	return o.Client == nil && o.Cluster == nil && o.Texts == nil && o.Kubeconfigs == ""
}

// partial reports whether the sources are files that hold only a part of a mesh.
func (o Options) partial() bool { return o.Client == nil && o.Cluster == nil && o.Texts != nil }

// Instance returns the name of this replica.
func (o Options) Instance() string { return cmp.Or(o.PodName, o.Process+NotAPod) }
