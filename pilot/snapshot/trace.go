package snapshot

import (
	"maps"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Found is called for a row that differs between two versions of a table, when a look-up in the earlier version needs
// it.
type Found func(table string, row any)

// Trace returns a table that calls found for each row that differs from later's, when a look-up needs it. Rows for
// which same returns true do not differ; a missing row is the zero value. same is optional.
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

// Traced returns a copy of the Snapshot that calls found for each row that differs from later's, when a look-up needs
// it. Tests compare the rows that translations read with the ones whose changes invalidate them.
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

// summary returns the summary, or the zero value for the zero ServiceEndpoints.
func (e ServiceEndpoints) summary() EndpointSummary {
	if e.Endpoints == nil {
		return EndpointSummary{}
	}
	return e.EndpointSummary
}
