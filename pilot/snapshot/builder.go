package snapshot

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Builder makes a sequence of Snapshots. Only one goroutine may use it. The Snapshots are immutable.
type Builder struct {
	last         *Snapshot
	mesh         *mesh.Config
	networks     *Networks
	shared       *SharedSecrets
	roots        frozen.List[string]
	current      tables // tables as of the last Apply
	edit         *frozen.Edit
	diff         Diff
	newAddresses map[ClusterAddress]bool // addresses of workloads added or changed since the last commit

	// Old values of everything that changed since the last commit; nil if it did not exist.
	oldServices  map[registry.ServiceKey]*registry.Service
	oldEndpoints map[registry.ServiceKey]*Endpoints
	oldObjects   map[kinds.Key]*kinds.Object
	oldFacts     map[kinds.Key]*kinds.Object

	catalog  Catalog                      // nil if no object needs facts
	wanted   map[*kinds.Kind][]facts.Need // cache of Wanted
	unwanted []kinds.Key                  // facts that an object no longer needs, since the last commit
}

// Catalog describes how translations use objects.
type Catalog interface {
	// Kinds returns the kinds that translations read, and which proxies a change of an object affects.
	Kinds() map[*kinds.Kind]Reach
	// Wants returns the facts that translations of an object need. The result must depend only on the object.
	Wants(*kinds.Object) []facts.Want
}

// Options configure a Builder.
type Options struct {
	Domain  string // such as cluster.local
	Cluster string // ID of the server's own cluster; default Kubernetes
	// OneStore is true if there is no API server, so that proxies of all clusters have the same Secrets and ConfigMaps.
	OneStore bool
	Settings
	Mesh   *mesh.Config
	Limits limits.Limits // limits; the zero value means limits.Default
	// Catalog is nil if translations may read every object, each change affects all proxies, and no object needs facts.
	Catalog Catalog
}

// Reach says which proxies a change of an object affects.
type Reach int

// Values of Reach.
const (
	Unread     Reach = iota // none: no translation reads the kind
	Scoped                  // package scope decides by the spec; nothing else of the object is read
	Selected                // proxies of its namespace, or all proxies if that is the root namespace
	Everywhere              // all proxies
	Subscribed              // proxies that subscribe to the resource of its name
)

// NewBuilder returns a Builder without content.
func NewBuilder(o Options) *Builder {
	b := &Builder{mesh: o.Mesh, catalog: o.Catalog, wanted: map[*kinds.Kind][]facts.Need{}, last: &Snapshot{
		tables: newTables(), cached: &sync.Map{}, Mesh: o.Mesh, Domain: o.Domain, Cluster: cmp.Or(o.Cluster, "Kubernetes"),
		OneStore: o.OneStore, Settings: o.Settings, RepeatedText: cmp.Or(o.Limits, limits.Default()).RepeatedText,
		HostClusters: cmp.Or(o.Limits, limits.Default()).HostClusters,
	}}
	if o.Catalog != nil {
		b.last.reach = o.Catalog.Kinds()
	}
	b.reset()
	return b
}

func (b *Builder) reset() {
	b.current, b.edit = b.last.tables, &frozen.Edit{}
	b.diff = Diff{Triggers: map[string]int{}}
	b.newAddresses = map[ClusterAddress]bool{}
	b.oldServices, b.oldEndpoints = map[registry.ServiceKey]*registry.Service{}, map[registry.ServiceKey]*Endpoints{}
	b.oldObjects = map[kinds.Key]*kinds.Object{}
	b.oldFacts, b.unwanted = map[kinds.Key]*kinds.Object{}, nil
}

// SetMesh replaces the mesh configuration.
func (b *Builder) SetMesh(m *mesh.Config) {
	if m != b.mesh {
		b.mesh = m
		b.markFull("global", "mesh config")
	}
}

// SetRoots replaces the roots, as PEM texts, that proxies trust besides the issuer of their own certificates.
func (b *Builder) SetRoots(roots []string) {
	if list := frozen.ListOf(roots...); list != b.roots {
		b.roots = list
		b.markFull("global", "roots that proxies trust")
	}
}

