package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Builder makes one Snapshot after another. Called by one goroutine; what it commits is frozen.
type Builder struct {
	last    *Snapshot
	mesh    *mesh.Config
	delta   Delta
	touched map[string]*namespace // copies made since the last commit
	seen    map[registry.ServiceKey]bool
	arrived map[Place]bool    // addresses of workloads that came or changed since the last commit
	copied  map[*objects]bool // copies made since the last commit

	servicesChanged, workloadsChanged bool
}

// Options of a Builder.
type Options struct {
	Domain  string // cluster.local
	Cluster string // the ID of the server's own cluster; empty is Kubernetes
	Mesh    *mesh.Config
}

// NewBuilder makes a Builder of an empty world.
func NewBuilder(o Options) *Builder {
	b := &Builder{mesh: o.Mesh, last: &Snapshot{derived: &sync.Map{}, Mesh: o.Mesh, Domain: o.Domain, Cluster: cmp.Or(o.Cluster, "Kubernetes")}}
	b.reset()
	return b
}

func (b *Builder) reset() {
	b.delta = Delta{Triggers: map[string]int{}}
	b.touched = map[string]*namespace{}
	b.seen = map[registry.ServiceKey]bool{}
	b.arrived = map[Place]bool{}
	b.copied = map[*objects]bool{}
	b.servicesChanged, b.workloadsChanged = false, false
}

// SetMesh replaces the mesh configuration.
func (b *Builder) SetMesh(m *mesh.Config) {
	if m != b.mesh {
		b.mesh = m
		b.full("global", "mesh config")
	}
}

// Apply takes changes of configuration objects. Objects that only registries read are for ApplyRegistry; of them only Istio's own are kept here, and a
// change of one is no reason to translate anew. An object whose spec, labels and annotations are as before keeps its old pointer. The objects of remote
// clusters are ignored.
func (b *Builder) Apply(changes []kinds.Change) {
	for _, c := range changes {
		if c.Cluster != "" || !c.Kind.Istio && !translated(c.Kind) {
			continue
		}
		n := b.namespace(c.Namespace)
		o := n.objects[c.Kind]
		if o == nil {
			o = &objects{}
		}
		was := o.byName[c.Name]
		if was == c.Object || was != nil && c.Object != nil && config.Equal(was, c.Object) {
			continue
		}
		if !b.copied[o] {
			o = &objects{byName: maps.Clone(o.byName), sorted: slices.Clone(o.sorted)}
			b.copied[o] = true
			n.objects[c.Kind] = o
		}
		o.replace(c.Name, was, c.Object)
		if translated(c.Kind) {
			b.full(trigger(c.Kind), c.Key.String())
		} else {
			b.delta.Objects = true
		}
	}
}

// replace puts an object in the place of another. Either may be nil.
func (o *objects) replace(name string, was, is *kinds.Object) {
	if was != nil {
		i, _ := slices.BinarySearchFunc(o.sorted, was, byPrecedence)
		o.sorted = slices.Delete(o.sorted, i, i+1)
		delete(o.byName, name)
	}
	if is != nil {
		if o.byName == nil {
			o.byName = map[string]*kinds.Object{}
		}
		o.byName[name] = is
		i, _ := slices.BinarySearchFunc(o.sorted, is, byPrecedence)
		o.sorted = slices.Insert(o.sorted, i, is)
	}
}

// translated tells kinds that translations read as they are.
func translated(k *kinds.Kind) bool {
	switch k {
	case kinds.Service, kinds.EndpointSlice, kinds.Pod, kinds.Node, kinds.ServiceEntry, kinds.WorkloadEntry, kinds.WorkloadGroup, kinds.ConfigMap:
		return false
	}
	return true
}

func trigger(k *kinds.Kind) string {
	switch k {
	case kinds.Secret:
		return "secret"
	case kinds.Namespace:
		return "namespace"
	}
	return "config"
}

// ApplyRegistry takes what registries found different.
func (b *Builder) ApplyRegistry(c registry.Changes) {
	for k, s := range c.Services {
		n := b.namespace(k.Namespace)
		if n.services[k.Host] == s {
			continue
		}
		if s == nil {
			delete(n.services, k.Host)
		} else {
			n.services[k.Host] = s
		}
		b.servicesChanged = true
		b.full("service", "Service "+k.Namespace+"/"+k.Host)
	}
	for k, w := range c.Workloads {
		n := b.namespace(k.Namespace)
		old := n.workloads[k]
		if old == w {
			continue
		}
		if old != nil {
			for _, a := range old.Addresses {
				delete(b.arrived, Place{k.Cluster, a})
			}
		}
		if w == nil {
			delete(n.workloads, k)
		} else {
			n.workloads[k] = w
			for _, a := range w.Addresses {
				b.arrived[Place{k.Cluster, a}] = !w.HostNetwork
			}
		}
		b.workloadsChanged = true
		if !sameProxy(old, w) {
			b.delta.Workloads = append(b.delta.Workloads, k)
			b.cause("proxy", k.String())
		}
	}
	for k, list := range c.Endpoints {
		b.endpoints(k, list)
	}
}

