package registry

import (
	"cmp"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Registry turns changes of configuration objects into changes of services, endpoints and workloads.
type Registry interface {
	// Apply applies a batch of changes and returns what they alter. Objects of kinds that the registry does not read
	// are ignored.
	Apply([]kinds.Change) Changes
}

// Changes are the services, endpoints and workloads that changed, by key. Later changes replace earlier ones.
type Changes struct {
	Services  map[ServiceKey]*Service    // nil: the service was deleted
	Endpoints map[ServiceKey][]*Endpoint // the complete list, sorted by CompareEndpoints; empty: there are none
	Workloads map[WorkloadKey]*Workload  // nil: the workload was deleted
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool { return len(c.Services)+len(c.Endpoints)+len(c.Workloads) == 0 }

// ServiceKey identifies a service. Two namespaces may have ServiceEntries for one host.
type ServiceKey struct {
	Namespace string
	Host      string // lower case, without a trailing dot; may begin with "*."
}

// Protocol is the protocol of a port, in Istio's spelling.
type Protocol string

// Protocols. Unsupported means that Envoy sniffs the protocol.
const (
	HTTP        Protocol = "HTTP"
	HTTPS       Protocol = "HTTPS"
	HTTP2       Protocol = "HTTP2"
	GRPC        Protocol = "GRPC"
	GRPCWeb     Protocol = "GRPC-Web"
	HTTPProxy   Protocol = "HTTP_PROXY"
	TCP         Protocol = "TCP"
	TLS         Protocol = "TLS"
	Mongo       Protocol = "Mongo"
	Redis       Protocol = "Redis"
	MySQL       Protocol = "MySQL"
	UDP         Protocol = "UDP"
	HTTP3       Protocol = "HTTP3" // what gateways speak over QUIC: no port has it
	Unsupported Protocol = "UnsupportedProtocol"
)

// IsHTTP reports whether Envoy routes each request of the protocol.
func (p Protocol) IsHTTP() bool {
	switch p {
	case HTTP, HTTP2, GRPC, GRPCWeb, HTTPProxy:
		return true
	}
	return false
}

// IsHTTP2 reports whether the protocol is HTTP/2 on the wire.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p == GRPC || p == GRPCWeb }

// IsTLS reports whether connections of the protocol begin with a ClientHello.
func (p Protocol) IsTLS() bool { return p == HTTPS || p == TLS }

// IsTCP reports whether the protocol is forwarded as bytes.
func (p Protocol) IsTCP() bool {
	switch p {
	case TCP, HTTPS, TLS, Mongo, Redis, MySQL:
		return true
	}
	return false
}

// Sniffed reports whether Envoy must detect the protocol.
func (p Protocol) Sniffed() bool { return p == Unsupported }

// Resolution is how Envoy finds the endpoints of a service.
type Resolution int

// Resolutions.
const (
	ClientSide    Resolution = iota // by EDS
	DNS                             // Envoy resolves all endpoint names: STRICT_DNS
	DNSRoundRobin                   // Envoy resolves one name: LOGICAL_DNS
	DynamicDNS                      // Envoy resolves the host of each request
	Passthrough                     // the original destination: headless services, ServiceEntry NONE
	Alias                           // the service is another name of ExternalName; it has no cluster of its own
)

// EndpointsInCluster reports whether clusters hold the endpoints themselves: Envoy resolves their names.
func (r Resolution) EndpointsInCluster() bool { return r == DNS || r == DNSRoundRobin }

// Origin is where a service comes from.
type Origin int

// Providers.
const (
	Kubernetes Origin = iota
	External          // ServiceEntry
)

// Service is one service that proxies may call.
type Service struct {
	Host      string // fully qualified: web.a.svc.cluster.local
	Namespace string
	Name      string // the object's name; for a ServiceEntry, its host
	Object    string // the name of the object that it is made from
	Provider  Origin

	// Addresses are cluster IPs, and addresses and CIDRs of ServiceEntries, in the order of the object. There are none
	// for a headless service.
	Addresses []string
	// AutoAddress are addresses allocated to a ServiceEntry that has none. Proxies with DNS_AUTO_ALLOCATE use them.
	AutoAddress  []string
	Ports        []Port // in the order of the object; see SetPorts
	Resolution   Resolution
	Headless     bool   // a Kubernetes service with clusterIP None
	ExternalName string // the target of an Alias, else empty
	MeshExternal bool

	ExportTo        []string // as written, trimmed: ".", "*", "~" or namespaces; empty is the mesh's default
	Labels          map[string]string
	Selector        map[string]string // of pods, or of a ServiceEntry's workloads; nil for a service without a selector
	ServiceAccounts []string          // SPIFFE IDs from the service's own annotations or subjectAltNames
	Created         time.Time

	PublishNotReady bool   // not-ready endpoints count as ready
	NodeLocal       bool   // internalTrafficPolicy: Local
	TrafficDist     string // PreferClose, PreferSameZone, PreferSameNode, or empty
	Unhealthy       bool   // unhealthy endpoints are sent too (persistent sessions)

	// Clusters holds each cluster's version of the service, by the cluster's ID, empty for the server's own. It is nil
	// if only the own cluster has the service, and in the versions themselves. A cluster's version decides what its
	// proxies call and which of its pods serve, see ClusterVersion and VersionFor.
	Clusters map[string]*Service

	byNumber []int32 // positions in Ports, sorted by number; nil for few ports
}

// HasPersistentSession reports whether labels ask for persistent sessions: a cookie or a header sends a client's
// requests to one endpoint.
func HasPersistentSession(labels map[string]string) bool {
	return labels[names.LabelSession] != "" || labels[names.LabelSessionHeader] != ""
}

// Key returns the service's key.
func (s *Service) Key() ServiceKey { return ServiceKey{s.Namespace, s.Host} }

// ClusterVersion returns a cluster's version of the service, or nil; the ID is empty for the server's own. A
// ServiceEntry is the same in every cluster.
func (s *Service) ClusterVersion(cluster string) *Service {
	switch {
	case s.Clusters != nil:
		return s.Clusters[cluster]
	case cluster == "" || s.Provider == External:
		return s
	}
	return nil
}

// VersionFor returns the version that proxies of a cluster call: their own cluster's, or else the first cluster's.
func (s *Service) VersionFor(cluster string) *Service {
	if own := s.ClusterVersion(cluster); own != nil {
		return own
	}
	return s
}

// Health is the health of an endpoint.
type Health int

// Health values. Draining endpoints are included only for services with persistent sessions, see Service.Unhealthy.
const (
	Healthy Health = iota
	Unhealthy
	Draining
)

// Endpoint is one address of one port of a service.
type Endpoint struct {
	Address     string // IP, host name (DNS services), or unix:///path; empty: reached only by its network's gateways
	Port        uint32
	ServicePort string // the name of the service port
	Labels      map[string]string
	Identity    string // SPIFFE ID, spiffe://<trust domain>/ns/<ns>/sa/<sa>; empty if the workload is unknown
	Locality    Locality
	Network     string
	Cluster     string // the ID of its cluster, also for the server's own
	Weight      uint32 // 0 counts as 1
	TLSMode     string // "istio" if a sidecar accepts mTLS there, else empty
	Health      Health
	HealthKnown bool // the health is reported (Kubernetes); else health_status is not sent
	NodeName    string
	HostName    string // the pod's host name in a headless service, or empty
	SubDomain   string

	// Workload, Namespace, canonical name and revision are the endpoint's telemetry metadata. All are empty for an
	// endpoint without a pod or entry.
	Workload          string
	Namespace         string
	CanonicalName     string
	CanonicalRevision string
}

// CompareEndpoints orders endpoints by port name, address, port, cluster and network, so that equal worlds have equal
// lists. Two clusters on separate networks may use one address.
func CompareEndpoints(a, b *Endpoint) int {
	switch {
	case a.ServicePort != b.ServicePort:
		return strings.Compare(a.ServicePort, b.ServicePort)
	case a.Address != b.Address:
		return strings.Compare(a.Address, b.Address)
	case a.Port != b.Port:
		return int(a.Port) - int(b.Port)
	}
	return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Network, b.Network))
}

