package node

import (
	"fmt"
	"time"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Type is the role of a proxy.
type Type string

// Supported types.
const (
	Sidecar Type = "sidecar"
	Router  Type = "router"
)

// Interception is how traffic reaches a sidecar.
type Interception string

// Interception modes. With NONE nothing is redirected, and listeners bind their addresses.
const (
	Redirect Interception = "REDIRECT"
	TPROXY   Interception = "TPROXY"
	None     Interception = "NONE"
)

// Capabilities are the extensions beyond stock Envoy's that a proxy lists, by the type URL of their configuration, and
// features of its version.
type Capabilities uint32

// Capabilities.
const (
	HTTPPeerMetadata        Capabilities = 1 << iota // io.istio.http.peer_metadata.Config
	NetworkMetadataExchange                          // envoy.tcp.metadataexchange.config.MetadataExchange
	ALPNFilter                                       // istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig
	HTTPStats                                        // stats.PluginConfig among envoy.filters.http
	NetworkStats                                     // stats.PluginConfig among envoy.filters.network
	VHDS                                             // Envoy 1.37 or later: single virtual hosts over delta ADS
	RecentCommands                                   // Envoy 1.40 or later: all commands of substitution.Recent
)

// Has reports whether c has all capabilities in want.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

// Release returns the version of Istio's agent, or of the Envoy if there is no agent, or "" if both are unknown.
func (p *Proxy) Release() string {
	if p.Version == "" && p.Envoy != [3]uint32{} {
		return fmt.Sprintf("envoy-%d.%d.%d", p.Envoy[0], p.Envoy[1], p.Envoy[2])
	}
	return p.Version
}

// Text is one text of a node's metadata.
type Text struct{ Key, Value string }

// MetadataText returns a text of the proxy's metadata, and whether it exists. A text of more than 256 bytes is not
// kept. Lists, numbers and flags have the form of Format.
func (p *Proxy) MetadataText(key string) (string, bool) {
	m := formatter{}
	p.texts(m)
	if v, ok := m[key]; ok {
		return v.GetStringValue(), true
	}
	for t := range p.Others.All {
		if t.Key == key {
			return t.Value, true
		}
	}
	return "", false
}

// Tuning changes the listeners of a proxy, besides its ProxyConfig: a part of the proxy's metadata, and settings of the
// control plane. It is comparable.
type Tuning struct {
	HTTP10               bool          // HTTP/1.0 is accepted
	IdleTimeout          time.Duration // IDLE_TIMEOUT of connections without another setting; 0 for Envoy's own, negative for none
	InboundExactBalance  bool          // INBOUND_LISTENER_EXACT_BALANCE: connections are spread evenly over Envoy's threads
	OutboundExactBalance bool          // OUTBOUND_LISTENER_EXACT_BALANCE
	// ServerFiles replace the certificate and the roots of the mesh for inbound mutual TLS: TLS_SERVER_CERT_CHAIN,
	// TLS_SERVER_KEY and TLS_SERVER_ROOT_CERT. An empty path replaces nothing.
	ServerFiles Files

	// The settings of the control plane for the listeners of all proxies.
	RemoteAddress    bool          // sidecars take the address of an application as the origin of its requests
	HandshakeTimeout time.Duration // of clients; 0 for DefaultHandshakeTimeout, negative for none
}

// DefaultHandshakeTimeout is how long a client's TLS handshake may take.
const DefaultHandshakeTimeout = 15 * time.Second

// With returns the tuning of a proxy with the control plane's settings for all proxies.
func (t Tuning) With(all Tuning) Tuning {
	t.HTTP10 = t.HTTP10 || all.HTTP10
	t.RemoteAddress, t.HandshakeTimeout = all.RemoteAddress, all.HandshakeTimeout
	return t
}

// Files are paths in the file system of a proxy. Chain and Key are both set or both empty.
type Files struct {
	Chain string // the certificate and the intermediate certificates
	Key   string
	Roots string // the certificates that verify peers
}

// GRPC is the Generator of applications that use xDS without a proxy.
const GRPC = "grpc"

// Proxy holds the facts that are kept of an Envoy node. It is immutable, and all proxies that send the same bytes share
// it. Its claims are used only if there is no better source: the Pod, the WorkloadEntry or the endpoint takes
// precedence.
type Proxy struct {
	Type         Type
	ID           string // pod.namespace
	Name         string // name of the pod
	Namespace    string // namespace whose configuration it reads
	Domain       string // DNS domain, <ns>.svc.<suffix>
	IPs          []string
	Cluster      string // ID of the Kubernetes cluster, CLUSTER_ID
	Service      string // its name in traces, Envoy's --service-cluster
	Network      string
	NetworkView  []string // REQUESTED_NETWORK_VIEW; empty for all networks
	NodeName     string
	Workload     string
	Account      string // service account name
	MeshID       string
	Labels       map[string]string
	Annotations  map[string]string
	Others       frozen.List[Text] // metadata texts that no other field has, sorted by key
	Locality     [3]string         // region, zone, subzone
	Interception Interception
	Version      string // ISTIO_VERSION as sent
	Revision     string // ISTIO_REVISION
	Envoy        [3]uint32
	Capabilities Capabilities
	Generator    string

	RegisterGroup  string // AUTO_REGISTER_GROUP, the WorkloadGroup of its namespace that it joins by itself; empty for none
	ReadinessProbe bool   // PROXY_CONFIG.readinessProbe is set, so it reports the health of its application

	// ClientFiles replace the certificate and the roots of the mesh for outbound mutual TLS: TLS_CLIENT_CERT_CHAIN,
	// TLS_CLIENT_KEY and TLS_CLIENT_ROOT_CERT. All are empty if the certificate or the key is not set.
	ClientFiles Files

	Tuning
	StatusPort  uint32 // ENVOY_STATUS_PORT, at which Envoy answers readiness probes; 0 if unknown
	MetricsPort uint32 // ENVOY_PROMETHEUS_PORT, at which Envoy serves metrics; 0 if unknown
	// SecurePorts are ENVOY_SECURE_METRICS_PORT and ENVOY_SECURE_MERGED_METRICS_PORT, at which Envoy serves its metrics
	// and the merged ones by mutual TLS; 0 for none.
	SecurePorts     [2]uint32
	AgentPort       uint32 // PROXY_CONFIG.statusPort, at which its agent listens on all addresses; 0 if unknown
	AdminPort       uint32 // PROXY_CONFIG.proxyAdminPort, at which Envoy's admin API listens; 0 if unknown
	HTTPProxyPort   uint32
	Unprivileged    bool
	DNSCapture      bool
	DNSAutoAllocate bool
	SelfDiscovery   bool   // ENABLE_SELF_DISCOVERY: its bootstrap has a cluster of its own workload, names.SelfCluster
	ProxyConfig     bool   // it sent PROXY_CONFIG; istioctl lists only such proxies
	Tracing         string // PROXY_CONFIG.tracing, as mesh.OwnTracing returns it; empty if unset
	Settings        string // fields of PROXY_CONFIG that its configuration depends on, as mesh.Settings returns them
}