// Apply applies changes of configuration objects. A Snapshot has objects of Istio's kinds, which are all that proxies
// and other control planes are sent, and objects that proxies name. Other kinds are turned into services, mesh
// configuration or derived objects before, so a write to such an object alone makes no Snapshot. A change that no
// translation reads causes no translation. An object with equal content keeps its old pointer. From remote clusters,
// only objects that proxies name are used.
func (b *Builder) Apply(changes []kinds.Change) {
	for _, c := range changes {
		subscribed := b.last.Subscribed(c.Kind)
		if !subscribed && (c.Cluster != "" || !c.Kind.Istio) {
			continue
		}
		was := b.current.Object(c.Key)
		if was == c.Object || was != nil && c.Object != nil && config.Equal(was, c.Object) {
			continue
		}
		if len(b.oldObjects) == 0 {
			b.current.objects = maps.Clone(b.current.objects)
		}
		if _, touched := b.oldObjects[c.Key]; !touched {
			b.oldObjects[c.Key] = was
		}
		b.current.replaceObject(b.edit, c.Kind, was, c.Object)
		b.replaceWants(was, c.Object)
		if subscribed {
			b.diff.Secrets = true
			b.addTrigger("secret", c.Key.String())
		} else if !b.last.sameTranslation(c.Kind, was, c.Object) {
			b.markFull("config", c.Key.String())
		} else {
			b.diff.Objects = true
			b.addCause(c.Key.String())
		}
	}
}

// sameTranslation reports whether two objects of a kind are equal in everything that translations read.
func (s *Snapshot) sameTranslation(kind *kinds.Kind, a, b *kinds.Object) bool {
	switch r := s.Reach(kind); {
	case r == Unread:
		return true
	case r != Scoped && a != nil && b != nil && !(maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)):
		return false
	}
	if a == nil || b == nil || !a.Created.Equal(b.Created) ||
		a.Annotations[kinds.AnnotationRouteSemantics] != b.Annotations[kinds.AnnotationRouteSemantics] ||
		!reflect.DeepEqual(a.Extra, b.Extra) {
		return false
	}
	m, ok := a.Spec.(proto.Message)
	return ok && proto.Equal(m, b.Spec.(proto.Message))
}

// ApplyRegistry applies the changes of the registries.
func (b *Builder) ApplyRegistry(c registry.Changes) {
	for k, s := range c.Services {
		old := b.current.Service(k)
		if old == s {
			continue
		}
		if _, touched := b.oldServices[k]; !touched {
			b.oldServices[k] = old
		}
		b.current.replaceService(b.edit, old, s)
		b.markFull("service", "Service "+k.Namespace+"/"+k.Host)
	}
	for k, w := range c.Workloads {
		old := b.current.Workload(k)
		if old == w {
			continue
		}
		if old != nil {
			for _, a := range old.Addresses {
				delete(b.newAddresses, ClusterAddress{k.Cluster, a})
			}
		}
		if w != nil {
			for _, a := range w.Addresses {
				b.newAddresses[ClusterAddress{k.Cluster, a}] = !w.HostNetwork
			}
		}
		b.current.replaceWorkload(b.edit, old, w)
		if !sameProxyConfig(old, w) {
			b.diff.Workloads = append(b.diff.Workloads, k)
			b.addTrigger("proxy", k.String())
		} else {
			b.diff.unsentWorkload = true
			b.addCause(k.String())
		}
	}
	for k, list := range c.Endpoints {
		b.applyEndpoints(k, list)
	}
}

// sameProxyConfig reports whether a workload's change has no effect on its proxy's configuration.
func sameProxyConfig(a, b *registry.Workload) bool {
	return a != nil && b != nil && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Addresses, b.Addresses) && a.Locality == b.Locality &&
		a.Identity == b.Identity && a.NodeName == b.NodeName && a.Network == b.Network && a.Owner == b.Owner && maps.Equal(a.Ports, b.Ports) &&
		a.HostNetwork == b.HostNetwork
}

