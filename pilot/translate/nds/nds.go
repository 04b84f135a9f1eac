package nds

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Names makes name tables. Safe for concurrent use.
type Names struct {
	cache  *engine.Cache
	hosts  *envoy.MemoTable[hostKey]
	tables *envoy.MemoTable[tableKey]
}

// New returns Names with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, c *engine.Cache) *Names {
	return &Names{cache: c, hosts: envoy.NewMemoTable(m, buildHost), tables: envoy.NewMemoTable(m, buildTable)}
}

// hostKey is the whole input for the names of one host.
type hostKey struct {
	part  string // name of the part of the table
	names frozen.List[name]
}

// externalSuffix ends the names of the parts of ServiceEntries, which come after the names of pods and services.
const externalSuffix = "\x00"

// tableKey is the whole input of a table: its encoded parts, one after the other.
type tableKey struct{ encoded string }

// name is one line of a table.
type name struct {
	name, registry string
	// shortName and namespace are set for names of Kubernetes, which are known without their domain.
	shortName, namespace string
	addresses            string // each followed by a newline
}

// parts identifies the parts of a table in the cache.
type parts struct{}

// Get returns the name table of a cohort.
func (m *Names) Get(v *view.View, c cohort.Key, _ *envoy.Names) (envoy.Union, error) {
	k := engine.Key{Type: envoy.NameTableType, Client: c.Client.Weak()}
	table := view.Set(m.cache, k, v, func(v *view.View) engine.Generator[struct{}] {
		return engine.Single(func() []*envoy.Resource {
			k := k
			k.Part = parts{}
			hosts := view.Set(m.cache, k, v, func(v *view.View) engine.Generator[string] { return m.Hosts(v, c.Client.Value()) })
			var all strings.Builder
			for _, external := range []bool{true, false} { // if a name is repeated, the last entry is used
				for r := range hosts.Set.All {
					if strings.HasSuffix(r.Name, externalSuffix) == external {
						all.Write(r.Value())
					}
				}
			}
			return []*envoy.Resource{m.tables.Get(tableKey{all.String()})}
		}, engine.IfHosts)
	})
	return envoy.Union{Shared: table.Set}, nil
}

// Hosts generates the parts of a table. Each host is a partition.
func (m *Names) Hosts(v *view.View, c cohort.Client) engine.Generator[string] {
	of := func(s scope.Service) []*envoy.Resource {
		list := namesOf(v, c, s.Service)
		if len(list) == 0 {
			return nil
		}
		k := hostKey{s.Host, frozen.ListOf(list...)}
		if s.Provider == registry.External {
			k.part += externalSuffix
		}
		return []*envoy.Resource{m.hosts.Get(k)}
	}
	return engine.Generator[string]{
		All: func() []*envoy.Resource {
			var out []*envoy.Resource
			if c.Type == node.Router {
				return nil // applications do not resolve names there
			}
			for s := range v.ScopeOf(c.Namespace, c.Sidecar).Services {
				out = append(out, of(s)...)
			}
			return out
		},
		Affected: func(d *scope.Dirty) []string { return d.Hosts },
		Partitions: engine.Each(func(host string) []*envoy.Resource {
			if s, ok := v.ScopeOf(c.Namespace, c.Sidecar).Service(host); ok && c.Type != node.Router {
				return of(s)
			}
			return nil
		}),
		Locate: func(host string) engine.Locator {
			return func(part string) int { return strings.Compare(strings.TrimSuffix(part, externalSuffix), host) }
		},
	}
}

// namesOf returns the names of a service, as proxies of a scope call it. There are none if it has no address.
func namesOf(v *view.View, c cohort.Client, s *registry.Service) []name {
	own := s.VersionFor(c.Cluster)
	n := name{name: s.Host, registry: "External"}
	if s.Provider == registry.Kubernetes {
		n.registry = "Kubernetes"
		if !clusterset.IsHost(s.Host) { // short names belong to the host in the cluster's own domain
			n.shortName, n.namespace = s.Name, s.Namespace
		}
	}
	if scope.ReachedPerEndpoint(own) && s.Provider == registry.Kubernetes {
		return namesOfPods(n, v, c, own)
	}
	addresses := own.Addresses
	if len(addresses) == 0 && c.AutoAddress {
		addresses = own.AutoAddress
	}
	for _, a := range addresses {
		if reachable(a, c) {
			n.addresses += a + "\n"
		}
	}
	if n.addresses == "" && s.Provider == registry.External {
		// The name exists, with addresses of the other family only. Without them, DNS would answer that it does not
		// exist.
		for _, a := range own.Addresses {
			if _, err := netip.ParseAddr(a); err == nil {
				n.addresses += a + "\n"
			}
		}
	}
	if n.addresses == "" {
		return nil
	}
	return []name{n}
}

// namesOfPods returns the names of a headless service: its own for all its pods, and those of pods with a host name.
func namesOfPods(n name, v *view.View, c cohort.Client, s *registry.Service) []name {
	if len(s.Ports) == 0 {
		return nil
	}
	pods := map[string]*name{}
	seen, cluster := map[string]struct{}{}, cmp.Or(c.Cluster, v.Cluster())
	for _, e := range v.Endpoints(s.Key()).ByPort(s.Ports[0].Name) {
		if e.Health != registry.Healthy || !reachable(e.Address, c) || !e.CallableFrom(cluster) ||
			e.Network != "" && c.Network != "" && e.Network != c.Network {
			continue
		}
		if _, ok := seen[e.Address]; ok {
			continue
		}
		seen[e.Address] = struct{}{}
		n.addresses += e.Address + "\n"
		if e.HostName == "" || e.SubDomain == "" {
			continue
		}
		p := pods[e.HostName]
		if p == nil {
			_, domain, _ := strings.Cut(n.name, ".")
			p = &name{name: e.HostName + "." + e.SubDomain + "." + domain, shortName: e.HostName + "." + e.SubDomain, registry: n.registry,
				namespace: n.namespace}
			pods[e.HostName] = p
		}
		p.addresses += e.Address + "\n"
	}
	if n.addresses == "" {
		return nil
	}
	list := []name{n}
	for _, p := range pods {
		list = append(list, *p)
	}
	slices.SortFunc(list[1:], func(a, b name) int { return cmp.Compare(a.name, b.name) })
	return list
}

// reachable reports whether an address is an IP address of a family that the proxies have.
func reachable(address string, c cohort.Client) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && (ip.Unmap().Is4() && c.IPv4 || !ip.Unmap().Is4() && c.IPv6)
}
