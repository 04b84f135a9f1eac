package ingest

import (
	"cmp"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
)

// NotAPod is part of an Instance that is no pod: no name of a pod can have it.
const NotAPod = "_"

// Options are where changes come from, and who the server is that reads them.
type Options struct {
	Logger  *slog.Logger
	Version string // of the build

	// Sources. Files and a cluster may both be given: then files hold the configuration and the cluster has the
	// services.
	ConfigDir     string       // a directory of YAML, or empty
	Texts         *file.Texts  // in the place of ConfigDir: files that were read before
	MeshConfig    string       // a file; where there is none, the ConfigMap named istio in the root namespace
	MeshNetworks  string       // a file with networks, in the form of the ConfigMap's key meshNetworks
	TraceSampling float64      // percent of requests that proxies trace by default; 0 is Istio's default
	HTTP3         bool         // gateways take HTTP/3 on UDP ports of their Services
	SharedMesh    string       // name of a ConfigMap in the root namespace whose mesh configuration lies under the server's own, or empty
	Cluster       *crd.Listing // in the place of Client: what was read once of an API server
	Client        *rest.Config // of the API server of the own cluster; nil: there is none

	NoServices bool // leave the cluster's services out: only its configuration counts

	RemoteClient  crd.ClientOptions // of remote clusters: what their kubeconfigs leave open
	RemoteTimeout time.Duration     // how long the first snapshot waits for remote clusters; 0 is 30 s

	Poll    time.Duration // how often the directory is looked through, beside its events
	NoWatch bool          // look through the directory only, without file events

	// Who this is.
	Namespace string // the root namespace
	Domain    string // cluster.local
	ClusterID string
	// ClusterAliases are names that proxies have for clusters, with the IDs that those have here.
	ClusterAliases map[string]string
	PodName        string
	Process        string // what to call this process where it has no PodName; no two that run at a time may share it
	Revision       string // objects that a label istio.io/rev keeps for another revision do not count; empty is "default"

	Advice   bool                     // look also for what is allowed and seldom meant
	Concerns func(*kinds.Object) bool // whether findings about the references of an object are wanted; nil: about all

	Once bool // whether the sources are read only once, so that it is an error to have to wait for a mesh configuration

	CountNodeAccounts bool // keep count of the service accounts on each node, for World.RunsOn

	Limits limits.Limits
}

// whole reports whether the sources hold the whole mesh: no cluster adds to it, and no file is left out.
func (o Options) whole() bool { return o.Client == nil && o.Cluster == nil && o.Texts == nil }

// Instance returns the name of this replica.
func (o Options) Instance() string { return cmp.Or(o.PodName, o.Process+NotAPod) }
