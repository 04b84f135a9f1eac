package analysis

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// index holds the objects by what they are looked up by.
type index struct {
	domain, root string
	mesh         *mesh.Config
	options      Options

	routes    []*kinds.Object // VirtualServices
	rules     []*kinds.Object // DestinationRules
	selecting []*kinds.Object // those that may have a selector
	services  []*kinds.Object // Services

	hosts     map[string][]*host          // by whole name
	byName    map[string][]string         // the namespaces that have a Service of that name
	inside    map[string][]string         // the names of Services by namespace
	outside   []string                    // hosts of ServiceEntries
	wildcards []*host                     // of ServiceEntries
	ruled     map[string][]*kinds.Object  // DestinationRules by whole host; the patterns too
	partial   []string                    // of ruled: patterns in which the star is a part of a label
	byKey     map[kinds.Key]*kinds.Object // Gateways and VirtualServices
	gateways  []string                    // "ns/name" of each

	workloads  map[string][]*workload // by namespace
	namespaces []string               // that have workloads
	wanted     map[pair]bool          // the labels of all selectors
	labelled   map[label][]*workload  // by each label that is wanted
	slices     map[string][]Slice     // with endpoints, by "ns/name" of their Service
	suffixes   map[string]bool        // of hosts, for patterns; made when somebody asks
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

// label is one label of workloads of a namespace.
type label struct {
	namespace string
	pair
}

// workload is something that selectors select.
type workload struct {
	name   string
	labels map[string]string
	pod    *Pod // nil: a WorkloadEntry or WorkloadGroup
}

func newIndex(objects []*kinds.Object, o Options) *index {
	m := o.Mesh
	if m == nil {
		m = mesh.Default()
	}
	x := &index{
		domain: o.Domain, root: m.GetRootNamespace(), mesh: m, options: o,
		hosts: map[string][]*host{}, byName: map[string][]string{}, inside: map[string][]string{}, ruled: map[string][]*kinds.Object{}, byKey: map[kinds.Key]*kinds.Object{},
		workloads: map[string][]*workload{}, wanted: map[pair]bool{}, labelled: map[label][]*workload{}, slices: map[string][]Slice{},
	}
	for _, o := range objects {
		x.add(o)
	}
	for _, o := range objects {
		x.addWorkload(o)
	}
	// The same objects give the same findings and hints, in whichever order they came.
	for _, list := range [][]*kinds.Object{x.routes, x.rules, x.services, x.selecting} {
		slices.SortFunc(list, byPrecedence)
	}
	for _, list := range x.hosts {
		slices.SortFunc(list, func(a, b *host) int { return byPrecedence(a.object, b.object) })
	}
	for _, list := range x.ruled {
		slices.SortFunc(list, byPrecedence)
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
		for e := range strings.SplitSeq(o.Annotations["networking.istio.io/exportTo"], ",") {
			if e = strings.TrimSpace(e); e != "" {
				h.exportTo = append(h.exportTo, e)
			}
		}
		for i := range spec.Ports {
			h.ports = append(h.ports, uint32(spec.Ports[i].Port)) //nolint:gosec // validated
		}
		x.hosts[h.name] = append(x.hosts[h.name], h)
		x.byName[o.Name] = append(x.byName[o.Name], o.Namespace)
		x.inside[o.Namespace] = append(x.inside[o.Namespace], o.Name)
		x.services = append(x.services, o)
	case kinds.ServiceEntry:
		spec := o.Spec.(*networkingv1.ServiceEntry)
		for _, name := range spec.Hosts {
			h := &host{name: names.FQDN(name, "", x.domain), object: o, exportTo: spec.ExportTo}
			for _, p := range spec.Ports {
				h.ports = append(h.ports, p.Number)
			}
			x.hosts[h.name] = append(x.hosts[h.name], h)
			if strings.HasPrefix(h.name, "*") {
				x.wildcards = append(x.wildcards, h)
			} else {
				x.outside = append(x.outside, h.name)
			}
		}
	case kinds.DestinationRule:
		x.rules = append(x.rules, o)
		name := names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, x.domain)
		if rest, wild := strings.CutPrefix(name, "*"); wild && rest != "" && rest[0] != '.' && len(x.ruled[name]) == 0 {
			x.partial = append(x.partial, name)
		}
		x.ruled[name] = append(x.ruled[name], o)
	case kinds.VirtualService:
		x.routes = append(x.routes, o)
		x.byKey[o.Key] = o
	case kinds.Gateway:
		x.gateways = append(x.gateways, o.Namespace+"/"+o.Name)
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
	w := &workload{name: o.Name}
	switch o.Kind {
	case kinds.Pod:
		pod := x.pod(o)
		if pod.Ended {
			return
		}
		w.labels, w.pod = o.Labels, &pod
	case kinds.WorkloadEntry:
		w.labels = joined(o.Labels, o.Spec.(*networkingv1.WorkloadEntry).Labels)
	case kinds.WorkloadGroup: // those of it may come at any time
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

// pod reads a Pod, in whichever form its source hands it on.
func (x *index) pod(o *kinds.Object) Pod {
	if p, whole := o.Spec.(*corev1.Pod); whole {
		return podOf(p)
	}
	return x.options.Pod(o)
}

// slice reads an EndpointSlice, in whichever form its source hands it on.
func (x *index) slice(o *kinds.Object) Slice {
	if s, whole := o.Spec.(*discoveryv1.EndpointSlice); whole {
		return sliceOf(s)
	}
	return x.options.Slice(o)
}

// joined returns the labels of both; those of b win.
func joined(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// selected returns the workloads of a namespace that a selector matches. It looks only at those that have the selector's rarest label.
func (x *index) selected(namespace string, selector map[string]string) iter.Seq[*workload] {
	return func(yield func(*workload) bool) {
		var least []*workload
		first := true
		for k, v := range selector {
			if list := x.labelled[label{namespace, pair{k, v}}]; first || len(list) < len(least) {
				least, first = list, false
			}
		}
		for _, w := range least {
			if kinds.Selects(selector, w.labels) && !yield(w) {
				return
			}
		}
	}
}

// selects reports whether a selector matches a workload of the namespace; "" stands for any.
func (x *index) selects(namespace string, selector map[string]string) bool {
	spaces := []string{namespace}
	if namespace == "" {
		spaces = x.namespaces
	}
	for _, ns := range spaces {
		for range x.selected(ns, selector) {
			return true
		}
	}
	return false
}

// under reports whether a pattern covers some host.
func (x *index) under(pattern string) bool {
	if x.suffixes == nil {
		x.suffixes = map[string]bool{}
		for name := range x.hosts {
			x.suffixes["*"] = true
			for i := range len(name) {
				if name[i] == '.' && i > 0 {
					x.suffixes["*"+name[i:]] = true
				}
			}
		}
	}
	if x.suffixes[pattern] || len(x.hosts[pattern]) > 0 {
		return true
	}
	if strings.HasPrefix(pattern, "*.") || pattern == "*" {
		return false
	}
	for name := range x.hosts {
		if names.Covers(pattern, name) {
			return true
		}
	}
	return false
}

// rulesFor returns the DestinationRules in force where proxies of a namespace call a host of namespace own: those of the caller's namespace, else of the host's,
// else of the root namespace; in each those of the most specific host. Rules with a workload selector, which count for some callers only, are among them.
func (x *index) rulesFor(client, own, name string) []*kinds.Object {
	spaces := []string{client, own, x.root}
	if client == x.root {
		spaces = spaces[1:]
	}
	for _, ns := range spaces {
		for pattern := range x.patterns(name) {
			var list []*kinds.Object
			for _, o := range x.ruled[pattern] {
				if o.Namespace == ns && exported(o.Spec.(*networkingv1.DestinationRule).ExportTo, x.mesh.GetDefaultDestinationRuleExportTo(), ns, client) {
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

// patterns returns a host and all patterns of DestinationRules that cover it, the most specific first.
func (x *index) patterns(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		var all []string
		for i := range len(name) {
			if name[i] == '.' && i > 0 {
				all = append(all, "*"+name[i:])
			}
		}
		for _, p := range x.partial {
			if names.Covers(p, name) {
				all = append(all, p)
			}
		}
		slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
		for _, p := range slices.Concat([]string{name}, all, []string{"*"}) {
			if !yield(p) {
				return
			}
		}
	}
}
