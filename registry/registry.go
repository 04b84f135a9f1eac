package registry

import (
	"cmp"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Registry turns changes of configuration objects into changes of services, endpoints and workloads.
type Registry interface {
	// Apply takes a batch of changes and gives what they alter. Objects of kinds that the registry does not read are ignored.
	Apply([]kinds.Change) Changes
}

// Changes is what became different, by key: later changes replace earlier ones.
type Changes struct {
	Services  map[ServiceKey]*Service    // nil: the service is gone
	Endpoints map[ServiceKey][]*Endpoint // the whole new list, sorted by CompareEndpoints; empty: none is left
	Workloads map[WorkloadKey]*Workload  // nil: the workload is gone
}

// Empty tells that nothing became different.
func (c Changes) Empty() bool { return len(c.Services)+len(c.Endpoints)+len(c.Workloads) == 0 }

// ServiceKey names a service: two namespaces may each have a ServiceEntry for one host.
type ServiceKey struct {
	Namespace string
	Host      string // lower case, without a trailing dot; may begin with "*."
}

// Protocol is what a port speaks, in Istio's spelling.
type Protocol string

// Protocols. Unsupported means that Envoy is to sniff.
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
	Unsupported Protocol = "UnsupportedProtocol"
)

// IsHTTP tells a protocol whose requests Envoy routes one by one.
func (p Protocol) IsHTTP() bool {
	switch p {
	case HTTP, HTTP2, GRPC, GRPCWeb, HTTPProxy:
		return true
	}
	return false
}

// IsHTTP2 tells a protocol that is HTTP/2 on the wire.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p == GRPC || p == GRPCWeb }

// IsTLS tells a protocol whose connections begin with a ClientHello.
func (p Protocol) IsTLS() bool { return p == HTTPS || p == TLS }

// IsTCP tells a protocol that is forwarded as bytes.
func (p Protocol) IsTCP() bool {
	switch p {
	case TCP, HTTPS, TLS, Mongo, Redis, MySQL:
		return true
	}
	return false
}

// Sniffed tells a port whose protocol Envoy has to find out.
func (p Protocol) Sniffed() bool { return p == Unsupported }

// Resolution says how Envoy finds the endpoints of a service.
type Resolution int

// Resolutions.
const (
	ClientSide    Resolution = iota // endpoints come by EDS
	DNS                             // Envoy resolves all endpoint names: STRICT_DNS
	DNSRoundRobin                   // Envoy resolves one name: LOGICAL_DNS
	DynamicDNS                      // Envoy resolves whatever host a request names
	Passthrough                     // the original destination: headless services, ServiceEntry NONE
	Alias                           // another name of the service ExternalName: it has no cluster of its own
)

// Provider is where a service comes from.
type Provider int

// Providers.
const (
	Kubernetes Provider = iota
	External            // ServiceEntry
)

// Service is one service that proxies may call.
type Service struct {
	Host      string // fully qualified: web.a.svc.cluster.local
	Namespace string
	Name      string // the object's name; for a ServiceEntry, its host
	Object    string // the name of the object that it was made from
	Provider  Provider

	Addresses    []string // cluster IPs, ServiceEntry addresses and CIDRs, in the order of the object; empty when headless or without address
	AutoAddress  []string // addresses allotted to a ServiceEntry without its own, used where the proxy has DNS_AUTO_ALLOCATE
	Ports        []Port   // in the order of the object; see SetPorts
	Resolution   Resolution
	Headless     bool   // a Kubernetes service with clusterIP None
	ExternalName string // the target of an Alias, else empty
	MeshExternal bool

	ExportTo        []string // as written, trimmed: ".", "*", "~" or namespaces; empty means the mesh's default
	Labels          map[string]string
	Selector        map[string]string // of pods, or of a ServiceEntry's workloads; nil without one
	ServiceAccounts []string          // SPIFFE IDs that the service itself names: annotations, subjectAltNames
	Created         time.Time

	PublishNotReady bool   // not-ready endpoints count as ready
	NodeLocal       bool   // internalTrafficPolicy: Local
	TrafficDist     string // PreferClose, PreferSameZone, PreferSameNode, or empty
	Unhealthy       bool   // unhealthy endpoints are to be sent as well (persistent sessions)

	// Clusters holds the service as each cluster has it, by the cluster's ID, empty for the server's own. It is nil where the own cluster alone has it, and of
	// what it holds itself. What a cluster's proxies call, and which of its pods serve, goes by the cluster's own version: see In and As.
	Clusters map[string]*Service

	byNumber []int32 // places in Ports, by number; nil where there are few
}

