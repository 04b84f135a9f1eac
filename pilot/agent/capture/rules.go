package capture

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Chain is a list of rules at one hook of the kernel. The first matching rule decides. If no rule matches, the packet
// is accepted.
type Chain struct {
	Name     string
	Type     nftables.ChainType
	Hook     *nftables.ChainHook
	Priority *nftables.ChainPriority
	Rules    []Rule
}

// tableName is the name of the tables of both families.
const tableName = "pilot_agent"

const (
	eq  = expr.CmpOpEq
	neq = expr.CmpOpNeq
)

const dnsPort = 53

// Conntrack zones for the queries of applications and for those of the agent, which may have the same addresses and
// ports.
const (
	zoneAgent = 1
	zoneApp   = 2
)

// builder makes the rules of one IP family.
type builder struct {
	Config
	v6 bool
	// localhost is Loopback or ::1. source is the address from which Envoy calls the application.
	localhost, source netip.Prefix
}

// Rules returns the chains of one IP family that have rules.
func (c Config) Rules(v6 bool) []Chain {
	r := builder{Config: c, v6: v6, localhost: single("127.0.0.1"), source: single("127.0.0.6")}
	if v6 {
		r.localhost, r.source = single("::1"), single("::6")
	} else if c.Loopback.IsValid() {
		r.localhost = c.Loopback
	}
	var chains []Chain
	for _, chain := range []Chain{
		{"dns_in", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, r.dnsIn()},
		{"dns_out", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityRaw, r.dnsOut()},
		{"mark_in", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle, r.markIn()},
		{"mark_out", nftables.ChainTypeRoute, nftables.ChainHookOutput, nftables.ChainPriorityMangle, r.markOut()},
		{"redirect_in", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, r.redirectIn()},
		{"redirect_out", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest, r.redirectOut()},
	} {
		if len(chain.Rules) > 0 {
			chains = append(chains, chain)
		}
	}
	return chains
}

func single(ip string) netip.Prefix {
	a := netip.MustParseAddr(ip)
	return netip.PrefixFrom(a, a.BitLen())
}

// ofFamily returns the ranges of the builder's family.
func (r builder) ofFamily(ranges []netip.Prefix) (list []netip.Prefix) {
	return lists.Filter(ranges, func(p netip.Prefix) bool { return p.Addr().Is6() == r.v6 })
}

// envoyConditions returns conditions of which each of Envoy's connections meets at least one.
func (r builder) envoyConditions() (list []statement) {
	for _, id := range r.UIDs {
		list = append(list, meta("skuid", expr.MetaKeySKUID, eq, id))
	}
	for _, id := range r.GIDs {
		list = append(list, meta("skgid", expr.MetaKeySKGID, eq, id))
	}
	for _, m := range r.Marks {
		list = append(list, mark(eq, m))
	}
	return list
}

// exempt returns rules that exempt the traffic of ExcludeInterfaces.
func (r builder) exempt(out bool) (rules []Rule) {
	return lists.Map(r.ExcludeInterfaces, func(name string) Rule { return Rule{interfaceIs(out, name), accept()} })
}

// servers returns lists of conditions. Captured DNS queries meet all conditions of one of them. If from is set, the
// lists are for responses.
func (r builder) servers(from bool) (list [][]statement) {
	if r.AllDNS {
		return [][]statement{nil}
	}
	for _, s := range r.DNSServers {
		if s.Is6() == r.v6 {
			list = append(list, []statement{address(from, eq, netip.PrefixFrom(s, s.BitLen()))})
		}
	}
	return list
}

// dnsOut separates the queries of applications from those of the agent.
func (r builder) dnsOut() (rules []Rule) {
	if !r.DNS {
		return nil
	}
	for _, condition := range r.envoyConditions() {
		rules = append(rules,
			Rule{udp(), port(false, eq, dnsPort), condition, zone(zoneAgent), accept()},
			Rule{udp(), port(true, eq, r.DNSPort), condition, zone(zoneApp), accept()})
	}
	for _, server := range r.servers(false) {
		rules = append(rules, append(Rule{udp(), port(false, eq, dnsPort)}, append(server, zone(zoneApp))...))
	}
	return rules
}