func (b *Builder) applyEndpoints(k registry.ServiceKey, list []*registry.Endpoint) {
	old, next := b.current.Endpoints(k), newEndpoints(list)
	if _, touched := b.oldEndpoints[k]; !touched {
		b.oldEndpoints[k] = old
		b.diff.Endpoints = append(b.diff.Endpoints, k)
	}
	if len(list) == 0 {
		b.current.endpoints.Delete(b.edit, ServiceEndpoints{ServiceKey: k})
	} else {
		b.current.endpoints.Put(b.edit, ServiceEndpoints{k, next})
	}
	s := b.current.Service(k)
	trigger := "endpoint"
	if moved := b.servingChanges(s, old.List, list); len(moved) > 0 {
		trigger = "proxy"
		b.diff.Addresses = append(b.diff.Addresses, moved...)
	}
	if isHeadless(s) {
		trigger = "headlessendpoint"
	}
	b.addTrigger(trigger, "endpoints of "+k.Host)
}

// isHeadless reports whether a service is headless in any cluster.
func isHeadless(s *registry.Service) bool {
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

// servingChanges returns the addresses that start or stop serving a port of the service because of its endpoints alone.
// The inbound configuration of a proxy at such an address changes. If a selector matches a known workload, the
// workload's labels decide instead.
func (b *Builder) servingChanges(s *registry.Service, old, list []*registry.Endpoint) []ClusterAddress {
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
		if !other[of(e)] && b.servedByAddress(s, e) {
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

// servedByAddress reports whether only an endpoint's address connects a workload to the service in the endpoint's
// cluster. A workload that is added together with its endpoint is a known workload.
func (b *Builder) servedByAddress(s *registry.Service, e *registry.Endpoint) bool {
	at := ClusterAddress{b.last.ClusterKey(e.Cluster), e.Address}
	in := s.ClusterVersion(at.Cluster)
	return in != nil && (in.Selector == nil || b.last.workloadByAddress(at) == nil && !b.newAddresses[at])
}

func (b *Builder) markFull(trigger, cause string) {
	b.diff.Full = true
	b.addTrigger(trigger, cause)
}

func (b *Builder) addTrigger(trigger, cause string) {
	b.diff.Triggers[trigger]++
	b.addCause(cause)
}

// addCause records the name of a changed object, even if no proxy is sent anything for it.
func (b *Builder) addCause(cause string) {
	if len(b.diff.Causes) < MaxCauses && !slices.Contains(b.diff.Causes, cause) {
		b.diff.Causes = append(b.diff.Causes, cause)
	}
}

// Commit freezes the changes since the last commit and returns the Snapshot. received is the arrival time of the first
// change. Without a change it returns the last Snapshot.
func (b *Builder) Commit(received time.Time) *Snapshot {
	b.forgetFacts()
	if !b.changed() {
		return b.last
	}
	s := *b.last
	s.Revision++
	s.cached = &sync.Map{}
	s.Mesh, s.Networks, s.Shared, s.roots = b.mesh, b.networks, b.shared, b.roots
	b.edit.Done()
	s.tables = b.current
	s.Diff = b.diff
	s.Diff.Received = received
	s.Diff.Global = b.mesh != b.last.Mesh || b.networks != b.last.Networks
	s.Diff.Roots = b.roots != b.last.roots
	for k, was := range b.oldServices {
		if is := s.Service(k); is != was {
			s.Diff.Services = append(s.Diff.Services, ServiceChange{was, is})
		}
	}
	for k, was := range b.oldObjects {
		if is := s.Object(k); is != was && !s.sameTranslation(k.Kind, was, is) {
			s.Diff.Configs = append(s.Diff.Configs, ConfigChange{was, is})
		}
	}
	s.Diff.Facts = b.factChanges()
	for k, was := range b.oldEndpoints {
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

// changed reports whether anything has changed since the last commit.
func (b *Builder) changed() bool {
	d := &b.diff
	return b.last.Revision == 0 || d.Full || d.Objects || d.Secrets || d.unsentWorkload || len(d.Endpoints)+len(d.Workloads) > 0 ||
		b.mesh != b.last.Mesh || b.networks != b.last.Networks
}
