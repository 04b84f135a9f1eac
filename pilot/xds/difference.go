package xds

import (
	"slices"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// difference is what brings a client from one Union to another.
type difference struct {
	changed []*envoy.Resource // added ones as well, by name
	removed []*envoy.Resource // as the client has them, by name
}

// differences compares Unions. Which names differ between two Sets is kept by their pointers, for the streams of a cohort all ask the same; the lists are
// dropped when a new snapshot comes. Safe for concurrent use.
type differences struct {
	mu    sync.Mutex
	names map[[2]*envoy.Set][]string
}

// maxDifferences bounds what is kept between two snapshots: slow streams may each come from a different Set.
const maxDifferences = 1024

func (d *differences) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = nil
}

// between compares two Unions. With keep, the result for their Sets is remembered.
func (d *differences) between(from, to envoy.Union, keep bool) difference {
	var diff difference
	if from == to {
		return diff
	}
	candidates := slices.Concat(d.sets(from.Outbound, to.Outbound, keep), d.sets(from.Inbound, to.Inbound, keep))
	if from.Omit != to.Omit {
		candidates = slices.AppendSeq(slices.AppendSeq(candidates, from.Omit.All), to.Omit.All)
	}
	slices.Sort(candidates)
	for _, name := range slices.Compact(candidates) {
		had, has := from.Get(name), to.Get(name)
		switch {
		case has != nil && (had == nil || had.Version != has.Version):
			diff.changed = append(diff.changed, has)
		case has == nil && had != nil:
			diff.removed = append(diff.removed, had)
		}
	}
	return diff
}

// sets gives the names whose resources differ between two Sets.
func (d *differences) sets(a, b *envoy.Set, keep bool) []string {
	if a == b {
		return nil
	}
	if !keep {
		return compareSets(a, b)
	}
	key := [2]*envoy.Set{a, b}
	d.mu.Lock()
	names, ok := d.names[key]
	d.mu.Unlock()
	if ok {
		return names
	}
	names = compareSets(a, b)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil || len(d.names) >= maxDifferences {
		d.names = map[[2]*envoy.Set][]string{}
	}
	d.names[key] = names
	return names
}

func compareSets(from, to *envoy.Set) []string {
	var names []string
	a, b := from.All(), to.All()
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name:
			names, a = append(names, a[0].Name), a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			names, b = append(names, b[0].Name), b[1:]
		default:
			if a[0] != b[0] && a[0].Version != b[0].Version {
				names = append(names, a[0].Name)
			}
			a, b = a[1:], b[1:]
		}
	}
	return names
}

// versionOf is the hash of the names and versions of resources, whatever their order.
func versionOf(resources []*envoy.Resource) string {
	var sum uint64
	for _, r := range resources {
		sum += xxhash.Sum64String(r.Name)*31 ^ xxhash.Sum64String(r.Version)
	}
	return strconv.FormatUint(sum, 16)
}