// dnsIn does the same for responses.
func (r builder) dnsIn() (rules []Rule) {
	if !r.DNS {
		return nil
	}
	for _, server := range r.servers(true) {
		rules = append(rules, append(Rule{udp(), port(true, eq, dnsPort)}, append(server, zone(zoneAgent))...))
	}
	return rules
}

// inbound returns the rules for excluded ports, and lists of conditions. Captured inbound connections meet all
// conditions of one list. The rules must come first.
func (r builder) inbound() (excluded []Rule, list [][]statement) {
	if r.Mode == None {
		return nil, nil
	}
	if !r.AllInbound {
		for _, p := range r.InboundInclude {
			list = append(list, []statement{tcp(), port(false, eq, p)})
		}
		return nil, list
	}
	for _, p := range r.InboundExclude {
		excluded = append(excluded, Rule{tcp(), port(false, eq, p), accept()})
	}
	return excluded, [][]statement{{tcp()}}
}

// markIn passes inbound connections to Envoy in mode TProxy.
func (r builder) markIn() (rules []Rule) {
	if r.DropInvalid {
		rules = append(rules, Rule{state("invalid", expr.CtStateBitINVALID), drop()})
	}
	excluded, captured := r.inbound()
	if r.Mode == TProxy && len(captured) > 0 {
		rules = append(rules,
			// Envoy calls the application from the address of its client and marks these packets. The application's
			// answers get the mark too, so that they return to Envoy.
			Rule{tcp(), mark(eq, r.TProxyMark), saveMark(), accept()},
			Rule{tcp(), interfaceIs(false, "lo"), address(true, eq, r.source), accept()},
			Rule{tcp(), interfaceIs(false, "lo"), mark(neq, r.toSelf()), accept()})
		rules = append(rules, excluded...)
		for _, c := range captured {
			c = append(c, address(false, neq, r.localhost))
			rule := func(s ...statement) { rules = append(rules, append(append(Rule{}, c...), s...)) }
			rule(state("established,related", expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), setMark(r.TProxyMark), accept())
			rule(tproxy(r.v6, r.InboundPort), setMark(r.TProxyMark), accept())
			rule(drop()) // if Envoy does not listen, connections must not bypass it
		}
	}
	if len(rules) == 0 {
		return nil
	}
	return append(r.exempt(false), rules...)
}

// toSelf is the mark of Envoy's connections to its own pod, in mode TProxy.
func (r builder) toSelf() uint32 { return r.TProxyMark + 1 }

// markOut returns answers to Envoy in mode TProxy, and marks Envoy's connections to its own pod as inbound.
func (r builder) markOut() (rules []Rule) {
	if _, captured := r.inbound(); r.Mode != TProxy || len(captured) == 0 {
		return nil
	}
	rules = append(r.exempt(true), Rule{tcp(), interfaceIs(true, "lo"), mark(eq, r.TProxyMark), accept()})
	for _, condition := range r.envoyConditions() {
		rules = append(rules, Rule{
			tcp(), interfaceIs(true, "lo"), address(false, neq, r.localhost), address(true, neq, r.source), condition,
			setMark(r.toSelf()), accept(),
		})
	}
	return append(rules, Rule{tcp(), connectionMark(r.TProxyMark), restoreMark()})
}

// redirectIn redirects inbound connections to Envoy.
func (r builder) redirectIn() (rules []Rule) {
	for _, name := range r.VirtualInterfaces {
		in := interfaceIs(false, name)
		if r.AllOutbound {
			rules = append(rules, Rule{in, tcp(), redirect(r.OutboundPort)})
		}
		for _, p := range r.ofFamily(r.IncludeRanges) {
			rules = append(rules, Rule{in, tcp(), address(false, eq, p), redirect(r.OutboundPort)})
		}
		rules = append(rules, Rule{in, accept()})
	}
	if excluded, captured := r.inbound(); r.Mode == Redirect && len(captured) > 0 {
		rules = append(rules, Rule{tcp(), port(false, eq, r.TunnelPort), accept()})
		rules = append(rules, excluded...)
		for _, c := range captured {
			rules = append(rules, append(append(Rule{}, c...), redirect(r.InboundPort)))
		}
	}
	if len(rules) == 0 {
		return nil
	}
	return append(r.exempt(false), rules...)
}

