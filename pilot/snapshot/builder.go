package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Builder makes one Snapshot after another. Called by one goroutine; what it commits is frozen.
type Builder struct {
	last     *Snapshot
	mesh     *mesh.Config
	networks *Networks
	now      tables // as they are at present
	edit     *frozen.Edit
	delta    Diff
	arrived  map[ClusterAddress]bool // addresses of workloads that came or changed since the last commit

	// What was touched since the last commit, as it was then; nil: it was not there.
	services  map[registry.ServiceKey]*registry.Service
	endpoints map[registry.ServiceKey]*Endpoints
	objects   map[kinds.Key]*kinds.Object
}

// Options of a Builder.
type Options struct {
	Domain  string // cluster.local
	Cluster string // the ID of the server's own cluster; empty is Kubernetes
	Mesh    *mesh.Config
	Limits  limits.Limits // the zero Limits are limits.Default
}

// NewBuilder makes a Builder of an empty world.
func NewBuilder(o Options) *Builder {
	b := &Builder{mesh: o.Mesh, last: &Snapshot{
		tables: newTables(), derived: &sync.Map{}, Mesh: o.Mesh, Domain: o.Domain, Cluster: cmp.Or(o.Cluster, "Kubernetes"),
		RepeatedText: cmp.Or(o.Limits, limits.Default()).RepeatedText, HostClusters: cmp.Or(o.Limits, limits.Default()).HostClusters,
	}}
	b.reset()
	return b
}

func (b *Builder) reset() {
	b.now, b.edit = b.last.tables, &frozen.Edit{}
	b.delta = Diff{Triggers: map[string]int{}}
	b.arrived = map[ClusterAddress]bool{}
	b.services, b.endpoints, b.objects = map[registry.ServiceKey]*registry.Service{}, map[registry.ServiceKey]*Endpoints{}, map[kinds.Key]*kinds.Object{}
}

// SetMesh replaces the mesh configuration.
func (b *Builder) SetMesh(m *mesh.Config) {
	if m != b.mesh {
		b.mesh = m
		b.full("global", "mesh config")
	}
}

// Apply takes changes of configuration objects. A Snapshot keeps Istio's kinds alone: proxies and other control planes
// are sent nothing else. What other kinds mean reaches it as services, as mesh configuration, or as objects of Istio's
// kinds that were made of them; so a write to another kind makes no Snapshot by itself. An object that no translation
// reads is no reason to translate anew. An object that is the same to every reader keeps its old pointer. The objects of
// remote clusters are ignored.
func (b *Builder) Apply(changes []kinds.Change) {
	for _, c := range changes {
		if c.Cluster != "" || !c.Kind.Istio {
			continue
		}
		was := b.now.Object(c.Key)
		if was == c.Object || was != nil && c.Object != nil && config.Equal(was, c.Object) {
			continue
		}
		if len(b.objects) == 0 {
			b.now.objects = maps.Clone(b.now.objects)
		}
		if _, touched := b.objects[c.Key]; !touched {
			b.objects[c.Key] = was
		}
		b.now.replaceObject(b.edit, c.Kind, was, c.Object)
		if Translated(c.Kind) && !translatesAlike(was, c.Object) {
			b.full("config", c.Key.String())
		} else {
			b.delta.Objects = true
			b.name(c.Key.String())
		}
	}
}

// translatesAlike tells that two objects differ in nothing that a translation reads: labels and annotations it does not.
func translatesAlike(a, b *kinds.Object) bool {
	if a == nil || b == nil || !a.Created.Equal(b.Created) {
		return false
	}
	m, ok := a.Spec.(proto.Message)
	return ok && proto.Equal(m, b.Spec.(proto.Message))
}

// Translated tells the kinds that translations read as they are. Whoever makes one read another kind names it here: Index.Objects refuses those that are not named.
func Translated(k *kinds.Kind) bool {
	switch k {
	case kinds.VirtualService, kinds.DestinationRule, kinds.Sidecar, kinds.Gateway, kinds.PeerAuthentication, kinds.AuthorizationPolicy, kinds.RequestAuthentication:
		return true
	}
	return false
}

// ApplyRegistry takes what registries found different.
func (b *Builder) ApplyRegistry(c registry.Changes) {
	for k, s := range c.Services {
		old := b.now.Service(k)
		if old == s {
			continue
		}
		if _, touched := b.services[k]; !touched {
			b.services[k] = old
		}
		b.now.replaceService(b.edit, old, s)
		b.full("service", "Service "+k.Namespace+"/"+k.Host)
	}
	for k, w := range c.Workloads {
		old := b.now.Workload(k)
		if old == w {
			continue
		}
		if old != nil {
			for _, a := range old.Addresses {
				delete(b.arrived, ClusterAddress{k.Cluster, a})
			}
		}
		if w != nil {
			for _, a := range w.Addresses {
				b.arrived[ClusterAddress{k.Cluster, a}] = !w.HostNetwork
			}
		}
		b.now.replaceWorkload(b.edit, old, w)
		if !sameProxy(old, w) {
			b.delta.Workloads = append(b.delta.Workloads, k)
			b.cause("proxy", k.String())
		} else {
			b.delta.unnoticed = true
			b.name(k.String())
		}
	}
	for k, list := range c.Endpoints {
		b.applyEndpoints(k, list)
	}
}

// sameProxy tells that a proxy beside the workload is to be sent the same.
func sameProxy(a, b *registry.Workload) bool {
	return a != nil && b != nil && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Addresses, b.Addresses) && a.Locality == b.Locality &&
		a.Identity == b.Identity && a.NodeName == b.NodeName && a.Network == b.Network && a.Owner == b.Owner && maps.Equal(a.Ports, b.Ports) &&
		a.HostNetwork == b.HostNetwork
}

