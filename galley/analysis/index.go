package analysis

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// index holds the objects by the names, labels and hosts that references use.
type index struct {
	domain, root string
	mesh         *mesh.Config
	options      Options

	visibility *mesh.EntryVisibility
	labels     map[string]map[string]string // labels of namespaces by name; kept only for visibility

	objects   []*kinds.Object // by kind, then by precedence, like the lists of one kind below
	routes    []*kinds.Object // VirtualServices
	judged    []*kinds.Object // VirtualServices about which findings are wanted
	rules     []*kinds.Object // DestinationRules
	selecting []*kinds.Object // objects of kinds with selectors
	services  []*kinds.Object // Services
	pods      []*workload
	ended     []*kinds.Object // Pods that have ended

	injections map[string]injectionState // by namespace; nil until the first request

	hosts     map[string][]*host  // by full name
	mostPorts int                 // largest number of ports of a host
	byName    map[string][]string // namespaces of the Services with a name
	inside    map[string][]string // names of Services by namespace
	outside   []string            // hosts of ServiceEntries
	// wildcards has the hosts of ServiceEntries with a wildcard, the first by precedence, keyed by the part behind the
	// star.
	wildcards map[string]*host
	ruled     map[string][]*kinds.Object // DestinationRules by full host or pattern
	ends      map[string]bool            // part behind the star of each pattern in ruled
	// ruledIn has the namespace and the full host or pattern of each DestinationRule that is for all workloads.
	ruledIn  map[ruledHost]bool
	byKey    map[kinds.Key]*kinds.Object // Gateways, also of the Gateway API, and VirtualServices
	gateways []string                    // "ns/name" of each Gateway
	homes    map[string]string           // first of gateways with a name
	siblings map[string][]string         // names of VirtualServices by namespace

	workloads  map[string][]*workload // by namespace
	namespaces []string               // namespaces with workloads
	wanted     map[pair]bool          // labels of all selectors
	labelled   map[label][]*workload  // workloads by each label in wanted
	slices     map[string][]Slice     // EndpointSlices with endpoints, by "ns/name" of their Service
	backwards  []string               // result of sortedBackwards

	selections map[selectionKey]*selection
	portsOf    map[string]*hostPorts
	defined    map[subsetKey]*kinds.Object // first DestinationRule that defines a subset, by pattern
	inForce    map[caller]map[string]bool
}

// host is one host of a Service or ServiceEntry.
type host struct {
	name     string
	object   *kinds.Object
	exportTo []string
	ports    []uint32
}

// pair is one label.
type pair struct{ key, value string }

// label is a label of workloads of a namespace.
type label struct {
	namespace string
	pair
}

// workload is an object that selectors select.
type workload struct {
	name   string
	object *kinds.Object
	labels map[string]string
	pod    *Pod // nil for a WorkloadEntry or WorkloadGroup
}

