package node

import (
	"fmt"
	"time"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Type is what a proxy is for.
type Type string

// Types that are served.
const (
	Sidecar Type = "sidecar"
	Router  Type = "router"
)

// Interception is how a sidecar's traffic reaches it.
type Interception string

// Interception modes. NONE: nothing is captured, listeners bind for real.
const (
	Redirect Interception = "REDIRECT"
	TPROXY   Interception = "TPROXY"
	None     Interception = "NONE"
)

// Capabilities are the extensions beyond stock Envoy's that a proxy lists, by the type URL that their configuration has
// on the wire, and what its version can do.
type Capabilities uint32

// Capabilities.
const (
	HTTPPeerMetadata        Capabilities = 1 << iota // io.istio.http.peer_metadata.Config
	NetworkMetadataExchange                          // envoy.tcp.metadataexchange.config.MetadataExchange
	ALPNFilter                                       // istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig
	HTTPStats                                        // stats.PluginConfig among envoy.filters.http
	NetworkStats                                     // stats.PluginConfig among envoy.filters.network
	VHDS                                             // Envoy 1.37 or later: virtual hosts by themselves over delta ADS
	RecentCommands                                   // Envoy 1.40 or later: all commands of substitution.Recent
)

// Has reports whether all of want are there.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

// Release is the version of Istio's agent beside the proxy, or of the Envoy where there is none; empty if neither is
// known.
func (p *Proxy) Release() string {
	if p.Version == "" && p.Envoy != [3]uint32{} {
		return fmt.Sprintf("envoy-%d.%d.%d", p.Envoy[0], p.Envoy[1], p.Envoy[2])
	}
	return p.Version
}

// Text is one text of a node's metadata.
type Text struct{ Key, Value string }

// MetadataText returns a text of the proxy's metadata, and whether it is there. One of more than 256 bytes is not kept.
// What stands for a list, a number or a flag is spelled as Format does.
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

// Tuning is the part of a proxy's metadata that changes its listeners, beside its mesh configuration. It is comparable.
type Tuning struct {
	HTTP10               bool          // connections may be of HTTP/1.0
	IdleTimeout          time.Duration // IDLE_TIMEOUT of connections where nothing else sets it; 0: Envoy's own; below 0: none
	InboundExactBalance  bool          // INBOUND_LISTENER_EXACT_BALANCE: Envoy's threads have equally many connections
	OutboundExactBalance bool          // OUTBOUND_LISTENER_EXACT_BALANCE
	// ServerFiles replace the certificate and the roots of the mesh where the proxy takes connections with mutual TLS
	// of the mesh: TLS_SERVER_CERT_CHAIN, TLS_SERVER_KEY and TLS_SERVER_ROOT_CERT. An empty path replaces nothing.
	ServerFiles Files
}

// Files are paths in the file system of a proxy. Chain and Key are both set or both empty.
type Files struct {
	Chain string // the certificate, and those of intermediate authorities
	Key   string
	Roots string // the certificates that peers are verified by
}

// GRPC is the Generator of applications that use xDS themselves, without a proxy.
const GRPC = "grpc"

// Proxy is what is kept of an Envoy node: a few facts, shared by all proxies that send the same bytes, never changed
// once made. What it says of itself is believed only where nothing better is known: the Pod, the WorkloadEntry or the
// endpoint comes first.
type Proxy struct {
	Type         Type
	ID           string // pod.namespace
	Name         string // the pod's name
	Namespace    string // the namespace whose configuration it reads
	Domain       string // <ns>.svc.<suffix>
	IPs          []string
	Cluster      string // the Kubernetes cluster, CLUSTER_ID
	Service      string // what it calls itself in traces: Envoy's --service-cluster
	Network      string
	NetworkView  []string // REQUESTED_NETWORK_VIEW; empty: every network
	NodeName     string
	Workload     string
	Account      string // service account name
	MeshID       string
	Labels       map[string]string
	Annotations  map[string]string
	Others       frozen.List[Text] // the texts of its metadata that no other field holds, sorted by key
	Locality     [3]string         // region, zone, subzone
	Interception Interception
	Version      string // ISTIO_VERSION as sent
	Revision     string // ISTIO_REVISION
	Envoy        [3]uint32
	Capabilities Capabilities
	Generator    string

	RegisterGroup  string // AUTO_REGISTER_GROUP: the WorkloadGroup of its namespace that it joins by itself; else empty
	ReadinessProbe bool   // PROXY_CONFIG.readinessProbe is set: it reports the health of its application

	// ClientFiles replace the certificate and the roots of the mesh where the proxy makes connections with mutual TLS:
	// TLS_CLIENT_CERT_CHAIN, TLS_CLIENT_KEY and TLS_CLIENT_ROOT_CERT. All are empty if the certificate or the key is not
	// set.
	ClientFiles Files

	Tuning
	StatusPort      uint32 // ENVOY_STATUS_PORT: where Envoy's own bootstrap answers probes of readiness; 0 if unknown
	MetricsPort     uint32 // ENVOY_PROMETHEUS_PORT: where Envoy's own bootstrap serves metrics; 0 if unknown
	AgentPort       uint32 // PROXY_CONFIG.statusPort: where its agent listens at all addresses; 0 if unknown
	AdminPort       uint32 // PROXY_CONFIG.proxyAdminPort: where Envoy's admin API listens; 0 if unknown
	HTTPProxyPort   uint32
	Unprivileged    bool
	DNSCapture      bool
	DNSAutoAllocate bool
	ProxyConfig     bool   // it sent PROXY_CONFIG: istioctl lists only such proxies
	Tracing         string // PROXY_CONFIG.tracing where it is set, as mesh.OwnTracing returns it
	Settings        string // those of PROXY_CONFIG that its configuration depends on, as mesh.Settings returns them
}
