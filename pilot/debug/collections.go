package debug

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/registry"
)

// resource is one kind of object that the server reads.
type resource struct {
	configType
	Count int `json:"count"` // number of objects; istiod has no such field
}

// resourcesz lists the kinds of objects that the server reads, with the number of objects.
func (a *API) resourcesz(url.Values) (any, error) {
	counts := map[*kinds.Kind]int{}
	for _, o := range a.o.World.Objects() {
		counts[o.Kind]++
	}
	read := slices.DeleteFunc(kinds.All(), func(k *kinds.Kind) bool { return k.IsOptional() && counts[k] == 0 }) // off by default
	out := lists.Map(read, func(k *kinds.Kind) resource { return resource{typeOf(k), counts[k]} })
	slices.SortFunc(out, func(x, y resource) int { return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Group, y.Group)) })
	return out, nil
}

// collection is a collection of objects in istiod's format. Its names and contents are specific to each server.
type collection struct {
	Name  string          `json:"name"`
	State collectionState `json:"state"`
	UID   int             `json:"uid"`
}

type collectionState struct {
	Outputs map[string]configObject `json:"outputs"` // by namespace/name
	Synced  bool                    `json:"synced"`  // the first load is complete
}

// krtz returns the objects in force, one collection for each kind of configz.
func (a *API) krtz(url.Values) (any, error) {
	byKind := map[*kinds.Kind]map[string]configObject{}
	for _, o := range a.o.World.Objects() {
		if !shown(o.Kind) {
			continue
		}
		c, err := describe(o)
		if err != nil {
			return nil, err
		}
		if byKind[o.Kind] == nil {
			byKind[o.Kind] = map[string]configObject{}
		}
		name := o.Name
		if o.Namespace != "" {
			name = o.Namespace + "/" + o.Name
		}
		byKind[o.Kind][name] = c
	}
	out := []collection{}
	for i, k := range kinds.All() {
		if !shown(k) {
			continue
		}
		outputs := byKind[k]
		if outputs == nil {
			outputs = map[string]configObject{}
		}
		out = append(out, collection{k.APIVersion(k.Versions[0]) + "/" + k.Name, collectionState{outputs, a.o.World.Snapshot() != nil}, i + 1})
	}
	return out, nil
}

// ambient is the ambient state in istiod's format. This server has no ambient mode.
type ambient struct {
	Workloads []struct{} `json:"workloads"`
	Services  []struct{} `json:"services"`
	Policies  []struct{} `json:"policies"`
}

func (a *API) ambientz(url.Values) (any, error) {
	return ambient{[]struct{}{}, []struct{}{}, []struct{}{}}, nil
}

// cache counts encoded resources in the cache.
type cache struct {
	Resources int    `json:"resources"`
	Hits      uint64 `json:"hits"`   // look-ups that found a resource
	Misses    uint64 `json:"misses"` // look-ups that made a resource
}

// cachez lists the names of the cached encoded resources by type, or with sizes=true their sizes.
func (a *API) cachez(query url.Values) (any, error) {
	names, sizes, total := map[string][]string{}, map[string]int{}, 0
	if query.Has("clear") {
		return nil, fmt.Errorf(
			"%w: clear has no effect here, because the cache only has resources in use; "+
				"to run without it, set PILOT_ENABLE_XDS_CACHE=false in the environment of pilot-discovery",
			ErrBadQuery,
		)
	}
	sized, err := truth(query, "sizes")
	if err != nil {
		return nil, err
	}
	if a.o.Translator != nil {
		a.o.Translator.Each(func(r *envoy.Resource) {
			typeURL := r.TypeURL()
			names[typeURL] = append(names[typeURL], r.Name)
			sizes[typeURL] += r.Size()
			total += r.Size()
		})
	}
	if !sized {
		for _, list := range names {
			slices.Sort(list)
		}
		return names, nil
	}
	out := map[string]string{"total": byteSize(total)}
	for typeURL, n := range sizes {
		out[typeURL] = byteSize(n)
	}
	return out, nil
}

