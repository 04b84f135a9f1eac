package debug

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/registry"
)

// service is one service with istiod's keys. Visibility, DNSConnectStrategy, ClusterExternalPorts and
// PassthroughTargetPorts are missing, because the registries do not keep them.
type service struct {
	Attributes      attributes `json:"Attributes"`
	Ports           []port     `json:"ports"`
	ServiceAccounts []string   `json:"serviceAccounts,omitempty"`
	CreationTime    time.Time  `json:"creationTime"`
	Hostname        string     `json:"hostname"`
	ClusterVIPs     vips       `json:"clusterVIPs"`
	DefaultAddress  string     `json:"defaultAddress"`
	AutoIPv4        string     `json:"autoAllocatedIPv4Address,omitempty"`
	AutoIPv6        string     `json:"autoAllocatedIPv6Address,omitempty"`
	Resolution      int        `json:"Resolution"`
	MeshExternal    bool       `json:"MeshExternal"`
	Position        string     `json:"position,omitempty"` // file:line:column; istiod has no such field
}

type attributes struct {
	ServiceRegistry          string
	Name                     string
	Namespace                string
	Labels                   map[string]string
	ExportTo                 map[string]struct{} // null if the mesh's default applies
	LabelSelectors           map[string]string
	Aliases                  []alias
	ClusterExternalAddresses vips
	Type                     string // type of a Kubernetes Service
	ExternalName             string
	NodeLocal                bool
	TrafficDistribution      int
	ObjectName               string // name of the ServiceEntry
	PublishNotReadyAddresses bool
}

type alias struct{ Hostname, Namespace string }

type port struct {
	Name     string `json:"name,omitempty"`
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol"`
}

type vips struct {
	Addresses map[string][]string // by cluster
}

// unspecified is the address of services without one, as in istiod.
const unspecified = "0.0.0.0"

// services describes services. It looks up the objects once.
type services struct {
	cluster string // the server's own cluster
	objects map[kinds.Key]*kinds.Object
}

func (a *API) newServices() services {
	s := services{a.o.Cluster, map[kinds.Key]*kinds.Object{}}
	for _, o := range a.o.World.Objects() {
		if o.Kind == kinds.Service || o.Kind == kinds.ServiceEntry {
			s.objects[o.Key] = o
		}
	}
	return s
}

// describe describes a service with the ports that a scope imports, or with all ports if imported is nil.
func (s services) describe(svc *registry.Service, imported *scope.Service) service {
	d := service{
		Attributes: attributes{
			ServiceRegistry: provider(svc), Name: svc.Name, Namespace: svc.Namespace, Labels: svc.Labels, LabelSelectors: svc.Selector,
			ExternalName: svc.ExternalName, NodeLocal: svc.NodeLocal, TrafficDistribution: distributions[svc.TrafficDist],
			PublishNotReadyAddresses: svc.PublishNotReady,
		},
		Ports: []port{}, ServiceAccounts: svc.ServiceAccounts, CreationTime: svc.Created, Hostname: svc.Host,
		DefaultAddress: unspecified, Resolution: resolutions[svc.Resolution], MeshExternal: svc.MeshExternal,
	}
	if svc.ExportTo != nil {
		d.Attributes.ExportTo = map[string]struct{}{}
		for _, to := range svc.ExportTo {
			d.Attributes.ExportTo[to] = struct{}{}
		}
	}
	if len(svc.Addresses) > 0 {
		d.DefaultAddress = svc.Addresses[0]
	}
	for _, text := range svc.AutoAddress {
		if at, err := netip.ParseAddr(text); err == nil && at.Is4() {
			d.AutoIPv4 = text
		} else {
			d.AutoIPv6 = text
		}
	}
	add := func(p *registry.Port) bool {
		d.Ports = append(d.Ports, port{p.Name, p.Number, string(p.Protocol)})
		return true
	}
	if imported != nil {
		imported.ImportedPorts(add)
	} else {
		for i := range svc.Ports {
			add(&svc.Ports[i])
		}
	}
	if svc.Provider == registry.External {
		d.Attributes.ObjectName = svc.Object
		if o := s.objects[kinds.Key{Kind: kinds.ServiceEntry, Namespace: svc.Namespace, Name: svc.Object}]; o != nil {
			d.Position = o.Position
		}
		return d
	}
	d.ClusterVIPs.Addresses = map[string][]string{}
	for cluster, version := range versions(svc, s.cluster) {
		addresses := version.Addresses
		if len(addresses) == 0 {
			addresses = []string{unspecified}
		}
		d.ClusterVIPs.Addresses[cluster] = addresses
	}
	o := s.objects[kinds.Key{Kind: kinds.Service, Namespace: svc.Namespace, Name: svc.Name}]
	if o == nil {
		return d
	}
	d.Position = o.Position
	if spec, ok := o.Spec.(*corev1.Service); ok {
		d.Attributes.Type = string(spec.Spec.Type)
		d.Attributes.Type = cmp.Or(d.Attributes.Type, string(corev1.ServiceTypeClusterIP))
		if external := externalAddresses(spec); len(external) > 0 {
			d.Attributes.ClusterExternalAddresses.Addresses = map[string][]string{s.cluster: external}
		}
	}
	return d
}

