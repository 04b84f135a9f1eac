package node

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

// domain is the domain of Services.
const domain = ".svc.cluster.local."

// serveDNS serves the names of Services on the node's address.
func (n *Node) serveDNS() error {
	address := net.JoinHostPort(n.host().String(), "53")
	for _, network := range []string{"udp", "tcp"} {
		ready, failed := make(chan struct{}), make(chan error, 1)
		s := &dns.Server{Addr: address, Net: network, Handler: dns.HandlerFunc(n.answer), NotifyStartedFunc: func() { close(ready) }}
		n.goes("dns", func() { failed <- s.ListenAndServe() })
		select {
		case <-ready:
		case err := <-failed:
			return fmt.Errorf("serve DNS: %w", err)
		}
		n.goes("end of dns", func() { <-n.ctx.Done(); _ = s.Shutdown() })
	}
	return nil
}

func (n *Node) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.Authoritative, m.RecursionAvailable = true, true
	for _, question := range q.Question {
		addrs, alias, ok := n.lookup(strings.ToLower(question.Name))
		if !ok {
			m.Rcode = dns.RcodeNameError
		}
		header := dns.RR_Header{Name: question.Name, Class: dns.ClassINET, Ttl: 5}
		if alias != "" {
			header.Rrtype = dns.TypeCNAME
			m.Answer = append(m.Answer, &dns.CNAME{Hdr: header, Target: dns.Fqdn(alias)})
			header.Name = dns.Fqdn(alias)
			addrs, _, _ = n.lookup(header.Name)
		}
		for _, a := range addrs {
			if question.Qtype == dns.TypeA && a.Is4() {
				header.Rrtype = dns.TypeA
				m.Answer = append(m.Answer, &dns.A{Hdr: header, A: a.AsSlice()})
			}
		}
	}
	_ = w.WriteMsg(m)
}

// lookup returns the addresses of a name, or the name that it is an alias of.
func (n *Node) lookup(question string) (addrs []netip.Addr, alias string, ok bool) {
	short, ok := strings.CutSuffix(question, domain)
	service, namespace, two := strings.Cut(short, ".")
	if !ok || !two {
		return nil, "", false
	}
	s, err := n.factory.Core().V1().Services().Lister().Services(namespace).Get(service)
	if err != nil {
		return nil, "", false
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, s.Spec.ExternalName, true
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		addr, err := netip.ParseAddr(s.Spec.ClusterIP)
		return []netip.Addr{addr}, "", err == nil
	}
	for _, to := range n.endpoints(s) {
		addrs = append(addrs, to.addr)
	}
	return addrs, "", true
}
