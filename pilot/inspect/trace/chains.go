package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// connection is what listener filters detect about a connection.
type connection struct {
	Request
	transport string
	protocols []string
	name      string // server name (SNI)
}

// connect returns what the listener filters of a listener detect.
func connect(l *listenerv3.Listener, r Request) connection {
	x := connection{Request: r, transport: "raw_buffer"}
	has := func(part string) bool {
		return slices.ContainsFunc(l.GetListenerFilters(), func(f *listenerv3.ListenerFilter) bool {
			return strings.Contains(f.GetName(), part) && !disabled(f.GetFilterDisabled(), r)
		})
	}
	switch {
	case r.HTTP3:
		x.transport, x.name, x.protocols = "quic", strings.ToLower(r.SNI), []string{"h3"}
	case r.TLS && has("tls_inspector"):
		x.transport, x.name, x.protocols = "tls", strings.ToLower(r.SNI), r.ALPN
	case !r.TLS && !r.Opaque && has("http_inspector"):
		x.protocols = []string{"http/1.1"}
	}
	return x
}

// disabled reports whether a listener filter does not run for a connection.
func disabled(p *listenerv3.ListenerFilterChainMatchPredicate, r Request) bool {
	switch rule := p.GetRule().(type) {
	case *listenerv3.ListenerFilterChainMatchPredicate_AnyMatch:
		return rule.AnyMatch
	case *listenerv3.ListenerFilterChainMatchPredicate_NotMatch:
		return !disabled(rule.NotMatch, r)
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		return int32(r.Port) >= rule.DestinationPortRange.GetStart() && int32(r.Port) < rule.DestinationPortRange.GetEnd()
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		return slices.ContainsFunc(rule.OrMatch.GetRules(), func(p *listenerv3.ListenerFilterChainMatchPredicate) bool { return disabled(p, r) })
	case *listenerv3.ListenerFilterChainMatchPredicate_AndMatch:
		return !slices.ContainsFunc(rule.AndMatch.GetRules(), func(p *listenerv3.ListenerFilterChainMatchPredicate) bool {
			return !disabled(p, r)
		})
	}
	return false
}

// level is one of the criteria by which Envoy narrows filter chains, one after the other. The most specific of the
// matching chains stay, and Envoy never goes back to an earlier criterion.
type level struct {
	// specificity of the match; 0 if the chain does not use this criterion, -1 if it does not match
	rank   func(m *listenerv3.FilterChainMatch, x connection) int
	reason func(m *listenerv3.FilterChainMatch) string
}

func levels() []level {
	return []level{
		{func(m *listenerv3.FilterChainMatch, x connection) int {
			switch p := m.GetDestinationPort(); {
			case p == nil:
				return 0
			case p.GetValue() == x.Port:
				return 1
			}
			return -1
		}, func(m *listenerv3.FilterChainMatch) string {
			return fmt.Sprintf("it is for port %d", m.GetDestinationPort().GetValue())
		}},
		{func(m *listenerv3.FilterChainMatch, x connection) int { return ranges(m.GetPrefixRanges(), x.Address) },
			func(m *listenerv3.FilterChainMatch) string {
				return "it is for the addresses " + prefixes(m.GetPrefixRanges())
			}},
		{func(m *listenerv3.FilterChainMatch, x connection) int { return servers(m.GetServerNames(), x.name) },
			func(m *listenerv3.FilterChainMatch) string {
				return "it is for TLS with the server name " + strings.Join(m.GetServerNames(), ", ")
			}},
		{func(m *listenerv3.FilterChainMatch, x connection) int {
			switch t := m.GetTransportProtocol(); t {
			case "":
				return 0
			case x.transport:
				return 1
			}
			return -1
		}, func(m *listenerv3.FilterChainMatch) string {
			if m.GetTransportProtocol() == "tls" {
				return "it is for TLS"
			}
			return "it is for plaintext"
		}},
		{func(m *listenerv3.FilterChainMatch, x connection) int {
			if len(m.GetApplicationProtocols()) == 0 {
				return 0
			}
			for i, p := range x.protocols {
				if slices.Contains(m.GetApplicationProtocols(), p) {
					return len(x.protocols) - i
				}
			}
			return -1
		}, func(m *listenerv3.FilterChainMatch) string {
			return "it is for " + strings.Join(m.GetApplicationProtocols(), ", ")
		}},
		{func(m *listenerv3.FilterChainMatch, x connection) int {
			return ranges(m.GetSourcePrefixRanges(), x.SourceAddress)
		},
			func(m *listenerv3.FilterChainMatch) string {
				return "it is for callers at " + prefixes(m.GetSourcePrefixRanges())
			}},
	}
}

