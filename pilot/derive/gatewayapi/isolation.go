package gatewayapi

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// hostnamePort identifies an HTTP listener of a Gateway.
type hostnamePort struct {
	hostname string
	port     gatewayv1.PortNumber
}

// key returns a key that identifies the listener in a cell, together with a Gateway.
func (h hostnamePort) key(of kinds.Key) kinds.Key {
	of.Name = fmt.Sprintf("%s/%d/%s", of.Name, h.port, h.hostname)
	return of
}

// listenerOf returns the listener that takes requests for a host of a listener: the HTTP listener on its port with the
// most specific hostname. For HTTPS and TLS the server name of the handshake has selected the listener already.
func (l *listener) listenerOf(looked *lookups, host string) *listener {
	if l.Protocol != gatewayv1.HTTPProtocolType || host == "*" {
		return l
	}
	for rest := host; rest != "*"; rest = wider(rest) {
		if n := looked.http(l.gateway, hostnamePort{rest, l.Port}); n != nil {
			return n
		}
	}
	return l
}

// wider returns the next wider hostname: "*" for a name without a parent, and "" for "*".
func wider(host string) string {
	if host == "*" {
		return ""
	}
	_, parent, more := strings.Cut(strings.TrimPrefix(host, "*."), ".")
	if !more {
		return "*"
	}
	return "*." + parent
}

// isolated returns the listeners whose hostname another listener of their port covers.
func (g *gateway) isolated() map[target]*listener {
	if g == nil {
		return nil
	}
	all := map[target]*listener{}
	for _, l := range g.http {
		if l.name == "" {
			continue
		}
		parent := wider(l.hostname)
		for parent != "" && g.http[hostnamePort{parent, l.Port}] == nil {
			parent = wider(parent)
		}
		if parent != "" {
			all[target{listener: l.id(), host: l.hostname}] = l
		}
	}
	return all
}

// isolate makes the hostnames of a Gateway's listeners answer requests for which there is no route, so that a listener
// with a wider hostname does not take them. It removes the same for the previous listeners.
func (r *run) isolate(before, now map[target]*listener) {
	for t, l := range before {
		if h := r.host(t); now[t] != l {
			if h.alone == l { // otherwise another Gateway has the ListenerSet now
				h.alone = nil
			}
			r.hostsDue[h] = true
		}
	}
	for t, l := range now {
		if h := r.host(t); h.alone != l {
			h.alone = l
			r.hostsDue[h] = true
		}
	}
}

// unanswered reports whether a host needs an answer to requests because no route is for it. A route without hostnames
// is for each host of its listener.
func (r *run) unanswered(h *host) bool {
	if h.alone == nil || len(h.of) > 0 {
		return false
	}
	every := r.hosts[target{listener: h.listener, host: "*"}]
	return every == nil || len(every.of) == 0
}

// everyHost makes the hostname of a listener due when a route without hostnames is attached or detached.
func (r *run) everyHost(a attachment) {
	h := r.hosts[target{listener: a.listener.id(), host: a.listener.hostname}]
	if h != nil && h.alone != nil && len(h.of) == 0 && slices.Contains(a.hosts, "*") {
		r.hostsDue[h] = true
	}
}

// unrouted returns the VirtualService of a listener's hostname for which there is no route.
func (l *listener) unrouted() derive.Derived {
	return derive.Derived{Origin: l.owner.Key, Object: &kinds.Object{
		Key: kinds.Key{Kind: kinds.VirtualService, Namespace: l.owner.Namespace, Name: l.hostName(l.hostname)}, Created: l.owner.Created,
		Spec: &networkingv1.VirtualService{Hosts: []string{l.hostname}, Gateways: []string{l.name}, Http: []*networkingv1alpha3.HTTPRoute{{
			Name: "no-route", DirectResponse: &networkingv1alpha3.HTTPDirectResponse{Status: 404},
		}}},
	}}
}

// hostName returns the name of the VirtualService of a host.
func (l *listener) hostName(host string) string {
	return strings.Join([]string{l.owner.Namespace, l.ownerName, suffix, string(l.Name), host}, "~")
}
