package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
)

// mesh has the services by namespace, and the configured routes between them.
type mesh struct {
	Namespaces []island `json:"namespaces"`
	Routes     []route  `json:"routes"`
}

// island is one namespace.
type island struct {
	Name     string    `json:"name"`
	Services []service `json:"services"`
	Proxies  int       `json:"proxies"` // connected proxies
}

type service struct {
	ID        string   `json:"id"` // host, or the ID of a gateway
	Name      string   `json:"name"`
	Gateway   bool     `json:"gateway,omitempty"` // a Gateway object
	External  bool     `json:"external,omitempty"`
	Ports     []string `json:"ports"`
	Endpoints int      `json:"endpoints"`
	Healthy   int      `json:"healthy"`
	Position  string   `json:"position,omitempty"`
}

// route is a route in the configuration from a service, or from a gateway, to another service.
type route struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Weight   int32  `json:"weight,omitempty"` // percent, if traffic is divided
	Object   string `json:"object"`
	Position string `json:"position,omitempty"`
	Known    bool   `json:"known"` // the destination is a service of the mesh
}

// makeMesh returns the mesh of the newest snapshot.
func (u *UI) makeMesh() mesh {
	m := mesh{Namespaces: []island{}, Routes: []route{}}
	s := u.o.World.Snapshot()
	if s == nil {
		return m
	}
	islands := map[string]*island{}
	in := func(namespace string) *island {
		if islands[namespace] == nil {
			islands[namespace] = &island{Name: namespace, Services: []service{}}
		}
		return islands[namespace]
	}
	known := map[string]bool{}
	for svc := range s.EachService {
		x := service{ID: svc.Host, Name: svc.Name, External: svc.MeshExternal, Ports: []string{}}
		for i := range svc.Ports {
			x.Ports = append(x.Ports, fmt.Sprintf("%d %s", svc.Ports[i].Number, strings.ToLower(string(svc.Ports[i].Protocol))))
		}
		if e := s.Endpoints(svc.Key()); e != nil {
			for _, e := range e.List {
				if x.Endpoints++; e.Health == registry.Healthy {
					x.Healthy++
				}
			}
		}
		known[svc.Host] = true
		at := in(svc.Namespace)
		at.Services = append(at.Services, x)
	}
	for _, o := range s.AllObjects(kinds.Gateway) {
		id := gatewayID(o.Namespace + "/" + o.Name)
		known[id] = true
		at := in(o.Namespace)
		at.Services = append(at.Services, service{ID: id, Name: o.Name, Gateway: true, Ports: []string{}, Position: o.Position})
	}
	for _, o := range s.AllObjects(kinds.VirtualService) {
		if spec, ok := o.Spec.(*networkingv1.VirtualService); ok {
			m.Routes = append(m.Routes, u.routesOf(o, spec, known)...)
		}
	}
	clients, _ := u.proxies.get(u.o.Now)
	for i := range clients {
		in(clients[i].Namespace).Proxies++
	}
	for _, at := range islands {
		slices.SortFunc(at.Services, func(a, b service) int {
			return cmp.Or(-compareBools(a.Gateway, b.Gateway), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
		})
		m.Namespaces = append(m.Namespaces, *at)
	}
	slices.SortFunc(m.Namespaces, func(a, b island) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(m.Routes, func(a, b route) int { return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.To, b.To)) })
	return m
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func gatewayID(name string) string { return "gateway " + name }

// routesOf returns the routes of one VirtualService.
func (u *UI) routesOf(o *kinds.Object, spec *networkingv1.VirtualService, known map[string]bool) []route {
	shares := map[string]int32{} // largest weight by destination
	add := func(host string, weight int32) {
		if host != "" {
			to := names.Destination(host, o.Namespace, u.o.Domain)
			shares[to] = max(shares[to], weight)
		}
	}
	for _, r := range spec.Http {
		for _, d := range r.Route {
			add(d.GetDestination().GetHost(), d.Weight)
		}
	}
	for _, r := range spec.Tcp {
		for _, d := range r.Route {
			add(d.GetDestination().GetHost(), d.Weight)
		}
	}
	for _, r := range spec.Tls {
		for _, d := range r.Route {
			add(d.GetDestination().GetHost(), d.Weight)
		}
	}
	position := o.Position
	object := o.Key
	if from := u.o.World.Origin(o.Key); from != nil {
		object, position = from.Key, from.Position
	}
	var from []string
	for _, g := range spec.Gateways {
		if g = names.Gateway(g, o.Namespace); g != "mesh" {
			from = append(from, gatewayID(g))
		}
	}
	if len(spec.Gateways) == 0 || slices.Contains(spec.Gateways, "mesh") {
		for _, h := range spec.Hosts {
			from = append(from, names.FQDN(h, o.Namespace, u.o.Domain))
		}
	}
	var list []route
	for _, f := range from {
		for to, weight := range shares {
			list = append(list, route{From: f, To: to, Weight: weight, Object: object.String(), Position: position, Known: known[to]})
		}
	}
	return list
}
