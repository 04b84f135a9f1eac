package analysis

import (
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// selection holds facts about the workloads that a selector matches, in one namespace or in all. Objects with the same
// selector share it.
type selection struct {
	workloads  int
	machine    bool     // includes a WorkloadEntry or WorkloadGroup
	proxied    bool     // includes a workload with a proxy, a Pod that would get one, or a machine
	namespaces []string // namespaces with a match, if the selection is of all namespaces

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
	s = &selection{names: map[string]bool{}, numbers: map[uint32]bool{}, allDeclare: true}
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
		s.proxied = s.proxied || w.pod.Proxy || x.options.Whole && !w.pod.HostNetwork && x.injects(w.object)
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
	s.numberText, s.addressless, s.unusableText = listed(declared), listed(addressless), listed(slices.Concat(unready, addressless))
	return s
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

// selects reports whether a selector matches a workload of the namespace; "" stands for any.
func (x *index) selects(namespace string, selector map[string]string) bool {
	return x.selection(namespace, selector).workloads > 0
}
