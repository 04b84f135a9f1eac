package debug

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// configObject is one object as the Kubernetes API would show it.
type configObject struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       any      `json:"spec,omitempty"`
	Data       any      `json:"data,omitempty"`
	Type       string   `json:"type,omitempty"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	UID         string            `json:"uid,omitempty"`
	Created     *time.Time        `json:"creationTimestamp,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Position    string            `json:"position,omitempty"` // where it was read, beyond what Istio shows
}

// lastApplied is kubectl's copy of the whole object: a Secret's holds its data.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// configz shows the objects of Istio's and the Gateway API's kinds, and which Secrets there are, without what is in
// them.
func (a *API) configz(query url.Values) (any, error) {
	out := []configObject{}
	for _, o := range a.sorted() {
		if !shown(o.Kind) || query.Get("kind") != "" && query.Get("kind") != o.Kind.Name {
			continue
		}
		c, err := describe(o)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func shown(k *kinds.Kind) bool {
	return k.Istio || k.Group == kinds.HTTPRoute.Group || k == kinds.Secret
}

func describe(o *kinds.Object) (configObject, error) {
	c := configObject{APIVersion: o.Kind.APIVersion(o.Kind.Versions[0]), Kind: o.Kind.Name, Metadata: describeMeta(o)}
	switch spec := o.Spec.(type) {
	case *corev1.Secret:
		redacted := map[string]string{}
		for key := range spec.Data {
			redacted[key] = "[redacted]"
		}
		for key := range spec.StringData {
			redacted[key] = "[redacted]"
		}
		c.Data, c.Type = redacted, string(spec.Type)
	case proto.Message:
		text, err := protoJSON(spec)
		if err != nil {
			return c, err
		}
		c.Spec = text
	default:
		text, err := json.Marshal(spec)
		if err != nil {
			return c, err
		}
		var whole struct {
			Spec json.RawMessage `json:"spec"`
		}
		if err := json.Unmarshal(text, &whole); err != nil {
			return c, err
		}
		c.Spec = whole.Spec
	}
	return c, nil
}

func describeMeta(o *kinds.Object) metadata {
	m := metadata{Name: o.Name, Namespace: o.Namespace, UID: o.UID, Labels: o.Labels, Position: o.Position}
	if !o.Created.IsZero() {
		m.Created = &o.Created
	}
	if len(o.Annotations) > 0 {
		m.Annotations = maps.Clone(o.Annotations)
		delete(m.Annotations, lastApplied)
	}
	return m
}

func protoJSON(m proto.Message) (json.RawMessage, error) {
	return protojson.MarshalOptions{}.Marshal(m)
}

// sorted returns all objects by kind, namespace and name.
func (a *API) sorted() []*kinds.Object {
	objects := slices.Clone(a.o.Objects())
	slices.SortFunc(objects, func(x, y *kinds.Object) int {
		return cmp.Or(cmp.Compare(x.Kind.Name, y.Kind.Name), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return objects
}

// byNamespace shows the objects of one kind by the namespace that they are in.
func (a *API) byNamespace(kind *kinds.Kind) (map[string][]configObject, error) {
	out := map[string][]configObject{}
	for _, o := range a.sorted() {
		if o.Kind != kind {
			continue
		}
		c, err := describe(o)
		if err != nil {
			return nil, err
		}
		out[o.Namespace] = append(out[o.Namespace], c)
	}
	return out, nil
}

func (a *API) telemetryz(url.Values) (any, error) {
	telemetries, err := a.byNamespace(kinds.Telemetry)
	return map[string]any{"telemetries": telemetries}, err
}

// resourcesz counts the objects of each kind that is read.
func (a *API) resourcesz(url.Values) (any, error) {
	counts := map[string]int{}
	for _, k := range kinds.All() {
		counts[k.APIVersion(k.Versions[0])+"/"+k.Name] = 0
	}
	for _, o := range a.o.Objects() {
		counts[o.Kind.APIVersion(o.Kind.Versions[0])+"/"+o.Kind.Name]++
	}
	return counts, nil
}

// service is one service with the keys that Istio shows.
type service struct {
	Attributes   attributes `json:"Attributes"`
	Ports        []port     `json:"ports"`
	Hostname     string     `json:"hostname"`
	ClusterVIPs  vips       `json:"clusterVIPs"`
	Resolution   string     `json:"resolution"`
	MeshExternal bool       `json:"meshExternal,omitempty"`
	CreationTime *time.Time `json:"creationTime,omitempty"`
}

type attributes struct {
	ServiceRegistry string            `json:"ServiceRegistry"`
	Name            string            `json:"Name"`
	Namespace       string            `json:"Namespace"`
	Labels          map[string]string `json:"Labels,omitempty"`
	ExportTo        []string          `json:"ExportTo,omitempty"`
	LabelSelectors  map[string]string `json:"LabelSelectors,omitempty"`
}

type port struct {
	Name     string `json:"name,omitempty"`
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol"`
}

type vips struct {
	Addresses map[string][]string `json:"Addresses,omitempty"`
}

func (a *API) registryz(url.Values) (any, error) {
	out := []service{}
	s := a.o.Snapshot()
	if s == nil {
		return out, nil
	}
	for _, svc := range s.Services() {
		out = append(out, a.describeService(svc))
	}
	return out, nil
}

func provider(s *registry.Service) string {
	if s.Provider == registry.External {
		return "External"
	}
	return "Kubernetes"
}

func resolution(r registry.Resolution) string {
	switch r {
	case registry.DNS:
		return "DNSLB"
	case registry.DNSRoundRobin:
		return "DNSRoundRobinLB"
	case registry.DynamicDNS:
		return "DynamicDNS"
	case registry.Passthrough:
		return "Passthrough"
	case registry.Alias:
		return "Alias"
	}
	return "ClientSideLB"
}

// portEndpoints are the endpoints behind one port of one service.
type portEndpoints struct {
	Service   string     `json:"svc"` // host:port name
	Endpoints []endpoint `json:"ep"`
}

type endpoint struct {
	Address        string            `json:"address"`
	Port           uint32            `json:"port"`
	Health         string            `json:"health"`
	Workload       string            `json:"workloadName,omitempty"`
	Namespace      string            `json:"namespace,omitempty"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Locality       string            `json:"locality,omitempty"`
	Network        string            `json:"network,omitempty"`
	TLSMode        string            `json:"tlsMode,omitempty"`
	NodeName       string            `json:"nodeName,omitempty"`
	Weight         uint32            `json:"lbWeight,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
}

func (a *API) endpointz(url.Values) (any, error) {
	out := []portEndpoints{}
	s := a.o.Snapshot()
	if s == nil {
		return out, nil
	}
	for _, svc := range s.Services() {
		for _, p := range svc.Ports {
			pe := portEndpoints{svc.Host + ":" + p.Name, []endpoint{}}
			for _, e := range s.Endpoints(svc.Key()).List {
				if e.ServicePort == p.Name {
					pe.Endpoints = append(pe.Endpoints, describeEndpoint(e))
				}
			}
			out = append(out, pe)
		}
	}
	return out, nil
}

func describeEndpoint(e *registry.Endpoint) endpoint {
	health := map[registry.Health]string{registry.Healthy: "HEALTHY", registry.Unhealthy: "UNHEALTHY", registry.Draining: "DRAINING"}[e.Health]
	locality := ""
	for _, part := range []string{e.Locality.Region, e.Locality.Zone, e.Locality.SubZone} {
		if part == "" {
			break
		}
		if locality != "" {
			locality += "/"
		}
		locality += part
	}
	return endpoint{e.Address, e.Port, health, e.Workload, e.Namespace, e.Identity, locality, e.Network, e.TLSMode, e.NodeName, e.Weight, e.Labels}
}

// endpointShardz shows endpoints by host, namespace and the source that they come from.
func (a *API) endpointShardz(url.Values) (any, error) {
	type shards struct {
		Shards          map[string][]endpoint `json:"Shards"`
		ServiceAccounts []string              `json:"ServiceAccounts"`
	}
	out := map[string]map[string]*shards{}
	s := a.o.Snapshot()
	if s == nil {
		return out, nil
	}
	for _, svc := range s.Services() {
		sh := &shards{map[string][]endpoint{}, []string{}}
		accounts := map[string]bool{}
		for _, e := range s.Endpoints(svc.Key()).List {
			name := provider(svc) + "/" + e.Cluster
			sh.Shards[name] = append(sh.Shards[name], describeEndpoint(e))
			if e.Identity != "" {
				accounts[e.Identity] = true
			}
		}
		sh.ServiceAccounts = append(sh.ServiceAccounts, slices.Sorted(maps.Keys(accounts))...)
		if out[svc.Host] == nil {
			out[svc.Host] = map[string]*shards{}
		}
		out[svc.Host][svc.Namespace] = sh
	}
	return out, nil
}

// instancesz lists, for each connected proxy, the services that it serves.
func (a *API) instancesz(url.Values) (any, error) {
	out := map[string][]string{}
	s := a.o.Snapshot()
	if s == nil {
		return out, nil
	}
	hosts := map[string][]string{}
	for key, list := range s.EachEndpoints {
		seen := map[string]bool{}
		for _, e := range list.List {
			if !seen[e.Address] {
				seen[e.Address] = true
				hosts[e.Address] = append(hosts[e.Address], key.Host)
			}
		}
	}
	for _, c := range a.o.Proxies.Clients() {
		served := []string{}
		for _, ip := range c.Proxy.IPs {
			served = append(served, hosts[ip]...)
		}
		slices.Sort(served)
		out[c.Proxy.ID] = slices.Compact(served)
	}
	return out, nil
}

func (a *API) mesh(url.Values) (any, error) {
	s := a.o.Snapshot()
	if s == nil {
		return struct{}{}, nil
	}
	return protoJSON(s.Mesh.MeshConfig)
}

// clusterz lists the remote clusters.
func (a *API) clusterz(url.Values) (any, error) {
	if a.o.Clusters == nil {
		return []struct{}{}, nil
	}
	return a.o.Clusters(), nil
}

// pushStatus reports the revision in force, what it changed and why.
func (a *API) pushStatus(url.Values) (any, error) {
	s := a.o.Snapshot()
	if s == nil {
		return struct{}{}, nil
	}
	return map[string]any{
		"ProxyStatus": map[string]any{},
		"Revision":    s.Revision,
		"Full":        s.Diff.Full,
		"Start":       s.Diff.Received,
		"Triggers":    s.Diff.Triggers,
		"Causes":      orEmpty(s.Diff.Causes),
	}, nil
}

func (a *API) pushContext(url.Values) (any, error) {
	s := a.o.Snapshot()
	if s == nil {
		return struct{}{}, nil
	}
	endpoints := 0
	for _, e := range s.EachEndpoints {
		endpoints += len(e.List)
	}
	return map[string]any{
		"revision": s.Revision, "services": s.ServiceCount(), "endpoints": endpoints,
		"virtualServices": s.ObjectCount(kinds.VirtualService), "destinationRules": s.ObjectCount(kinds.DestinationRule),
		"gateways": s.ObjectCount(kinds.Gateway), "sidecars": s.ObjectCount(kinds.Sidecar),
	}, nil
}

// inject returns the templates of injection, by name.
func (a *API) inject(url.Values) (any, error) {
	if a.o.Templates == nil {
		return struct{}{}, nil
	}
	return a.o.Templates(), nil
}
