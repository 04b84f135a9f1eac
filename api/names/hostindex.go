package names

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// HostIndex holds values by host, and finds hosts related by Covers without comparing all of them. A host may be a
// pattern. It is not safe for concurrent use, because look-ups sort.
type HostIndex[V any] struct {
	byHost  map[string][]V
	partial bool     // a pattern has a star that ends within a label
	ends    []string // hosts sorted by CompareEnds; nil if they must be sorted again
}

// Add adds a value of a host.
func (x *HostIndex[V]) Add(host string, v V) {
	if x.byHost == nil {
		x.byHost = map[string][]V{}
	}
	x.byHost[host] = append(x.byHost[host], v)
	x.partial = x.partial || strings.HasPrefix(host, "*") && host != "*" && !strings.HasPrefix(host, "*.")
	x.ends = nil
}

// Hosts yields each host, in no particular order.
func (x *HostIndex[V]) Hosts(yield func(string) bool) {
	for h := range x.byHost {
		if !yield(h) {
			return
		}
	}
}

// Covering yields the hosts that cover a host, the most specific first, with their values.
func (x *HostIndex[V]) Covering(host string) iter.Seq2[string, []V] {
	return func(yield func(string, []V) bool) {
		if v, ok := x.byHost[host]; ok && !yield(host, v) {
			return
		}
		for i := range len(host) + 1 {
			if i < len(host) && host[i] != '.' && !x.partial {
				continue
			}
			pattern := "*" + host[i:]
			if v, ok := x.byHost[pattern]; ok && pattern != host && !yield(pattern, v) {
				return
			}
		}
	}
}

// Overlaps reports whether one of the hosts covers a host, or is covered by it. A nil index has no hosts.
func (x *HostIndex[V]) Overlaps(host string) bool {
	if x == nil {
		return false
	}
	for range x.Covered(host) {
		return true
	}
	return x.Covers(host)
}

// Covers reports whether one of the hosts covers a host.
func (x *HostIndex[V]) Covers(host string) bool {
	for range x.Covering(host) {
		return true
	}
	return false
}

// Covered yields the hosts that a host covers, with their values.
func (x *HostIndex[V]) Covered(host string) iter.Seq2[string, []V] {
	return func(yield func(string, []V) bool) {
		end, wild := strings.CutPrefix(host, "*")
		if !wild {
			if v, ok := x.byHost[host]; ok {
				yield(host, v)
			}
			return
		}
		if x.ends == nil {
			x.ends = make([]string, 0, len(x.byHost))
			for h := range x.byHost {
				x.ends = append(x.ends, h)
			}
			slices.SortFunc(x.ends, CompareEnds)
		}
		i, _ := slices.BinarySearchFunc(x.ends, end, CompareEnd)
		for ; i < len(x.ends) && strings.HasSuffix(x.ends[i], end); i++ {
			if h := x.ends[i]; Covers(host, h) && !yield(h, x.byHost[h]) {
				return
			}
		}
	}
}

// CompareEnds compares two hosts from their ends, so that sorting puts hosts with a common suffix together.
func CompareEnds(a, b string) int {
	i, j := len(a)-1, len(b)-1
	for ; i >= 0 && j >= 0; i, j = i-1, j-1 {
		if a[i] != b[j] {
			return cmp.Compare(a[i], b[j])
		}
	}
	return cmp.Compare(i, j)
}

// CompareEnd is CompareEnds, but returns 0 for every host with the suffix end.
func CompareEnd(host, end string) int {
	if strings.HasSuffix(host, end) {
		return 0
	}
	return CompareEnds(host, end)
}