func (b *Builder) applyEndpoints(k registry.ServiceKey, list []*registry.Endpoint) {
	old, next := b.now.Endpoints(k), newEndpoints(list)
	if _, touched := b.endpoints[k]; !touched {
		b.endpoints[k] = old
		b.delta.Endpoints = append(b.delta.Endpoints, k)
	}
	if len(list) == 0 {
		b.now.endpoints.Delete(b.edit, ServiceEndpoints{ServiceKey: k})
	} else {
		b.now.endpoints.Put(b.edit, ServiceEndpoints{k, next})
	}
	s := b.now.Service(k)
	headless := headless(s)
	switch {
	case headless && !sameListeners(old.List, list):
		b.full("headlessendpoint", "endpoints of "+k.Host)
	case old.Identities != next.Identities, headless && old.TLS != next.TLS, s != nil && s.Resolution != registry.ClientSide && !s.Headless:
		b.full("endpoint", "endpoints of "+k.Host)
	default:
		trigger := "endpoint"
		if moved := b.moved(s, old.List, list); len(moved) > 0 {
			trigger = "proxy"
			b.delta.Addresses = append(b.delta.Addresses, moved...)
		}
		b.cause(trigger, "endpoints of "+k.Host)
	}
}

// headless tells a service that is so in some cluster.
func headless(s *registry.Service) bool {
	if s == nil {
		return false
	}
	for _, in := range s.Clusters {
		if in.Headless {
			return true
		}
	}
	return s.Headless
}

// sameListeners tells that a headless service's listeners, one for each address, stay as they are.
func sameListeners(a, b []*registry.Endpoint) bool {
	return slices.EqualFunc(a, b, func(x, y *registry.Endpoint) bool {
		return x.Address == y.Address && x.ServicePort == y.ServicePort && x.HostName == y.HostName
	})
}

// moved gives the addresses that began or ceased to serve a port of the service by the word of its endpoints alone: there the inbound half of a proxy changes.
// Where a selector names known workloads, their labels decide, and no endpoint does.
func (b *Builder) moved(s *registry.Service, old, list []*registry.Endpoint) []ClusterAddress {
	if s == nil {
		return nil
	}
	type serving struct {
		cluster, address, servicePort string
		port                          uint32
	}
	of := func(e *registry.Endpoint) serving { return serving{e.Cluster, e.Address, e.ServicePort, e.Port} }
	had, has := make(map[serving]bool, len(old)), make(map[serving]bool, len(list))
	for _, e := range old {
		had[of(e)] = true
	}
	var out []ClusterAddress
	look := func(e *registry.Endpoint, other map[serving]bool) {
		if !other[of(e)] && b.decides(s, e) {
			out = append(out, ClusterAddress{b.last.ClusterKey(e.Cluster), e.Address})
		}
	}
	for _, e := range list {
		has[of(e)] = true
		look(e, had)
	}
	for _, e := range old {
		look(e, has)
	}
	return out
}

// decides tells that nothing but the endpoint says whom the service of its cluster leads to. A workload that arrives together with its endpoint is known.
func (b *Builder) decides(s *registry.Service, e *registry.Endpoint) bool {
	at := ClusterAddress{b.last.ClusterKey(e.Cluster), e.Address}
	in := s.ClusterVersion(at.Cluster)
	return in != nil && (in.Selector == nil || b.last.workloadAt(at) == nil && !b.arrived[at])
}

func (b *Builder) full(trigger, cause string) {
	b.delta.Full = true
	b.cause(trigger, cause)
}

func (b *Builder) cause(trigger, cause string) {
	b.delta.Triggers[trigger]++
	b.name(cause)
}

// name says what changed, also where no proxy is sent anything for it.
func (b *Builder) name(cause string) {
	if len(b.delta.Causes) < MaxCauses && !slices.Contains(b.delta.Causes, cause) {
		b.delta.Causes = append(b.delta.Causes, cause)
	}
}

// Commit freezes what was applied since the last commit. received is when the first change of it arrived. Where nothing is different it gives the last Snapshot again.
func (b *Builder) Commit(received time.Time) *Snapshot {
	if !b.changed() {
		return b.last
	}
	s := *b.last
	s.Revision++
	s.derived = &sync.Map{}
	s.Mesh, s.Networks = b.mesh, b.networks
	b.edit.Done()
	s.tables = b.now
	s.Diff = b.delta
	s.Diff.Received = received
	s.Diff.Global = b.mesh != b.last.Mesh || b.networks != b.last.Networks
	for k, was := range b.services {
		if is := s.Service(k); is != was {
			s.Diff.Services = append(s.Diff.Services, ServiceChange{was, is})
		}
	}
	for k, was := range b.objects {
		if is := s.Object(k); is != was && Translated(k.Kind) && !translatesAlike(was, is) {
			s.Diff.Configs = append(s.Diff.Configs, ConfigChange{was, is})
		}
	}
	for k, was := range b.endpoints {
		s.Diff.OldEndpoints = append(s.Diff.OldEndpoints, ServiceEndpoints{k, was})
	}
	slices.SortFunc(s.Diff.Endpoints, func(a, b registry.ServiceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Host, b.Host))
	})
	slices.SortFunc(s.Diff.Workloads, registry.WorkloadKey.Compare)
	b.last = &s
	b.reset()
	return &s
}

// changed tells whether anything was applied since the last commit that differs from what was there.
func (b *Builder) changed() bool {
	d := &b.delta
	return b.last.Revision == 0 || d.Full || d.Objects || d.unnoticed || len(d.Endpoints)+len(d.Workloads) > 0 || b.mesh != b.last.Mesh || b.networks != b.last.Networks
}