// HasPersistentSession tells by its labels a service that wants a client's requests to go to one endpoint, found by a cookie or a header.
func HasPersistentSession(labels map[string]string) bool {
	return labels["istio.io/persistent-session"] != "" || labels["istio.io/persistent-session-header"] != ""
}

// Key names the service.
func (s *Service) Key() ServiceKey { return ServiceKey{s.Namespace, s.Host} }

// ClusterVersion gives the service as a cluster has it, nil where it has none; the ID is empty for the server's own. A ServiceEntry is the same in every cluster.
func (s *Service) ClusterVersion(cluster string) *Service {
	switch {
	case s.Clusters != nil:
		return s.Clusters[cluster]
	case cluster == "" || s.Provider == External:
		return s
	}
	return nil
}

// VersionFor gives the service as proxies of a cluster are to call it: as their own cluster has it, else as the first cluster does.
func (s *Service) VersionFor(cluster string) *Service {
	if own := s.ClusterVersion(cluster); own != nil {
		return own
	}
	return s
}

// Health of an endpoint.
type Health int

// Health values. Draining endpoints are handed on only of services that keep sessions, see Service.Unhealthy.
const (
	Healthy Health = iota
	Unhealthy
	Draining
)

// Endpoint is one address behind one port of a service.
type Endpoint struct {
	Address     string // IP, host name (DNS services), or unix:///path; empty: it is reached by its network's gateways alone
	Port        uint32
	ServicePort string // the name of the service port that it serves
	Labels      map[string]string
	Identity    string // SPIFFE ID, spiffe://<trust domain>/ns/<ns>/sa/<sa>; empty when the workload is unknown
	Locality    Locality
	Network     string
	Cluster     string // the ID of the cluster that it runs in, the server's own written out
	Weight      uint32 // 0 is written as 1
	TLSMode     string // "istio" when a sidecar takes mTLS there, else empty
	Health      Health
	HealthKnown bool // the health is reported (Kubernetes); else health_status is left out
	NodeName    string
	HostName    string // the pod's host name in a headless service, or empty
	SubDomain   string

	// Workload, Namespace, Canonical name and revision as in the endpoint's telemetry metadata; all empty when it has no pod or entry.
	Workload          string
	Namespace         string
	CanonicalName     string
	CanonicalRevision string
}

// CompareEndpoints orders endpoints: by port name, address, port, cluster, network. Equal worlds give equal lists. Two clusters on networks of their own may
// use an address twice.
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

// WorkloadKey names a workload: a Pod or a WorkloadEntry.
type WorkloadKey struct {
	Kind      *kinds.Kind
	Namespace string
	Name      string
	Cluster   string // ID of the remote cluster that it runs in; empty for the server's own
}

func (k WorkloadKey) String() string {
	return kinds.Key{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Cluster: k.Cluster}.String()
}

// Compare orders workloads: by kind, namespace, name, cluster.
func (k WorkloadKey) Compare(o WorkloadKey) int {
	return cmp.Or(strings.Compare(k.Kind.Name, o.Kind.Name), strings.Compare(k.Namespace, o.Namespace), strings.Compare(k.Name, o.Name), strings.Compare(k.Cluster, o.Cluster))
}

// Workload is something a proxy may run beside, and that services may select.
type Workload struct {
	WorkloadKey
	Addresses      []string // IPs; the first is the primary one
	Labels         map[string]string
	ServiceAccount string
	Identity       string // SPIFFE ID
	Locality       Locality
	NodeName       string
	Network        string
	Cluster        string // the ID of its cluster, the server's own written out
	HostNetwork    bool
	Ready          bool
	TLSMode        string
	Owner          string            // the workload's name in telemetry: its Deployment where known, else its own name
	Ports          map[string]uint32 // container or WorkloadEntry ports by name
	Weight         uint32            // of a WorkloadEntry; 0 is written as 1
	Created        time.Time
}