func newIndex(objects []*kinds.Object, o Options) *index {
	m := o.Mesh
	if m == nil {
		m = mesh.Default()
	}
	// Sort, so that the same objects give the same findings and hints in any input order.
	objects = slices.SortedFunc(slices.Values(objects), func(a, b *kinds.Object) int {
		if a.Kind.Name != b.Kind.Name {
			return cmp.Compare(a.Kind.Name, b.Kind.Name)
		}
		return cmp.Or(byPrecedence(a, b), cmp.Compare(a.Cluster, b.Cluster))
	})
	x := &index{
		domain: o.Domain, root: m.GetRootNamespace(), mesh: m, options: o, objects: objects,
		hosts: map[string][]*host{}, byName: map[string][]string{}, inside: map[string][]string{},
		ruled: map[string][]*kinds.Object{}, ruledIn: map[ruledHost]bool{}, byKey: map[kinds.Key]*kinds.Object{},
		workloads: map[string][]*workload{}, wanted: map[pair]bool{}, labelled: map[label][]*workload{}, slices: map[string][]Slice{},
		wildcards: map[string]*host{}, ends: map[string]bool{}, homes: map[string]string{}, siblings: map[string][]string{},
		selections: map[selectionKey]*selection{}, portsOf: map[string]*hostPorts{},
		defined: map[subsetKey]*kinds.Object{}, inForce: map[caller]map[string]bool{},
		visibility: m.EntryVisibility(), labels: map[string]map[string]string{},
	}
	for _, o := range objects {
		if o.Kind == kinds.Namespace && o.Cluster == "" && x.visibility != nil {
			x.labels[o.Name] = o.Labels
		}
	}
	for _, o := range objects {
		x.add(o)
	}
	for _, o := range objects {
		x.addWorkload(o)
	}
	for _, list := range x.hosts { // of Services and ServiceEntries
		slices.SortStableFunc(list, func(a, b *host) int { return byPrecedence(a.object, b.object) })
	}
	for _, list := range x.byName {
		slices.Sort(list)
	}
	x.namespaces = slices.Sorted(maps.Keys(x.workloads))
	return x
}

func (x *index) add(o *kinds.Object) {
	switch o.Kind {
	case kinds.Service:
		spec := &o.Spec.(*corev1.Service).Spec
		h := &host{name: names.FQDN(o.Name, o.Namespace, x.domain), object: o}
		for e := range strings.SplitSeq(o.Annotations[names.AnnotationExportTo], ",") {
			if e = strings.TrimSpace(e); e != "" {
				h.exportTo = append(h.exportTo, e)
			}
		}
		for i := range spec.Ports {
			h.ports = append(h.ports, uint32(spec.Ports[i].Port)) //nolint:gosec // validated
		}
		x.hosts[h.name] = append(x.hosts[h.name], h)
		x.mostPorts = max(x.mostPorts, len(h.ports))
		x.byName[o.Name] = append(x.byName[o.Name], o.Namespace)
		x.inside[o.Namespace] = append(x.inside[o.Namespace], o.Name)
		x.services = append(x.services, o)
	case kinds.ServiceImport:
		x.addImport(o)
	case kinds.ServiceEntry:
		spec := o.Spec.(*networkingv1.ServiceEntry)
		for _, name := range spec.Hosts {
			h := &host{name: names.FQDN(name, "", x.domain), object: o, exportTo: x.entryExports(o)}
			for _, p := range spec.Ports {
				h.ports = append(h.ports, p.Number)
			}
			x.hosts[h.name] = append(x.hosts[h.name], h)
			x.mostPorts = max(x.mostPorts, len(h.ports))
			if strings.HasPrefix(h.name, "*") {
				if end := h.name[1:]; x.wildcards[end] == nil || byPrecedence(o, x.wildcards[end].object) < 0 {
					x.wildcards[end] = h
				}
			} else {
				x.outside = append(x.outside, h.name)
			}
		}
	case kinds.DestinationRule:
		x.rules = append(x.rules, o)
		name := names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, x.domain)
		if end, wild := strings.CutPrefix(name, "*"); wild {
			x.ends[end] = true
		}
		for _, s := range o.Spec.(*networkingv1.DestinationRule).Subsets {
			for k, v := range s.Labels {
				x.wanted[pair{k, v}] = true
			}
			if key := (subsetKey{name, s.Name}); x.defined[key] == nil || byPrecedence(o, x.defined[key]) < 0 {
				x.defined[key] = o
			}
		}
		x.ruled[name] = append(x.ruled[name], o)
		if o.Spec.(*networkingv1.DestinationRule).WorkloadSelector == nil {
			x.ruledIn[ruledHost{o.Namespace, name}] = true
		}
	case kinds.VirtualService:
		x.routes = append(x.routes, o)
		if x.concerns(o) {
			x.judged = append(x.judged, o)
		}
		x.siblings[o.Namespace] = append(x.siblings[o.Namespace], o.Name)
		x.byKey[o.Key] = o
	case kinds.Gateway:
		name := o.Namespace + "/" + o.Name
		x.gateways = append(x.gateways, name)
		if first := x.homes[o.Name]; first == "" || name < first {
			x.homes[o.Name] = name
		}
		x.byKey[o.Key] = o
	case kinds.KubeGateway:
		x.byKey[o.Key] = o
	case kinds.EndpointSlice:
		if f := x.slice(o); f.Service != "" && f.Endpoints > 0 {
			x.slices[o.Namespace+"/"+f.Service] = append(x.slices[o.Namespace+"/"+f.Service], f)
		}
	}
	if _, labels := selectorOf(o); len(labels) > 0 {
		x.selecting = append(x.selecting, o)
		for k, v := range labels {
			x.wanted[pair{k, v}] = true
		}
	}
}

