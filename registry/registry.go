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
	// Apply applies a batch of changes and returns what they alter. It ignores objects of kinds that the registry does
	// not read.
	Apply([]kinds.Change) Changes
}

// Changes are the services, endpoints and workloads that changed, by key. Later changes replace earlier ones.
type Changes struct {
	Services  map[ServiceKey]*Service    // nil for a deleted service
	Endpoints map[ServiceKey][]*Endpoint // complete list, sorted by CompareEndpoints; empty if there are none
	Workloads map[WorkloadKey]*Workload  // nil for a deleted workload
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool { return len(c.Services)+len(c.Endpoints)+len(c.Workloads) == 0 }

// ServiceKey identifies a service. Two namespaces may have ServiceEntries for one host.
type ServiceKey struct {
	Namespace string
	Host      string // lower case, without a trailing dot; may begin with "*."
}

// Resolution is how Envoy finds the endpoints of a service.
type Resolution int

// Resolutions.
const (
	ClientSide    Resolution = iota // EDS
	DNS                             // STRICT_DNS: Envoy resolves all endpoint names
	DNSRoundRobin                   // LOGICAL_DNS: Envoy resolves one name
	DynamicDNS                      // Envoy resolves the host of each request
	Passthrough                     // original destination: headless services, ServiceEntry NONE
	Alias                           // an alias (ExternalName), which has no cluster of its own
)

// EndpointsInCluster reports whether clusters contain their endpoints, whose names Envoy resolves.
func (r Resolution) EndpointsInCluster() bool { return r == DNS || r == DNSRoundRobin }

// Origin is the kind of object that a service comes from.
type Origin int

// Values of Origin.
const (
	Kubernetes Origin = iota
	External          // ServiceEntry
)

// Service is one service that proxies may call.
type Service struct {
	Host      string // fully qualified: web.a.svc.cluster.local
	Namespace string
	Name      string // name of the object; for a ServiceEntry, its host
	Object    string // name of the object that the service is made from
	Provider  Origin

	// Addresses are cluster IPs, or addresses and CIDRs of ServiceEntries, in the order of the object. A headless
	// service has none.
	Addresses []string
	// AutoAddress are addresses allocated to a ServiceEntry that has none. Proxies with DNS_AUTO_ALLOCATE use them.
	AutoAddress  []string
	Ports        []Port // in the order of the object; see SetPorts
	Resolution   Resolution
	Headless     bool   // Kubernetes service with clusterIP None
	ExternalName string // target of an Alias, else empty
	MeshExternal bool

	// ExportTo is as written and trimmed, within the limits of the mesh's serviceEntryVisibility: ".", "*", "~" or
	// namespaces. It is empty for the mesh's default.
	ExportTo        []string
	Labels          map[string]string
	Selector        map[string]string // selector of pods, or of a ServiceEntry's workloads; nil for a service without a selector
	ServiceAccounts []string          // SPIFFE IDs from the service's own annotations or subjectAltNames
	Created         time.Time

	PublishNotReady bool   // not-ready endpoints are taken for ready
	NodeLocal       bool   // internalTrafficPolicy: Local
	TrafficDist     string // PreferClose, PreferSameZone, PreferSameNode, or empty
	SendDraining    bool   // draining endpoints are sent too, for persistent sessions

	// Clusters holds each cluster's version of the service, by the cluster's ID, which is empty for the server's own.
	// It is nil if only the own cluster has the service, and in the versions themselves. A cluster's version decides
	// what its proxies call and which of its pods serve, see ClusterVersion and VersionFor.
	Clusters map[string]*Service

	byNumber []int32 // positions in Ports, sorted by number; nil for few ports
}

// Session is the part of a request that names the endpoint of the client's first request. It is zero without persistent
// sessions.
type Session struct {
	Cookie, Path string // name and path of a cookie; empty if there is a header
	Header       string // name of a header
}

// PersistentSession returns the session that labels of a service ask for. A cookie takes precedence over a header, and
// its path may follow a colon.
func PersistentSession(labels map[string]string) Session {
	name, path, found := strings.Cut(labels[names.LabelSession], ":")
	switch {
	case labels[names.LabelSession] == "":
		return Session{Header: labels[names.LabelSessionHeader]}
	case !found:
		path = "/"
	}
	return Session{Cookie: name, Path: path}
}

// Key returns the service's key.
func (s *Service) Key() ServiceKey { return ServiceKey{s.Namespace, s.Host} }

// ClusterVersion returns a cluster's version of the service, or nil. The ID is empty for the server's own cluster. A
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

// VersionFor returns the version that proxies of a cluster call: the one of their own cluster, or else of the first
// cluster.
func (s *Service) VersionFor(cluster string) *Service {
	if own := s.ClusterVersion(cluster); own != nil {
		return own
	}
	return s
}

// Health is the health of an endpoint.
type Health int

// Health values. Draining endpoints are included only for services with persistent sessions, see Service.SendDraining.
const (
	Healthy Health = iota
	Unhealthy
	Draining
)

// Endpoint is one address of one port of a service.
type Endpoint struct {
	Address     string // IP address, host name (DNS services), or unix:///path; empty if reached only by its network's gateways
	Port        uint32
	ServicePort string // name of the service port
	Labels      map[string]string
	Identity    string // SPIFFE ID, spiffe://<trust domain>/ns/<ns>/sa/<sa>; empty if the workload is unknown
	Locality    Locality
	Network     string
	Cluster     string // ID of its cluster, also for the server's own
	Weight      uint32 // 0 means 1
	TLSMode     string // "istio" if a sidecar accepts mTLS there, else empty
	Health      Health
	HealthKnown bool // the health is reported (Kubernetes); otherwise health_status is not sent
	NodeName    string
	HostName    string // the pod's host name in a headless service, or empty
	SubDomain   string
	SameCluster bool // only proxies of its own cluster may call it, because the cluster does not export or import the service

	// Workload, Namespace, canonical name and revision are the endpoint's telemetry metadata. All are empty for an
	// endpoint without a pod or entry.
	Workload          string
	Namespace         string
	CanonicalName     string
	CanonicalRevision string
}

// CallableFrom reports whether proxies of a cluster, given by its ID, may call the endpoint.
func (e *Endpoint) CallableFrom(cluster string) bool { return !e.SameCluster || e.Cluster == cluster }

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

// Locality is the location of a workload.
type Locality struct{ Region, Zone, SubZone string }

// WorkloadKey identifies a workload: a Pod or a WorkloadEntry.
type WorkloadKey struct {
	Kind      *kinds.Kind
	Namespace string
	Name      string
	Cluster   string // ID of its remote cluster; empty for the server's own
}

func (k WorkloadKey) String() string {
	return kinds.Key{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Cluster: k.Cluster}.String()
}

// Compare orders workloads by kind, namespace, name and cluster.
func (k WorkloadKey) Compare(o WorkloadKey) int {
	return cmp.Or(strings.Compare(k.Kind.Name, o.Kind.Name), strings.Compare(k.Namespace, o.Namespace),
		strings.Compare(k.Name, o.Name), strings.Compare(k.Cluster, o.Cluster))
}

// Workload is a Pod or WorkloadEntry. A proxy may run beside it, and services may select it.
type Workload struct {
	WorkloadKey
	Addresses      []string // IP addresses, the primary one first
	Labels         map[string]string
	ServiceAccount string
	Identity       string // SPIFFE ID
	Locality       Locality
	NodeName       string
	Network        string
	Cluster        string // ID of its cluster, also for the server's own
	HostNetwork    bool
	Ready          bool
	TLSMode        string
	Owner          string            // name of the workload in telemetry: its Deployment's if known, else its own
	Ports          map[string]uint32 // container or WorkloadEntry ports by name
	Weight         uint32            // of a WorkloadEntry; 0 means 1
	Created        time.Time
}