// redirectOut redirects outbound connections to Envoy, and DNS queries to the agent.
func (r builder) redirectOut() []Rule {
	rules := r.exempt(true)
	add := func(s ...statement) { rules = append(rules, s) }
	for _, p := range r.OutboundExclude {
		add(tcp(), port(false, eq, p), accept())
		add(udp(), port(false, eq, p), accept())
	}
	lo := interfaceIs(true, "lo")
	add(lo, address(true, eq, r.source), accept())
	for _, condition := range r.envoyConditions() {
		if r.Mode != Redirect {
			break // markIn handles TProxy
		}
		toSelf := []statement{lo, address(false, neq, r.localhost), tcp(), port(false, neq, r.TunnelPort)}
		if r.DNS {
			toSelf = append(toSelf, port(false, neq, dnsPort))
		}
		add(append(toSelf, condition, redirect(r.InboundPort))...)
	}
	for _, condition := range r.envoyConditions() {
		add(condition, accept())
	}
	if r.DNS {
		add(lo, tcp(), port(false, neq, dnsPort), accept())
	} else {
		add(lo, accept())
	}
	if len(r.IncludeGroups) > 0 {
		notIncluded := lists.Map(r.IncludeGroups, func(id uint32) statement { return meta("skgid", expr.MetaKeySKGID, neq, id) })
		add(append(notIncluded, accept())...)
	}
	for _, id := range r.ExcludeGroups {
		add(meta("skgid", expr.MetaKeySKGID, eq, id), accept())
	}
	if r.DNS {
		for _, server := range r.servers(false) {
			for _, protocol := range []statement{tcp(), udp()} {
				add(append(append([]statement{protocol, port(false, eq, dnsPort)}, server...), redirect(r.DNSPort))...)
			}
		}
	}
	add(address(false, eq, r.localhost), accept())
	for _, p := range r.ofFamily(r.ExcludeRanges) {
		add(address(false, eq, p), accept())
	}
	for _, p := range r.OutboundInclude {
		add(tcp(), port(false, eq, p), redirect(r.OutboundPort))
	}
	if r.AllOutbound {
		add(tcp(), redirect(r.OutboundPort))
	}
	for _, p := range r.ofFamily(r.IncludeRanges) {
		add(tcp(), address(false, eq, p), redirect(r.OutboundPort))
	}
	return rules
}

// families returns the captured IP families, each as whether it is IPv6.
func (c Config) families() []bool {
	if c.IPv6 {
		return []bool{false, true}
	}
	return []bool{false}
}

// Script returns the rules as a script for `nft -f`, with the `ip` commands that TPROXY needs as comments.
func (c Config) Script() string {
	var b strings.Builder
	for _, v6 := range c.families() {
		family, ip := "ip", "ip"
		if v6 {
			family, ip = "ip6", "ip -6"
		}
		fmt.Fprintf(&b, "table %s %s\ndelete table %s %[2]s\ntable %[1]s %[2]s {\n", family, tableName, family)
		for _, chain := range c.Rules(v6) {
			fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy accept;\n", chain.Name, chain.Type, hookName(chain.Hook),
				*chain.Priority)
			for _, rule := range chain.Rules {
				fmt.Fprintf(&b, "\t\t%s\n", rule)
			}
			b.WriteString("\t}\n")
		}
		b.WriteString("}\n")
		if c.Mode == TProxy {
			fmt.Fprintf(&b, "# %s rule add fwmark %d lookup %d\n# %[1]s route replace local default dev lo table %[3]d\n", ip, c.TProxyMark,
				c.TProxyTable)
		}
	}
	return b.String()
}

func hookName(h *nftables.ChainHook) string {
	if h == nftables.ChainHookOutput {
		return "output"
	}
	return "prerouting"
}
