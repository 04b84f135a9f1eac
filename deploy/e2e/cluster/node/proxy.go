package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

// serviceProxy serves one port of a Service.
type serviceProxy struct {
	cancel context.CancelFunc
	next   atomic.Uint32
}

// endpoint is a ready endpoint.
type endpoint struct {
	addr  netip.Addr
	ports map[string]int32 // by name
}

// endpoints returns the ready IPv4 endpoints of a Service.
func (n *Node) endpoints(s *corev1.Service) (out []endpoint) {
	list, err := n.factory.Discovery().V1().EndpointSlices().Lister().EndpointSlices(s.Namespace).
		List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Name}))
	if err != nil {
		return nil
	}
	for _, slice := range list {
		ports := map[string]int32{}
		for _, p := range slice.Ports {
			if p.Name != nil && p.Port != nil {
				ports[*p.Name] = *p.Port
			}
		}
		for _, e := range slice.Endpoints {
			addr, err := netip.ParseAddr(e.Addresses[0])
			if err == nil && addr.Is4() && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, endpoint{addr, ports})
			}
		}
	}
	return out
}

// syncProxies serves the TCP ports of all Services with an address.
func (n *Node) syncProxies() error {
	all, err := n.services()
	if err != nil {
		return err
	}
	want := map[string]bool{}
	var errs []error
	for _, s := range all {
		addr, err := netip.ParseAddr(s.Spec.ClusterIP)
		if err != nil || !addr.Is4() || s.DeletionTimestamp != nil {
			continue
		}
		for _, port := range s.Spec.Ports {
			if port.Protocol != corev1.ProtocolTCP {
				continue
			}
			key := fmt.Sprintf("%s %s %d", s.UID, port.Name, port.Port)
			want[key] = true
			if n.listening[key] != nil {
				continue
			}
			p, err := n.proxy(s, port, addr)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			n.listening[key] = p
		}
	}
	for key, p := range n.listening {
		if !want[key] {
			p.cancel()
			delete(n.listening, key)
		}
	}
	return errors.Join(errs...)
}

func (n *Node) proxy(s *corev1.Service, port corev1.ServicePort, addr netip.Addr) (*serviceProxy, error) {
	if err := n.o.Network.AddAddress(addr); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(n.ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(int(port.Port))))
	if err != nil {
		return nil, fmt.Errorf("serve Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	p := &serviceProxy{}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(n.ctx)
	n.goes("Service "+s.Name, func() {
		_ = pods.Relay(ctx, l, func(ctx context.Context) (net.Conn, error) {
			list := n.endpoints(s)
			if len(list) == 0 {
				return nil, errors.New("no endpoint is ready")
			}
			to := list[int(p.next.Add(1))%len(list)]
			return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(to.addr.String(), strconv.Itoa(int(to.ports[port.Name]))))
		})
	})
	return p, nil
}