// byteSize formats a size as istiod does.
func byteSize(n int) string {
	size := float64(n)
	for _, unit := range []string{"B", "kB", "MB"} {
		if size < 1000 {
			if unit == "B" {
				return fmt.Sprintf("%dB", n)
			}
			return fmt.Sprintf("%.1f%s", size, unit)
		}
		size /= 1000
	}
	return fmt.Sprintf("%.1fGB", size)
}

// proxyEvent is a finding of the last push about one proxy or resource.
type proxyEvent struct {
	Proxy   string `json:"proxy,omitempty"`
	Message string `json:"message,omitempty"`
}

// pushStatus returns the findings of the last push by metric, and by the resource that they are about.
func (a *API) pushStatus(url.Values) (any, error) {
	out := map[string]map[string]proxyEvent{}
	add := func(metric, about string, e proxyEvent) {
		lists.PutIn(out, metric, about, e)
	}
	if a.o.Translator != nil {
		for metric, list := range a.o.Translator.AllConflicts() {
			for _, about := range list {
				add(metric, about, proxyEvent{Message: about})
			}
		}
	}
	s := a.o.World.Snapshot()
	if s == nil {
		return out, nil
	}
	for _, svc := range s.Services() {
		var metric string
		switch {
		case svc.Resolution == registry.ClientSide:
			metric = "pilot_eds_no_instances"
		case svc.Resolution.EndpointsInCluster():
			metric = "pilot_dns_cluster_without_endpoints"
		default:
			continue
		}
		has := lists.SetOf(s.Endpoints(svc.Key()).List, func(e *registry.Endpoint) string { return e.ServicePort })
		for _, p := range svc.Ports {
			if p.Protocol != protocols.UDP && !has[p.Name] {
				add(metric, fmt.Sprintf("outbound|%d||%s", p.Number, svc.Host), proxyEvent{})
			}
		}
	}
	return out, nil
}

// pushContext is istiod's context, and in addition the size of the snapshot in force, and what changed in it and why.
type pushContext struct {
	AuthorizationPolicies policies
	NetworkGateways       []networkGateway

	Revision         uint64         `json:"revision"`
	Full             bool           `json:"full"`
	Start            time.Time      `json:"start"`
	Triggers         map[string]int `json:"triggers"`
	Causes           any            `json:"causes"`
	Cache            *cache         `json:"cache,omitempty"`
	Services         int            `json:"services"`
	Endpoints        int            `json:"endpoints"`
	VirtualServices  int            `json:"virtualServices"`
	DestinationRules int            `json:"destinationRules"`
	Gateways         int            `json:"gateways"`
	Sidecars         int            `json:"sidecars"`
}

func (a *API) pushContext(url.Values) (any, error) {
	out := pushContext{
		AuthorizationPolicies: policies{ByNamespace: map[string][]policy{}}, NetworkGateways: []networkGateway{}, Causes: []string{},
	}
	s := a.o.World.Snapshot()
	if s == nil {
		return out, nil
	}
	byNamespace, err := a.policies(kinds.AuthorizationPolicy, every)
	if err != nil {
		return nil, err
	}
	endpoints := 0
	for _, e := range s.EachEndpoints {
		endpoints += len(e.List)
	}
	out = pushContext{
		AuthorizationPolicies: policies{byNamespace, s.RootNamespace()}, NetworkGateways: networkGateways(s),
		Revision: s.Revision, Full: s.Diff.Full, Start: s.Diff.Received, Triggers: s.Diff.Triggers, Causes: orEmpty(s.Diff.Causes),
		Services: s.ServiceCount(), Endpoints: endpoints, VirtualServices: s.ObjectCount(kinds.VirtualService),
		DestinationRules: s.ObjectCount(kinds.DestinationRule), Gateways: s.ObjectCount(kinds.Gateway), Sidecars: s.ObjectCount(kinds.Sidecar),
	}
	if t := a.o.Translator; t != nil {
		hits, misses := t.Stats()
		out.Cache = &cache{t.Kept(), hits, misses}
	}
	return out, nil
}