// sameProxy tells that a proxy beside the workload is to be sent the same.
func sameProxy(a, b *registry.Workload) bool {
	return a != nil && b != nil && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Addresses, b.Addresses) && a.Locality == b.Locality &&
		a.Identity == b.Identity && a.NodeName == b.NodeName && a.Network == b.Network && a.Owner == b.Owner && maps.Equal(a.Ports, b.Ports) &&
		a.HostNetwork == b.HostNetwork
}

func (b *Builder) endpoints(k registry.ServiceKey, list []*registry.Endpoint) {
	n := b.namespace(k.Namespace)
	old := n.endpoints[k.Host]
	if old == nil {
		old = noEndpoints
	}
	next := newEndpoints(list)
	if len(list) == 0 {
		delete(n.endpoints, k.Host)
	} else {
		n.endpoints[k.Host] = next
	}
	s := n.services[k.Host]
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
	if !b.seen[k] {
		b.seen[k] = true
		b.delta.Endpoints = append(b.delta.Endpoints, k)
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
func (b *Builder) moved(s *registry.Service, old, list []*registry.Endpoint) []Place {
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
	var out []Place
	look := func(e *registry.Endpoint, other map[serving]bool) {
		if !other[of(e)] && b.decides(s, e) {
			out = append(out, Place{b.last.ClusterKey(e.Cluster), e.Address})
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
	at := Place{b.last.ClusterKey(e.Cluster), e.Address}
	in := s.In(at.Cluster)
	return in != nil && (in.Selector == nil || b.last.byAddress[at] == nil && !b.arrived[at])
}

func (b *Builder) full(trigger, cause string) {
	b.delta.Full = true
	b.cause(trigger, cause)
}

func (b *Builder) cause(trigger, cause string) {
	b.delta.Triggers[trigger]++
	if len(b.delta.Causes) < MaxCauses && !slices.Contains(b.delta.Causes, cause) {
		b.delta.Causes = append(b.delta.Causes, cause)
	}
}

// namespace gives a copy that may be written until the commit.
func (b *Builder) namespace(name string) *namespace {
	if n := b.touched[name]; n != nil {
		return n
	}
	n := &namespace{services: map[string]*registry.Service{}, endpoints: map[string]*Endpoints{}, workloads: map[registry.WorkloadKey]*registry.Workload{}, objects: map[*kinds.Kind]*objects{}}
	if old := b.last.namespaces[name]; old != nil {
		n = &namespace{maps.Clone(old.services), maps.Clone(old.endpoints), maps.Clone(old.workloads), maps.Clone(old.objects)}
	}
	b.touched[name] = n
	return n
}

// Commit freezes what was applied since the last commit. received is when the first change of it arrived.
func (b *Builder) Commit(received time.Time) *Snapshot {
	s := *b.last
	s.Revision++
	s.derived = &sync.Map{}
	s.Delta = b.delta
	s.Delta.Received = received
	s.Mesh = b.mesh
	s.namespaces = maps.Clone(b.last.namespaces)
	if s.namespaces == nil {
		s.namespaces = map[string]*namespace{}
	}
	maps.Copy(s.namespaces, b.touched)
	if b.servicesChanged {
		s.indexServices()
	}
	if b.workloadsChanged {
		s.indexWorkloads()
	}
	slices.SortFunc(s.Delta.Endpoints, func(a, b registry.ServiceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Host, b.Host))
	})
	slices.SortFunc(s.Delta.Workloads, registry.WorkloadKey.Compare)
	b.last = &s
	b.reset()
	return &s
}

func (s *Snapshot) indexServices() {
	s.services = nil
	for _, n := range s.namespaces {
		for _, svc := range n.services {
			s.services = append(s.services, svc)
		}
	}
	slices.SortFunc(s.services, byServicePrecedence)
	s.byHost = make(map[string][]*registry.Service, len(s.services))
	for _, svc := range s.services {
		s.byHost[svc.Host] = append(s.byHost[svc.Host], svc)
	}
}

func (s *Snapshot) indexWorkloads() {
	s.byAddress = map[Place]*registry.Workload{}
	for _, n := range s.namespaces {
		for _, w := range n.workloads {
			if w.HostNetwork {
				continue
			}
			for _, a := range w.Addresses {
				at := Place{w.WorkloadKey.Cluster, a}
				if old := s.byAddress[at]; old == nil || w.WorkloadKey.Compare(old.WorkloadKey) < 0 {
					s.byAddress[at] = w
				}
			}
		}
	}
}