func (x *index) addWorkload(o *kinds.Object) {
	w := &workload{name: o.Name, object: o}
	switch o.Kind {
	case kinds.Pod:
		pod := x.pod(o)
		if pod.Ended {
			x.ended = append(x.ended, o)
			return
		}
		w.labels, w.pod = o.Labels, &pod
		x.pods = append(x.pods, w)
	case kinds.WorkloadEntry:
		w.labels = joined(o.Labels, o.Spec.(*networkingv1.WorkloadEntry).Labels)
	case kinds.WorkloadGroup: // entries of a group may appear at any time
		spec := o.Spec.(*networkingv1.WorkloadGroup)
		w.labels = joined(spec.GetMetadata().GetLabels(), spec.GetTemplate().GetLabels())
	default:
		return
	}
	x.workloads[o.Namespace] = append(x.workloads[o.Namespace], w)
	for k, v := range w.labels {
		if p := (pair{k, v}); x.wanted[p] {
			l := label{o.Namespace, p}
			x.labelled[l] = append(x.labelled[l], w)
		}
	}
}

// gatewayNamed returns the Gateway of a name "namespace/name", or nil.
func (x *index) gatewayNamed(name string) *kinds.Object {
	ns, short, _ := strings.Cut(name, "/")
	return x.byKey[kinds.Key{Kind: kinds.Gateway, Namespace: ns, Name: short}]
}

// pod reads a Pod in the form that its source provides.
func (x *index) pod(o *kinds.Object) Pod {
	if p, whole := o.Spec.(*corev1.Pod); whole {
		return podOf(p)
	}
	return x.options.World.Pod(o)
}

// slice reads an EndpointSlice in the form that its source provides.
func (x *index) slice(o *kinds.Object) Slice {
	if s, whole := o.Spec.(*discoveryv1.EndpointSlice); whole {
		return sliceOf(o, s)
	}
	return x.options.World.Slice(o)
}

