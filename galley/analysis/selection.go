package analysis

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// selection holds facts about the workloads that a selector matches, in one namespace or in all. Objects with the same
// selector share it.
type selection struct {
	workloads  int
	machine    bool     // includes a WorkloadEntry or WorkloadGroup
	proxied    bool     // includes a workload with a proxy, a Pod that would get one, or a machine
	bare       bool     // includes a Pod without a proxy
	namespaces []string // namespaces with a match

	accounts  map[string]bool // service accounts of the Pods
	secured   *workload       // first Pod that takes mutual TLS
	bypassing *workload       // first Pod that takes mutual TLS and has annotations of the ports that its proxy takes

	names        map[string]bool // names of the Pods' ports
	numbers      map[uint32]bool
	nameList     []string
	numberText   string // port numbers, as findings list them
	allDeclare   bool   // all ports of all Pods are known
	addresses    int    // number of Pods with an address
	ready        int    // number of ready Pods with an address
	addressless  string // Pods without an address, as findings list them
	unusableText string // Pods without an address or not ready, as findings list them
}

// takesMesh is the value of the label security.istio.io/tlsMode of Pods that take mutual TLS of the mesh.
const takesMesh = "istio"

// selectionKey identifies a selection. The namespace "" stands for all namespaces.
type selectionKey struct{ namespace, labels string }

// selection returns the facts about the workloads that a selector matches in a namespace; "" stands for all namespaces.
func (x *index) selection(namespace string, selector map[string]string) *selection {
	selector = unplaced(selector)
	key := selectionKey{namespace, written(selector)}
	s := x.selections[key]
	if s != nil {
		return s
	}
	s = &selection{names: map[string]bool{}, numbers: map[uint32]bool{}, accounts: map[string]bool{}, allDeclare: true}
	x.selections[key] = s
	if namespace == "" {
		for _, ns := range x.namespaces {
			for range x.selected(ns, selector) {
				s.workloads++
				s.namespaces = append(s.namespaces, ns)
				break
			}
		}
		return s
	}
	var addressless, unready []string
	for w := range x.selected(namespace, selector) {
		s.workloads++
		if w.pod == nil {
			s.machine, s.proxied = true, true
			continue
		}
		proxied := x.hasProxy(w)
		s.accounts[w.pod.Account] = true
		s.proxied, s.bare = s.proxied || proxied, s.bare || !proxied
		if w.labels[names.LabelTLSMode] == takesMesh {
			s.secured = cmp.Or(s.secured, w)
			if hasInboundPorts(w.object) {
				s.bypassing = cmp.Or(s.bypassing, w)
			}
		}
		s.allDeclare = s.allDeclare && !w.pod.Named && len(w.pod.Numbers) > 0
		for name := range w.pod.Ports {
			if !s.names[name] {
				s.names[name] = true
				s.nameList = append(s.nameList, name)
			}
		}
		for _, n := range w.pod.Numbers {
			s.numbers[n] = true
		}
		switch {
		case len(w.pod.Addresses) == 0:
			addressless = append(addressless, w.name)
		case w.pod.Ready:
			s.ready++
			s.addresses++
		default:
			s.addresses++
			unready = append(unready, w.name)
		}
	}
	var declared []string
	for n := range s.numbers {
		declared = append(declared, strconv.FormatUint(uint64(n), 10))
	}
	if s.workloads > 0 {
		s.namespaces = []string{namespace}
	}
	s.numberText, s.addressless, s.unusableText = listed(declared), listed(addressless), listed(slices.Concat(unready, addressless))
	return s
}

// hasProxy reports whether a workload is a machine, or a Pod that has a proxy or would get one.
func (x *index) hasProxy(w *workload) bool {
	return w.pod == nil || w.pod.Proxy || x.options.Whole && !w.pod.HostNetwork && x.injects(w.object)
}

// unplaced returns a selector without the labels that the place of a workload can give it. Their values are not known
// here.
func unplaced(selector map[string]string) map[string]string {
	for name := range selector {
		if names.IsPlaceLabel(name) {
			own := maps.Clone(selector)
			maps.DeleteFunc(own, func(name, _ string) bool { return names.IsPlaceLabel(name) })
			return own
		}
	}
	return selector
}

// selected returns the workloads of a namespace that a selector matches. It only tests the workloads that have the
// selector's rarest label.
func (x *index) selected(namespace string, selector map[string]string) iter.Seq[*workload] {
	return func(yield func(*workload) bool) {
		var least []*workload
		if len(selector) == 0 {
			least = x.workloads[namespace]
		}
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

// gatewaySelection returns the workloads that a Gateway selects. Gateways with the same result share it by the key.
func (a *analysis) gatewaySelection(o *kinds.Object) (selectionKey, *selection) {
	only, selector := kinds.GatewayNamespace(o, a.options.ScopedGateways), o.Spec.(*networkingv1.Gateway).Selector
	return selectionKey{only, written(selector)}, a.selection(only, selector)
}

// everyNamespace stands for all namespaces.
const everyNamespace = ""

// bySelector holds objects of a kind and namespace by a label of their selectors.
type bySelector struct {
	open  []*kinds.Object                       // without a selector
	first map[string]map[string][]*kinds.Object // by the first key of the selector in alphabetical order, and its value
}

// sharing yields the objects of a kind and namespace whose selector may match a workload together with other labels.
func (a *analysis) sharing(kind *kinds.Kind, namespace string, labels map[string]string) iter.Seq[*kinds.Object] {
	return func(yield func(*kinds.Object) bool) {
		in := a.selectorsOf(kind)[namespace]
		if in == nil {
			return
		}
		found := slices.Clone(in.open)
		for key, values := range in.first {
			if value, has := labels[key]; has {
				found = append(found, values[value]...)
				continue
			}
			for _, list := range values {
				found = append(found, list...)
			}
		}
		for _, o := range found {
			if _, selector := selectorOf(o); compatible(selector, labels) && !yield(o) {
				return
			}
		}
	}
}

// selectorsOf returns the objects of a kind by their namespaces and selectors.
func (a *analysis) selectorsOf(kind *kinds.Kind) map[string]*bySelector {
	spaces := a.sharers[kind]
	if spaces != nil {
		return spaces
	}
	spaces = map[string]*bySelector{}
	lists.Put(&a.sharers, kind, spaces)
	for _, o := range a.of(kind) {
		_, selector := selectorOf(o)
		keys := slices.Sorted(maps.Keys(selector))
		for _, ns := range []string{o.Namespace, everyNamespace} {
			in := spaces[ns]
			if in == nil {
				in = &bySelector{first: map[string]map[string][]*kinds.Object{}}
				spaces[ns] = in
			}
			if len(keys) == 0 {
				in.open = append(in.open, o)
				continue
			}
			if in.first[keys[0]] == nil {
				in.first[keys[0]] = map[string][]*kinds.Object{}
			}
			in.first[keys[0]][selector[keys[0]]] = append(in.first[keys[0]][selector[keys[0]]], o)
		}
	}
	return spaces
}

// compatible reports whether a workload can have the labels of both selectors.
func compatible(a, b map[string]string) bool {
	for key, value := range a {
		if other, both := b[key]; both && other != value {
			return false
		}
	}
	return true
}

// selects reports whether a selector matches a workload of the namespace; "" stands for any.
func (x *index) selects(namespace string, selector map[string]string) bool {
	return x.selection(namespace, selector).workloads > 0
}
