package world

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/registry"
)

// Tables accumulate a registry's changes.
type Tables struct {
	Services  map[registry.ServiceKey]*registry.Service
	Endpoints map[registry.ServiceKey][]*registry.Endpoint
	Workloads map[registry.WorkloadKey]*registry.Workload
}

// NewTables returns empty tables.
func NewTables() *Tables {
	return &Tables{map[registry.ServiceKey]*registry.Service{}, map[registry.ServiceKey][]*registry.Endpoint{},
		map[registry.WorkloadKey]*registry.Workload{}}
}

// Apply applies changes to the tables. It returns an error for a change without effect, and for unsorted endpoints.
func (t *Tables) Apply(c registry.Changes) error {
	for k, s := range c.Services {
		if s.Equal(t.Services[k]) {
			return fmt.Errorf("service %v did not change", k)
		}
		if t.Services[k] = s; s == nil {
			delete(t.Services, k)
		}
	}
	for k, l := range c.Endpoints {
		if slices.EqualFunc(l, t.Endpoints[k], (*registry.Endpoint).Equal) {
			return fmt.Errorf("endpoints of %v did not change", k)
		}
		if !slices.IsSortedFunc(l, registry.CompareEndpoints) {
			return fmt.Errorf("endpoints of %v are not sorted", k)
		}
		for _, e := range l {
			for _, o := range t.Endpoints[k] {
				if e != o && e.Equal(o) && !slices.Contains(t.Endpoints[k], e) {
					return fmt.Errorf("endpoint %v of %v is equal and has a new pointer", *e, k)
				}
			}
		}
		if t.Endpoints[k] = l; len(l) == 0 {
			delete(t.Endpoints, k)
		}
	}
	for k, w := range c.Workloads {
		if w.Equal(t.Workloads[k]) {
			return fmt.Errorf("workload %v did not change", k)
		}
		if t.Workloads[k] = w; w == nil {
			delete(t.Workloads, k)
		}
	}
	return nil
}

// Dump returns tables, or changes as tables, as text. Each line names the fields that are not zero.
func (t *Tables) Dump() string {
	var b strings.Builder
	keys := maps.Clone(t.Services)
	for k := range t.Endpoints {
		if _, ok := keys[k]; !ok {
			keys[k] = nil
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), func(a, b registry.ServiceKey) int {
		return strings.Compare(a.Namespace+"/"+a.Host, b.Namespace+"/"+b.Host)
	}) {
		if s, ok := t.Services[k]; ok && s == nil {
			fmt.Fprintf(&b, "service %s/%s is gone\n", k.Namespace, k.Host)
		} else if ok {
			fmt.Fprintf(&b, "service %s/%s%s\n", k.Namespace, k.Host, fields(*s, "Host", "Namespace", "Clusters"))
			for _, id := range slices.Sorted(maps.Keys(s.Clusters)) {
				fmt.Fprintf(&b, "  as in %q%s\n", id, fields(*s.Clusters[id], "Host", "Namespace", "Name", "Object", "Created"))
			}
		}
		l, ok := t.Endpoints[k]
		if ok && len(l) == 0 {
			fmt.Fprintf(&b, "endpoints %s/%s are gone\n", k.Namespace, k.Host)
			continue
		}
		for _, e := range l {
			fmt.Fprintf(&b, "endpoint %s/%s %s %s:%d %v%s\n", k.Namespace, k.Host, e.ServicePort, e.Address, e.Port, e.Health,
				fields(*e, "Address", "Port", "ServicePort", "Health"))
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.Workloads), func(a, b registry.WorkloadKey) int {
		return cmp.Or(strings.Compare(a.Namespace+"/"+a.Name+a.Kind.Name, b.Namespace+"/"+b.Name+b.Kind.Name),
			strings.Compare(a.Cluster, b.Cluster))
	}) {
		if w := t.Workloads[k]; w != nil {
			fmt.Fprintf(&b, "workload %s%s\n", k, fields(*w, "WorkloadKey"))
		} else {
			fmt.Fprintf(&b, "workload %s is gone\n", k)
		}
	}
	return b.String()
}

func fields(v any, but ...string) string {
	var b strings.Builder
	for i, r := 0, reflect.ValueOf(v); i < r.NumField(); i++ {
		f := r.Type().Field(i)
		if slices.Contains(but, f.Name) || r.Field(i).IsZero() {
			continue
		}
		if at, ok := r.Field(i).Interface().(time.Time); ok {
			fmt.Fprintf(&b, " %s=%s", f.Name, at.UTC().Format(time.RFC3339))
			continue
		}
		fmt.Fprintf(&b, " %s=%v", f.Name, r.Field(i))
	}
	return b.String()
}
