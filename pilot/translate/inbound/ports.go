package inbound

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Port is one port on which a sidecar accepts calls to its workload: the target of services, or the port of a Sidecar's
// ingress listener.
type Port struct {
	Target   uint32
	Port     uint32 // port of the service, or of the ingress listener
	Host     string // host of requests in traces
	Protocol protocols.Protocol
	Services frozen.List[*registry.Service] // services with this target, oldest first
	Rule     traffic.Rule                   // rule of the first service

	Ingress   *kinds.Object                         // Sidecar with the ingress listener, or nil
	Bind      string                                // for an ingress: the address in the name of its listener or chain
	BindsPort bool                                  // whether it has a listener of its own
	TLS       *networkingv1alpha3.ServerTLSSettings // TLS settings of an ingress, or nil
	// for an ingress: the workload's own listener, host:port or unix:///path; empty for the original destination
	Endpoint string
}

// Ports returns the ports of an inbound cohort by target. If several services have one target, the oldest one's
// protocol is used.
func Ports(v *view.View, c cohort.Inbound) []Port {
	var served []Port
	byTarget := map[uint32]int{} // index in served, by target
	for t := range c.Targets.All {
		if t.TargetPort == uint32(v.Mesh().GetProxyInboundListenPort()) {
			continue
		}
		if i, ok := byTarget[t.TargetPort]; ok {
			if served[i].Protocol != t.Service.Port(t.Port).Protocol {
				v.Log.Add(struct{}{}, view.ConflictInbound, t.Service.Host+":"+strconv.FormatUint(uint64(t.Port), 10))
			}
			if !slices.Contains(slices.Collect(served[i].Services.All), t.Service) {
				served[i].Services = frozen.ListOf(append(slices.Collect(served[i].Services.All), t.Service)...)
			}
			continue
		}
		byTarget[t.TargetPort] = len(served)
		served = append(served, Port{
			Target: t.TargetPort, Port: t.Port, Host: t.Service.Host, Protocol: t.Service.Port(t.Port).Protocol,
			Services: frozen.ListOf(t.Service), Rule: traffic.ServiceRule(t.Rules),
			Bind: envoy.Wildcard(c.IPv4), Endpoint: localEndpoint(v, c, t.TargetPort),
		})
	}
	if c.Ingress != nil {
		if spec := c.Ingress.Spec.(*networkingv1.Sidecar); len(spec.Ingress) > 0 {
			return ingressPorts(c, spec, served)
		}
	}
	if c.Interception == node.None {
		return nil // nothing is captured, and there is no listener to bind
	}
	slices.SortFunc(served, func(a, b Port) int { return int(a.Target) - int(b.Target) })
	return served
}

// localEndpoint returns the address of a workload's port on loopback, if the mesh calls workloads there. It is empty
// for the original destination.
func localEndpoint(v *view.View, c cohort.Inbound, port uint32) string {
	if v.Mesh().InboundPassthrough() {
		return ""
	}
	return net.JoinHostPort(envoy.Loopback(c.IPv4), strconv.FormatUint(uint64(port), 10))
}

// bindsPort reports whether an ingress listener has a port of its own. The proxy decides unless the Sidecar does: where
// nothing is captured, a listener for captured traffic serves nothing.
func bindsPort(m networkingv1alpha3.CaptureMode, c cohort.Inbound) bool {
	if m == networkingv1alpha3.CaptureMode_DEFAULT {
		return c.Interception == node.None
	}
	return m == networkingv1alpha3.CaptureMode_NONE
}

// ingressPorts returns the ports of a Sidecar's ingress listeners, which replace those of the services.
func ingressPorts(c cohort.Inbound, spec *networkingv1.Sidecar, served []Port) []Port {
	var ports []Port
	for _, l := range spec.Ingress {
		n := l.GetPort().GetNumber()
		p := Port{
			Target: n, Port: n, Host: c.Ingress.Name + "." + c.Ingress.Namespace, Protocol: protocols.Parse(l.GetPort().GetProtocol()),
			Ingress: c.Ingress, Bind: l.Bind, BindsPort: bindsPort(l.CaptureMode, c),
			Endpoint: defaultEndpoint(l.DefaultEndpoint, c), TLS: l.Tls,
		}
		p.Bind = cmp.Or(p.Bind, c.Address)
		if i := slices.IndexFunc(served, func(s Port) bool { return s.Target == n }); i >= 0 {
			p.Services, p.Rule = served[i].Services, served[i].Rule
		}
		ports = append(ports, p)
	}
	return ports
}

// defaultEndpoint returns the destination of an ingress listener, if it is the workload's own: a unix socket, loopback,
// or (for 0.0.0.0) the proxy's address.
func defaultEndpoint(written string, c cohort.Inbound) string {
	if strings.HasPrefix(written, "unix://") {
		return written
	}
	host, port, err := net.SplitHostPort(written)
	if err != nil {
		return ""
	}
	switch host {
	case "127.0.0.1", "::1": // in the proxy's address family
		return net.JoinHostPort(envoy.Loopback(c.IPv4), port)
	case "0.0.0.0", "::":
		return net.JoinHostPort(c.Address, port)
	}
	return ""
}
