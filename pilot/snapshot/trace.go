package snapshot

import (
	"maps"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Found is called for each row that differs between two versions of a table, when a look-up in the earlier one seeks
// it.
type Found func(table string, row any)

// Trace returns the table of that name with found called for each row that differs from later's, when a look-up seeks
// it. Two rows for which same reports true do not differ; one of them is the zero value if there is none. same may be
// nil.
func Trace[T comparable](name string, t, later frozen.Table[T], found Found, same func(was, is T) bool) frozen.Table[T] {
	var rows []T
	frozen.Diff(t, later, func(was, is T, had, has bool) {
		if same != nil && same(was, is) {
			return
		}
		if had {
			rows = append(rows, was)
		}
		if has {
			rows = append(rows, is)
		}
	})
	return t.Traced(rows, func(row T) { found(name, row) })
}

// Traced returns the Snapshot with found called for each row that differs from later's, when a look-up seeks it. Tests
// compare what is invalidated with what was read.
func (s *Snapshot) Traced(later *Snapshot, found Found) *Snapshot {
	c := *s
	c.services = Trace("services", s.services, later.services, found, nil)
	c.hosts = Trace("hosts", s.hosts, later.hosts, found, nil)
	c.endpoints = Trace("endpoints", s.endpoints, later.endpoints, found, nil)
	summaries := Trace("endpoint summaries", s.endpoints, later.endpoints, found, func(was, is ServiceEndpoints) bool {
		return was.summary() == is.summary()
	})
	c.summaries = &summaries
	c.workloads = Trace("workloads", s.workloads, later.workloads, found, sameProxyConfig)
	c.addresses = Trace("addresses", s.addresses, later.addresses, found, func(was, is workloadAddress) bool {
		return sameProxyConfig(was.Workload, is.Workload)
	})
	c.facts = Trace("facts", s.facts, later.facts, found, nil)
	if s.roots != later.roots {
		c.rootsRead = found
	}
	c.objects = maps.Clone(s.objects)
	for _, k := range append(kinds.All(), kinds.SecretCredential, kinds.ConfigMapCredential) {
		if s.Reach(k) == Unread {
			continue
		}
		was, is := s.objects[k], later.objects[k]
		c.objects[k] = objects{
			byName:       Trace(k.Name+" by name", was.byName, is.byName, found, nil),
			byNamespace:  Trace(k.Name+" by namespace", was.byNamespace, is.byNamespace, found, nil),
			byPrecedence: Trace(k.Name+" by precedence", was.byPrecedence, is.byPrecedence, found, nil),
		}
	}
	return &c
}

// summary returns the zero value for the zero ServiceEndpoints.
func (e ServiceEndpoints) summary() EndpointSummary {
	if e.Endpoints == nil {
		return EndpointSummary{}
	}
	return e.EndpointSummary
}
