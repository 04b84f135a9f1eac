package snapshot

import (
	"maps"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Observer is called for each look-up in a table. Its arguments are the table's name and a function that reports whether
// a look-up seeks a row.
type Observer func(table string, asked func(row any) bool)

// Observe returns the table with each look-up reported to o.
func Observe[T any](o Observer, name string, t frozen.Table[T]) frozen.Table[T] {
	return t.Observed(func(asked func(T) bool) { o(name, func(row any) bool { return asked(row.(T)) }) })
}

// Observed returns the Snapshot with each look-up in its tables reported to o. Tests compare what is invalidated with
// what was read.
func (s *Snapshot) Observed(o Observer) *Snapshot {
	c := *s
	c.services, c.hosts = Observe(o, "services", s.services), Observe(o, "hosts", s.hosts)
	c.endpoints = Observe(o, "endpoints", s.endpoints)
	summaries := Observe(o, "endpoint summaries", s.endpoints)
	c.summaries = &summaries
	c.workloads, c.addresses = Observe(o, "workloads", s.workloads), Observe(o, "addresses", s.addresses)
	c.objects = maps.Clone(s.objects)
	for _, k := range kinds.All() {
		if s.Reach(k) == Unread {
			continue
		}
		of, ok := c.objects[k]
		if !ok {
			of = newObjects()
		}
		c.objects[k] = objects{
			byName:       Observe(o, k.Name+" by name", of.byName),
			byNamespace:  Observe(o, k.Name+" by namespace", of.byNamespace),
			byPrecedence: Observe(o, k.Name+" by precedence", of.byPrecedence),
		}
	}
	return &c
}

// ChangedRows calls visit for each row that differs between the tables of s and of a later Snapshot. was or is is nil
// where there is no row.
func (s *Snapshot) ChangedRows(later *Snapshot, visit func(table string, was, is any)) {
	ChangedRows("services", s.services, later.services, visit)
	ChangedRows("hosts", s.hosts, later.hosts, visit)
	ChangedRows("endpoints", s.endpoints, later.endpoints, visit)
	ChangedRows("endpoint summaries", s.endpoints, later.endpoints, func(table string, was, is any) {
		if summary(was) != summary(is) {
			visit(table, was, is)
		}
	})
	ChangedRows("workloads", s.workloads, later.workloads, func(table string, was, is any) {
		if a, ok := was.(*registry.Workload); !ok || is == nil || !sameProxyConfig(a, is.(*registry.Workload)) {
			visit(table, was, is)
		}
	})
	ChangedRows("addresses", s.addresses, later.addresses, func(table string, was, is any) {
		if a, ok := was.(workloadAddress); !ok || is == nil || !sameProxyConfig(a.Workload, is.(workloadAddress).Workload) {
			visit(table, was, is)
		}
	})
	for _, k := range kinds.All() {
		if s.Reach(k) != Unread {
			ChangedRows(k.Name+" by name", s.objects[k].byName, later.objects[k].byName, visit)
			ChangedRows(k.Name+" by namespace", s.objects[k].byNamespace, later.objects[k].byNamespace, visit)
			ChangedRows(k.Name+" by precedence", s.objects[k].byPrecedence, later.objects[k].byPrecedence, visit)
		}
	}
}

func summary(row any) EndpointSummary {
	if row == nil {
		return EndpointSummary{}
	}
	return row.(ServiceEndpoints).EndpointSummary
}

// ChangedRows calls visit for each row that differs between two versions of the table of that name. was or is is nil
// where there is no row.
func ChangedRows[T comparable](name string, from, to frozen.Table[T], visit func(table string, was, is any)) {
	frozen.Diff(from, to, func(was, is T, had, has bool) {
		var a, b any
		if had {
			a = was
		}
		if has {
			b = is
		}
		visit(name, a, b)
	})
}