// joined returns the union of two sets of labels. Labels of b take precedence.
func joined(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// under reports whether a pattern covers some host.
func (x *index) under(pattern string) bool {
	sorted, end := x.sortedBackwards(), backwards(strings.TrimPrefix(pattern, "*"))
	i, found := slices.BinarySearch(sorted, end)
	if found {
		i++ // the name of a host behind the part that the star stands for
	}
	return i < len(sorted) && strings.HasPrefix(sorted[i], end)
}

// hostsUnder yields the hosts that a host or pattern covers.
func (x *index) hostsUnder(pattern string) iter.Seq[*host] {
	return func(yield func(*host) bool) {
		end, wild := strings.CutPrefix(pattern, "*")
		if !wild {
			slices.Values(x.hosts[pattern])(yield)
			return
		}
		end = backwards(end)
		sorted := x.sortedBackwards()
		i, _ := slices.BinarySearch(sorted, end)
		for ; i < len(sorted) && strings.HasPrefix(sorted[i], end); i++ {
			name := backwards(sorted[i])
			if !names.Covers(pattern, name) {
				continue
			}
			for _, h := range x.hosts[name] {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// sortedBackwards returns the hosts reversed and sorted.
func (x *index) sortedBackwards() []string {
	if x.backwards == nil {
		for name := range x.hosts {
			x.backwards = append(x.backwards, backwards(name))
		}
		slices.Sort(x.backwards)
	}
	return x.backwards
}

// backwards returns the bytes of a host in reverse order, so that sorting puts hosts with a common suffix together.
func backwards(name string) string {
	b := []byte(name)
	slices.Reverse(b)
	return string(b)
}

// wildcard returns the most specific host with a wildcard that covers a name, or nil.
func (x *index) wildcard(name string) *host {
	for i := 1; i <= len(name); i++ {
		if h := x.wildcards[name[i:]]; h != nil {
			return h
		}
	}
	return nil
}

// subsetKey is a subset of a host or pattern.
type subsetKey struct{ pattern, name string }

// caller describes the clients that DestinationRules are looked up for: proxies of a namespace that call a host of
// namespace own.
type caller struct{ namespace, own, host string }

// subsetsFor returns the subsets that are in force when proxies of a namespace call a host. They come from the rules of
// the caller's namespace, else of the host's, else of the root namespace; within each from the rules for the most
// specific host. Rules with a workload selector, which apply to some callers only, are included.
func (x *index) subsetsFor(c caller) map[string]bool {
	list, known := x.inForce[c]
	if !known {
		list = map[string]bool{}
		for _, o := range x.rulesFor(c) {
			for _, s := range o.Spec.(*networkingv1.DestinationRule).Subsets {
				list[s.Name] = true
			}
		}
		x.inForce[c] = list
	}
	return list
}

func (x *index) rulesFor(c caller) []*kinds.Object {
	spaces := []string{c.namespace, c.own, x.root}
	if c.namespace == x.root {
		spaces = spaces[1:]
	}
	for _, ns := range spaces {
		for pattern := range x.patterns(c.host) {
			var list []*kinds.Object
			for _, o := range x.ruled[pattern] {
				if o.Namespace == ns &&
					exported(o.Spec.(*networkingv1.DestinationRule).ExportTo, x.mesh.GetDefaultDestinationRuleExportTo(), ns, c.namespace) {
					list = append(list, o)
				}
			}
			if len(list) > 0 {
				return list
			}
		}
	}
	return nil
}

// hostPorts are the ports of all Services and ServiceEntries of a host.
type hostPorts struct {
	numbers map[uint32]bool
	text    string // the ports as findings list them
}

func (x *index) ports(name string) *hostPorts {
	p := x.portsOf[name]
	if p == nil {
		p = &hostPorts{numbers: map[uint32]bool{}}
		var list []string
		for _, h := range x.hosts[name] {
			for _, n := range h.ports {
				p.numbers[n] = true
				list = append(list, strconv.FormatUint(uint64(n), 10))
			}
		}
		p.text = listed(list)
		x.portsOf[name] = p
	}
	return p
}

// ruledHost is a host or pattern for which a namespace has a DestinationRule.
type ruledHost struct{ namespace, pattern string }

// ruledBy yields the hosts that a DestinationRule is for: it covers them, and its namespace has no DestinationRule with
// a more specific host.
func (x *index) ruledBy(o *kinds.Object) iter.Seq[*host] {
	own := names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, x.domain)
	return func(yield func(*host) bool) {
		for h := range x.hostsUnder(own) {
			for pattern := range x.patterns(h.name) {
				if pattern == own {
					if !yield(h) {
						return
					}
					break
				}
				if x.ruledIn[ruledHost{o.Namespace, pattern}] {
					break
				}
			}
		}
	}
}

// patterns yields a host and the patterns of DestinationRules that cover it, the most specific first.
func (x *index) patterns(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(name) {
			return
		}
		for i := range len(name) + 1 {
			if x.ends[name[i:]] && !yield("*"+name[i:]) {
				return
			}
		}
	}
}