// versions returns the service as it is in each cluster.
func versions(svc *registry.Service, own string) map[string]*registry.Service {
	if svc.Clusters == nil {
		return map[string]*registry.Service{own: svc}
	}
	all := make(map[string]*registry.Service, len(svc.Clusters))
	for cluster, version := range svc.Clusters {
		cluster = cmp.Or(cluster, own)
		all[cluster] = version
	}
	return all
}

// externalAddresses returns the addresses of a service for clients outside its cluster.
func externalAddresses(s *corev1.Service) []string {
	var list []string
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range s.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				list = append(list, in.IP)
			} else if in.Hostname != "" {
				list = append(list, in.Hostname)
			}
		}
	}
	return append(list, s.Spec.ExternalIPs...)
}

func provider(s *registry.Service) string {
	if s.Provider == registry.External {
		return "External"
	}
	return "Kubernetes"
}

// resolutions are istiod's numbers. Other resolutions are 0.
var resolutions = map[registry.Resolution]int{
	registry.DNS: 1, registry.Passthrough: 2, registry.DNSRoundRobin: 3, registry.Alias: 4, registry.DynamicDNS: 5,
}

// distributions are istiod's numbers. Other values are 0.
var distributions = map[string]int{"PreferClose": 1, "PreferSameZone": 1, "PreferSameNode": 2}

func (a *API) registryz(url.Values) (any, error) {
	out := []service{}
	s := a.o.World.Snapshot()
	if s == nil {
		return out, nil
	}
	all := a.newServices()
	for _, svc := range s.Services() {
		out = append(out, all.describe(svc, nil))
	}
	return out, nil
}

// instance is one port of a service that a proxy serves.
type instance struct {
	Service service
	Port    targetPort
}

type targetPort struct {
	port
	TargetPort uint32
}

// instancesz lists the service ports of each connected proxy.
func (a *API) instancesz(url.Values) (any, error) {
	out := map[string][]instance{}
	s := a.o.World.Snapshot()
	if s == nil {
		return out, nil
	}
	clients := a.o.Proxies.Clients()
	at := map[string][]instance{} // by address of a proxy
	for _, c := range clients {
		for _, ip := range c.Proxy.IPs {
			at[ip] = []instance{}
		}
	}
	all := a.newServices()
	for _, svc := range s.Services() {
		var d *service
		for _, e := range s.Endpoints(svc.Key()).List {
			if at[e.Address] == nil {
				continue
			}
			i := slices.IndexFunc(svc.Ports, func(p registry.Port) bool { return p.Name == e.ServicePort })
			if i < 0 {
				continue
			}
			if d == nil {
				described := all.describe(svc, nil)
				d = &described
			}
			p := &svc.Ports[i]
			at[e.Address] = append(at[e.Address], instance{*d, targetPort{port{p.Name, p.Number, string(p.Protocol)}, e.Port}})
		}
	}
	for _, c := range clients {
		served := []instance{}
		for _, ip := range c.Proxy.IPs {
			served = append(served, at[ip]...)
		}
		out[c.Proxy.ID] = served
	}
	return out, nil
}
