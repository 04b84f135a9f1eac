package xds

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// lists makes the lists of names that streams subscribe to, which are the same for the streams of a cohort and change in the same way. Safe for concurrent use.
type lists struct {
	table envoy.NameTable
	memo[edit, *envoy.Names]
}

// edit is a list and what is taken from it and added.
type edit struct {
	from        *envoy.Names
	remove, add string
}

// of gives the list of some names, which stay the caller's. star is none.
func (l *lists) of(names []string) *envoy.Names {
	return l.table.Of(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == star }))
}

// edited gives a list without some names, and then with others.
func (l *lists) edited(from *envoy.Names, remove, add []string) *envoy.Names {
	switch {
	case len(remove) == 0 && len(add) == 0:
		return from
	case from == nil:
		return l.of(add)
	}
	return l.get(edit{from, strings.Join(remove, "\n"), strings.Join(add, "\n")}, func() *envoy.Names {
		gone := slices.Sorted(slices.Values(remove))
		all := slices.DeleteFunc(slices.Clone(from.All()), func(n string) bool { _, ok := slices.BinarySearch(gone, n); return ok })
		return l.table.From(from, slices.DeleteFunc(append(all, add...), func(n string) bool { return n == star }))
	})
}
