package debug

import (
	"net/url"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// sidecarScope is what a proxy sees, with the keys that istiod has.
type sidecarScope struct {
	Name             string                    `json:"name,omitempty"`
	Namespace        string                    `json:"namespace"`
	RootNamespace    string                    `json:"rootNamespace"`
	Sidecar          *configObject             `json:"sidecar,omitempty"`
	Services         []service                 `json:"services"`
	DestinationRules map[string][]configObject `json:"destinationRules"` // by host
}

// sidecarz shows the services that one proxy sees, with the ports that it sees of them, their DestinationRules, and the
// Sidecar that says so.
func (a *API) sidecarz(query url.Values) (any, error) {
	c, err := a.proxy(query)
	if err != nil {
		return nil, err
	}
	out := sidecarScope{Namespace: c.Proxy.Namespace, Services: []service{}, DestinationRules: map[string][]configObject{}}
	s := a.o.Snapshot()
	if s == nil || a.o.Visible == nil {
		return out, nil
	}
	out.RootNamespace = s.RootNamespace()
	sees, rules := a.o.Visible(s, c.Proxy)
	if sees.Sidecar != nil {
		d, err := describe(sees.Sidecar)
		if err != nil {
			return nil, err
		}
		out.Name, out.Sidecar = sees.Sidecar.Name, &d
	}
	for svc := range sees.Services {
		d := a.describeService(svc.Service)
		d.Ports = []port{}
		for p := range svc.ImportedPorts {
			d.Ports = append(d.Ports, port{p.Name, p.Number, string(p.Protocol)})
		}
		out.Services = append(out.Services, d)
		for _, o := range rules(svc.Service) {
			if o.Kind != kinds.DestinationRule {
				continue
			}
			rule, err := describe(o)
			if err != nil {
				return nil, err
			}
			out.DestinationRules[svc.Host] = append(out.DestinationRules[svc.Host], rule)
		}
	}
	return out, nil
}

// Cache is what is kept of encoded resources.
type Cache struct {
	Resources int    `json:"resources"`
	Hits      uint64 `json:"hits"`   // looks that found one
	Misses    uint64 `json:"misses"` // looks after which one was made
}

func (a *API) cachez(url.Values) (any, error) {
	if a.o.Cache == nil {
		return Cache{}, nil
	}
	return a.o.Cache(), nil
}

// describeService shows one service.
func (a *API) describeService(svc *registry.Service) service {
	d := service{
		Attributes: attributes{provider(svc), svc.Name, svc.Namespace, svc.Labels, svc.ExportTo, svc.Selector},
		Ports:      []port{}, Hostname: svc.Host, Resolution: resolution(svc.Resolution), MeshExternal: svc.MeshExternal,
	}
	for _, p := range svc.Ports {
		d.Ports = append(d.Ports, port{p.Name, p.Number, string(p.Protocol)})
	}
	if addresses := slices.Concat(svc.Addresses, svc.AutoAddress); len(addresses) > 0 {
		d.ClusterVIPs.Addresses = map[string][]string{a.o.Cluster: addresses}
	}
	if !svc.Created.IsZero() {
		d.CreationTime = &svc.Created
	}
	return d
}
