package bootstrap

import (
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
)

// Options of a Server: what the command line said, nothing read from elsewhere.
type Options struct {
	Logger  *slog.Logger
	Version string                   // of the build, as /version and istio_build have it
	Panics  func() map[string]uint64 // recovered panics by name, for the metric; nil counts none

	// Addresses to listen on, host:port. Port 0 takes a free one. With GRPC empty, plaintext ADS is served on HTTP's
	// port.
	GRPC, SecureGRPC, HTTP, HTTPS, Monitoring string
	AddressFile                               string // where to write what was bound, or empty

	// Sources. Files and a cluster may both be given: then files hold the configuration and the cluster has the
	// services.
	ConfigDir     string       // a directory of YAML, or empty
	Texts         *file.Texts  // in the place of ConfigDir: files that were read before, for Inspect
	MeshConfig    string       // a file; where there is none, the ConfigMap named istio in the root namespace
	MeshNetworks  string       // a file with networks, in the form of the ConfigMap's key meshNetworks
	TraceSampling float64      // percent of requests that proxies trace by default; 0 is Istio's default
	SharedMesh    string       // name of a ConfigMap in the root namespace whose mesh configuration lies under the server's own, or empty
	Client        *rest.Config // of the API server of the own cluster; nil: there is none

	NoServices bool // leave the cluster's services out: only its configuration counts

	RemoteClient  crd.ClientOptions // of remote clusters: what their kubeconfigs leave open
	RemoteTimeout time.Duration     // how long the first snapshot waits for remote clusters; 0 is 30 s

	// Who this is.
	Namespace string // the root namespace
	Domain    string // cluster.local
	ClusterID string
	PodName   string
	Process   string // what to call this process where it has no PodName; no two that run at a time may share it
	Revision  string // objects that a label istio.io/rev keeps for another revision do not count; empty is "default"

	APIClients []netip.Prefix // whom the objects of configuration themselves are served; nil: peers on this host
	Relay      bool           // they are served also what other control planes serve this one

	// Registration of workloads that name a WorkloadGroup.
	NoRegistration    bool
	NoHealth          bool          // what they report of their health is not written
	RegistrationGrace time.Duration // from the end of a proxy's last stream to the end of its WorkloadEntry; 0 is 10 s
	RegisterAnyone    bool          // peers on other hosts need not prove who they are; without Client nobody has to
	NoElection        bool          // this is the only replica: it cleans up without being elected

	KeepaliveInterval, KeepaliveTimeout time.Duration
	MaxConnectionAge                    time.Duration // 0: connections are not closed for their age
	Drain                               time.Duration // from not being ready any more to refusing connections
	Shutdown                            time.Duration // after that, how long streams and all else that runs get to end by themselves

	DebounceAfter, DebounceMax time.Duration
	Poll                       time.Duration // how often the directory is looked through, beside its events
	NoWatch                    bool          // look through the directory only, without file events
	NoVirtualHosts             bool          // route configurations go whole to every proxy
	NoMemo                     bool          // encode every resource anew

	Profile bool // serve /debug/pprof
	Limits  limits.Limits
}