func chainName(c *listenerv3.FilterChain) string { return cmp.Or(c.GetName(), "(without a name)") }

// chainFor returns the filter chain that takes a connection, the other chains with the reasons, and why it takes the
// connection.
func chainFor(l *listenerv3.Listener, r Request) (*listenerv3.FilterChain, []Lost, string) {
	x := connect(l, r)
	left := slices.Clone(l.GetFilterChains())
	var lost []Lost
	var reasons []string
	for _, v := range levels() {
		best := -1
		for _, c := range left {
			best = max(best, v.rank(c.GetFilterChainMatch(), x))
		}
		said := map[string]bool{}
		left = slices.DeleteFunc(left, func(c *listenerv3.FilterChain) bool {
			m := c.GetFilterChainMatch()
			n := v.rank(m, x)
			if n == best && n >= 0 {
				if n > 0 {
					said[v.reason(m)] = true
				}
				return false
			}
			reason := "another one is more specific"
			if n < 0 {
				reason = v.reason(m)
			}
			lost = append(lost, Lost{Name: chainName(c), Reason: reason, Origin: originOfChain(c)})
			return true
		})
		if best > 0 && len(said) == 1 {
			for reason := range said {
				reasons = append(reasons, reason)
			}
		}
	}
	if len(left) > 0 {
		for _, c := range left[1:] {
			lost = append(lost, Lost{Name: chainName(c), Reason: "it matches the same as the chosen one"})
		}
		return left[0], lost, strings.Join(reasons, "; ")
	}
	if d := l.GetDefaultFilterChain(); d != nil {
		return d, lost, "no other one matches"
	}
	return nil, lost, "none matches"
}

func ranges(list []*corev3.CidrRange, address string) int {
	if len(list) == 0 {
		return 0
	}
	ip, err := netip.ParseAddr(address)
	best := -1
	for _, r := range list {
		if p, ok := prefix(r); err == nil && ok && p.Contains(ip.Unmap()) {
			best = max(best, p.Bits()+1)
		}
	}
	return best
}

func prefix(r *corev3.CidrRange) (netip.Prefix, bool) {
	ip, err := netip.ParseAddr(r.GetAddressPrefix())
	if err != nil {
		return netip.Prefix{}, false
	}
	p, err := ip.Prefix(int(r.GetPrefixLen().GetValue()))
	return p, err == nil
}

func prefixes(list []*corev3.CidrRange) string {
	var out []string
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s/%d", r.GetAddressPrefix(), r.GetPrefixLen().GetValue()))
	}
	return strings.Join(out, ", ")
}

// servers returns the specificity with which a server name is matched: exactly, or by the longest suffix.
func servers(list []string, name string) int {
	if len(list) == 0 {
		return 0
	}
	best := -1
	for _, s := range list {
		switch suffix, wild := strings.CutPrefix(s, "*"); {
		case s == name && name != "":
			return 1 << 20
		case wild && name != "" && strings.HasSuffix(name, suffix) && len(name) > len(suffix):
			best = max(best, len(suffix)+1)
		}
	}
	return best
}