// Locality is where a workload runs.
type Locality struct{ Region, Zone, SubZone string }

// WorkloadKey identifies a workload: a Pod or a WorkloadEntry.
type WorkloadKey struct {
	Kind      *kinds.Kind
	Namespace string
	Name      string
	Cluster   string // the ID of its remote cluster; empty for the server's own
}

func (k WorkloadKey) String() string {
	return kinds.Key{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Cluster: k.Cluster}.String()
}

// Compare orders workloads by kind, namespace, name and cluster.
func (k WorkloadKey) Compare(o WorkloadKey) int {
	return cmp.Or(strings.Compare(k.Kind.Name, o.Kind.Name), strings.Compare(k.Namespace, o.Namespace), strings.Compare(k.Name, o.Name), strings.Compare(k.Cluster, o.Cluster))
}

// Workload is a Pod or WorkloadEntry. A proxy may run beside it, and services may select it.
type Workload struct {
	WorkloadKey
	Addresses      []string // IPs; the first is the primary
	Labels         map[string]string
	ServiceAccount string
	Identity       string // SPIFFE ID
	Locality       Locality
	NodeName       string
	Network        string
	Cluster        string // the ID of its cluster, also for the server's own
	HostNetwork    bool
	Ready          bool
	TLSMode        string
	Owner          string            // the workload's name in telemetry: that of its Deployment if known, else its own
	Ports          map[string]uint32 // container or WorkloadEntry ports by name
	Weight         uint32            // of a WorkloadEntry; 0 counts as 1
	Created        time.Time
}
