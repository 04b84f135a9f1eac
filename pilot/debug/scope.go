package debug

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// sidecarScope is the scope of a proxy with istiod's keys.
type sidecarScope struct {
	Name                   string                       `json:"name"` // name of the Sidecar; empty without one
	Namespace              string                       `json:"namespace"`
	RootNamespace          string                       `json:"rootNamespace"`
	Version                string                       `json:"version"` // revision of the snapshot
	Sidecar                json.RawMessage              `json:"sidecar,omitempty"`
	OutboundTrafficPolicy  json.RawMessage              `json:"outboundTrafficPolicy,omitempty"`
	Services               []service                    `json:"services"`
	ServicesByHostname     map[string]service           `json:"servicesByHostname"`
	EgressListenerServices [][]service                  `json:"egressListenerServices"` // one list for each egress listener
	DestinationRules       map[string][]destinationRule `json:"destinationRules"`       // by host
}

// destinationRule is a DestinationRule of a host, and the objects that it is made of.
type destinationRule struct {
	Rule     istioConfig         `json:"rule"`
	From     []fullName          `json:"from"`
	ExportTo map[string]struct{} `json:"exportTo"`
}

type fullName struct{ Namespace, Name string }

// istioConfig is an object in istiod's internal format.
type istioConfig struct {
	Type        configType        `json:"type"`
	UID         string            `json:"uid,omitempty"`
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Domain      string            `json:"domain,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     *time.Time        `json:"creationTimestamp,omitempty"`
	Generation  int64             `json:"generation,omitempty"`
	Spec        json.RawMessage   `json:"Spec"`
	Position    string            `json:"position,omitempty"` // file:line:column
}

type configType struct {
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func typeOf(k *kinds.Kind) configType { return configType{k.Group, k.Versions[0], k.Name} }

// describeConfig describes an object whose spec is a message.
func describeConfig(o *kinds.Object, domain string) (istioConfig, error) {
	m := describeMeta(o)
	c := istioConfig{
		Type: typeOf(o.Kind), UID: o.UID, Name: o.Name, Namespace: o.Namespace, Domain: domain, Labels: o.Labels, Annotations: m.Annotations,
		Created:    m.Created,
		Generation: o.Generation, Position: o.Position,
	}
	spec, ok := o.Spec.(proto.Message)
	if !ok {
		return c, nil
	}
	var err error
	c.Spec, err = protoJSON(spec)
	return c, err
}

// sidecarz returns the services that one proxy sees, with the visible ports and DestinationRules, and the Sidecar in
// force.
func (a *API) sidecarz(query url.Values) (any, error) {
	c, err := a.proxy(query)
	if err != nil {
		return nil, err
	}
	out := sidecarScope{
		Namespace: c.Proxy.Namespace, Services: []service{}, ServicesByHostname: map[string]service{}, EgressListenerServices: [][]service{},
		DestinationRules: map[string][]destinationRule{},
	}
	s := a.o.World.Snapshot()
	if s == nil || a.o.Translator == nil {
		return out, nil
	}
	out.RootNamespace, out.Version = s.RootNamespace(), strconv.FormatUint(s.Revision, 10)
	sees, rules := a.o.Translator.Visible(s, c.Proxy)
	if err := out.describeSidecar(sees); err != nil {
		return nil, err
	}
	all := a.newServices()
	describe := func(svc scope.Service) service {
		d := all.describe(svc.Service, &svc)
		for _, other := range sees.Aliases(svc.Service) {
			d.Attributes.Aliases = append(d.Attributes.Aliases, alias{other.Host, other.Namespace})
		}
		return d
	}
	for svc := range sees.Services {
		d := describe(svc)
		out.Services = append(out.Services, d)
		out.ServicesByHostname[svc.Host] = d
		for _, o := range rules(svc.Service) {
			if o.Kind != kinds.DestinationRule {
				continue
			}
			rule, err := describeConfig(o, a.o.Domain)
			if err != nil {
				return nil, err
			}
			d := destinationRule{rule, []fullName{{o.Namespace, o.Name}}, map[string]struct{}{}}
			if spec, ok := o.Spec.(*networkingv1.DestinationRule); ok {
				for _, to := range spec.ExportTo {
					d.ExportTo[to] = struct{}{}
				}
			}
			out.DestinationRules[svc.Host] = append(out.DestinationRules[svc.Host], d)
		}
	}
	for i := range sees.Egress {
		list := []service{}
		for svc := range sees.Egress[i].Services {
			list = append(list, describe(svc))
		}
		out.EgressListenerServices = append(out.EgressListenerServices, list)
	}
	return out, nil
}

// describeSidecar sets the fields of the Sidecar object.
func (d *sidecarScope) describeSidecar(sees *scope.Scope) error {
	if sees.Sidecar == nil {
		return nil
	}
	spec := sees.Spec()
	d.Name = sees.Sidecar.Name
	var err error
	if d.Sidecar, err = protoJSON(spec); err != nil {
		return err
	}
	if spec.OutboundTrafficPolicy != nil {
		d.OutboundTrafficPolicy, err = protoJSON(spec.OutboundTrafficPolicy)
	}
	return err
}
