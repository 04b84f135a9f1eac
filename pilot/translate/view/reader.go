package view

import (
	"iter"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Reader is the look-ups of generators, beside those of a Scope. The methods are documented at scope.Index.
type Reader interface {
	feature.Reader
	HasObjects(kind *kinds.Kind) bool

	// When one of these changes, everything is dirty.
	Mesh() *mesh.Config
	Networks() *snapshot.Networks // nil if there is only one network
	Roots() frozen.List[string]   // roots that proxies trust in addition to those of their certificates, as PEM
	Domain() string               // cluster.local
	Cluster() string              // ID of the server's own cluster
	SecretsOf(cluster string) string
	HostClusters() int        // see limits.Limits
	HeadlessChains() bool     // whether TCP ports of headless services share a listener
	PersistentSessions() bool // whether labels of services ask for sessions that stay at one endpoint
	ResolvesHosts() bool      // whether there is a service for which proxies resolve the called hosts

	ScopeOf(namespace string, sidecar *kinds.Object) *scope.Scope

	Object(k kinds.Key) *kinds.Object // objects of kinds that reach the proxies that name them
	DestinationRuleNames(resource string) bool

	Endpoints(k registry.ServiceKey) *snapshot.Endpoints
	EndpointSummary(k registry.ServiceKey) snapshot.EndpointSummary
	DestinationRules(client string, s *registry.Service, selected frozen.List[*kinds.Object]) frozen.List[*kinds.Object]
	ClusterLocal(host string) bool

	ServicesMatching(match func(*registry.Service) bool) iter.Seq[*registry.Service]
	ServicesByPort(number uint32, match func(*registry.Service) bool) iter.Seq[*registry.Service]

	HasHost(host string) bool
	IsAlias(host string) bool
	HostByLabel(label string) (host string, more bool)
	HostsAtAddress(address string, visit func(host string))
	Patterns(host string) iter.Seq[string]

	CompareVirtualServices(namespace string, a, b *scope.VirtualService) int
	VirtualServicesOfGateway(name, host, proxyNamespace string) []*scope.VirtualService
	VirtualServicesOfGatewayHost(name, host, proxyNamespace string) []*scope.VirtualService
	GatewayHasHost(gateway, host string, v *scope.VirtualService) bool
	HostsOfGateway(name, pattern, proxyNamespace string) iter.Seq2[string, *scope.VirtualService]
	GatewayVirtualServicesTo(host string) iter.Seq[*scope.VirtualService]
}

// index is an Index as a Reader.
type index struct{ *scope.Index }

func (x index) Mesh() *mesh.Config           { return x.Index.Mesh }
func (x index) Networks() *snapshot.Networks { return x.Index.Networks }
func (x index) Domain() string               { return x.Index.Domain }
func (x index) Cluster() string              { return x.Index.Cluster }
func (x index) HostClusters() int            { return x.Index.HostClusters }
func (x index) HeadlessChains() bool         { return x.Index.HeadlessChains }
func (x index) PersistentSessions() bool     { return x.Index.PersistentSessions }
