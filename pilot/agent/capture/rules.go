package capture

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Chain is a list of rules at one hook of the kernel. The first rule that matches decides; where none does, packets go
// on.
type Chain struct {
	Name     string
	Type     nftables.ChainType
	Hook     *nftables.ChainHook
	Priority *nftables.ChainPriority
	Rules    []Rule
}

// tableName is what the tables of both families are called.
const tableName = "pilot_agent"

const (
	eq  = expr.CmpOpEq
	neq = expr.CmpOpNeq
)

const dnsPort = 53

// Zones of connections: the queries of applications, and those of the agent. Both may come from the same port.
const (
	zoneAgent = 1
	zoneApp   = 2
)

// ruler makes the rules of one IP family.
type ruler struct {
	Config
	v6                bool
	localhost, source netip.Prefix // 127.0.0.1, and from where Envoy calls the application
}

// Rules returns the chains of one IP family; those without rules are left out.
func (c Config) Rules(v6 bool) []Chain {
	r := ruler{Config: c, v6: v6, localhost: single("127.0.0.1"), source: single("127.0.0.6")}
	if v6 {
		r.localhost, r.source = single("::1"), single("::6")
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

// ours are the ranges of the ruler's family.
func (r ruler) ours(ranges []netip.Prefix) (list []netip.Prefix) {
	return lists.Filter(ranges, func(p netip.Prefix) bool { return p.Addr().Is6() == r.v6 })
}

// owners are conditions, of which Envoy's connections meet one.
func (r ruler) owners() (list []statement) {
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

// excluded leaves the traffic of some interfaces alone.
func (r ruler) excluded(out bool) (rules []Rule) {
	return lists.Map(r.ExcludeInterfaces, func(name string) Rule { return Rule{interfaceIs(out, name), accept()} })
}

// servers are conditions, of which captured DNS queries meet one; responses, if from is set.
func (r ruler) servers(from bool) (list [][]statement) {
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

// dnsOut keeps the queries of applications apart from those of the agent.
func (r ruler) dnsOut() (rules []Rule) {
	if !r.DNS {
		return nil
	}
	for _, owner := range r.owners() {
		rules = append(rules,
			Rule{udp(), port(false, eq, dnsPort), owner, zone(zoneAgent), accept()},
			Rule{udp(), port(true, eq, r.DNSPort), owner, zone(zoneApp), accept()})
	}
	for _, server := range r.servers(false) {
		rules = append(rules, append(Rule{udp(), port(false, eq, dnsPort)}, append(server, zone(zoneApp))...))
	}
	return rules
}

// dnsIn does the same for responses.
func (r ruler) dnsIn() (rules []Rule) {
	if !r.DNS {
		return nil
	}
	for _, server := range r.servers(true) {
		rules = append(rules, append(Rule{udp(), port(true, eq, dnsPort)}, append(server, zone(zoneAgent))...))
	}
	return rules
}

// inbound are conditions, of which captured inbound connections meet one. What is excluded goes before.
func (r ruler) inbound() (excluded []Rule, list [][]statement) {
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

// markIn hands inbound connections to Envoy, with TPROXY.
func (r ruler) markIn() (rules []Rule) {
	if r.DropInvalid {
		rules = append(rules, Rule{state("invalid", expr.CtStateBitINVALID), drop()})
	}
	excluded, captured := r.inbound()
	if r.Mode == TProxy && len(captured) > 0 {
		rules = append(rules,
			// Envoy calls the application from the address of its client, and marks that. The answers bear the mark too,
			// so that they come back to Envoy.
			Rule{tcp(), mark(eq, r.TProxyMark), saveMark(), accept()},
			Rule{tcp(), interfaceIs(false, "lo"), address(true, eq, r.source), accept()},
			Rule{tcp(), interfaceIs(false, "lo"), mark(neq, r.toSelf()), accept()})
		rules = append(rules, excluded...)
		for _, c := range captured {
			c = append(c, address(false, neq, r.localhost))
			rule := func(s ...statement) { rules = append(rules, append(append(Rule{}, c...), s...)) }
			rule(state("established,related", expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), setMark(r.TProxyMark), accept())
			rule(tproxy(r.v6, r.InboundPort), setMark(r.TProxyMark), accept())
			rule(drop()) // Envoy does not listen: nobody gets past it
		}
	}
	if len(rules) == 0 {
		return nil
	}
	return append(r.excluded(false), rules...)
}

// toSelf is the mark of what Envoy sends to its own pod, with TPROXY.
func (r ruler) toSelf() uint32 { return r.TProxyMark + 1 }

// markOut has answers go back to Envoy, with TPROXY, and what Envoy sends to its own pod come in.
func (r ruler) markOut() (rules []Rule) {
	if _, captured := r.inbound(); r.Mode != TProxy || len(captured) == 0 {
		return nil
	}
	rules = append(r.excluded(true), Rule{tcp(), interfaceIs(true, "lo"), mark(eq, r.TProxyMark), accept()})
	for _, owner := range r.owners() {
		rules = append(rules, Rule{
			tcp(), interfaceIs(true, "lo"), address(false, neq, r.localhost), address(true, neq, r.source), owner,
			setMark(r.toSelf()), accept(),
		})
	}
	return append(rules, Rule{tcp(), connectionMark(r.TProxyMark), restoreMark()})
}

// redirectIn redirects inbound connections to Envoy.
func (r ruler) redirectIn() (rules []Rule) {
	for _, name := range r.VirtualInterfaces {
		in := interfaceIs(false, name)
		if r.AllOutbound {
			rules = append(rules, Rule{in, tcp(), redirect(r.OutboundPort)})
		}
		for _, p := range r.ours(r.IncludeRanges) {
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
	return append(r.excluded(false), rules...)
}

// redirectOut redirects outbound connections to Envoy, and DNS queries to the agent.
func (r ruler) redirectOut() []Rule {
	rules := r.excluded(true)
	add := func(s ...statement) { rules = append(rules, s) }
	for _, p := range r.OutboundExclude {
		add(tcp(), port(false, eq, p), accept())
		add(udp(), port(false, eq, p), accept())
	}
	lo := interfaceIs(true, "lo")
	add(lo, address(true, eq, r.source), accept())
	for _, owner := range r.owners() {
		if r.Mode != Redirect {
			break // with TProxy markIn does it
		}
		toSelf := []statement{lo, address(false, neq, r.localhost), tcp(), port(false, neq, r.TunnelPort)}
		if r.DNS {
			toSelf = append(toSelf, port(false, neq, dnsPort))
		}
		add(append(toSelf, owner, redirect(r.InboundPort))...)
	}
	for _, owner := range r.owners() {
		add(owner, accept())
	}
	if r.DNS {
		add(lo, tcp(), port(false, neq, dnsPort), accept())
	} else {
		add(lo, accept())
	}
	if len(r.IncludeGroups) > 0 {
		others := lists.Map(r.IncludeGroups, func(id uint32) statement { return meta("skgid", expr.MetaKeySKGID, neq, id) })
		add(append(others, accept())...)
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
	for _, p := range r.ours(r.ExcludeRanges) {
		add(address(false, eq, p), accept())
	}
	for _, p := range r.OutboundInclude {
		add(tcp(), port(false, eq, p), redirect(r.OutboundPort))
	}
	if r.AllOutbound {
		add(tcp(), redirect(r.OutboundPort))
	}
	for _, p := range r.ours(r.IncludeRanges) {
		add(tcp(), address(false, eq, p), redirect(r.OutboundPort))
	}
	return rules
}

// families are those that are captured: whether IPv6.
func (c Config) families() []bool {
	if c.IPv6 {
		return []bool{false, true}
	}
	return []bool{false}
}

// Script returns the rules as a script that `nft -f` takes, and as comments the commands of `ip` that TPROXY needs.
func (c Config) Script() string {
	var b strings.Builder
	for _, v6 := range c.families() {
		family, ip := "ip", "ip"
		if v6 {
			family, ip = "ip6", "ip -6"
		}
		fmt.Fprintf(&b, "table %s %s\ndelete table %s %[2]s\ntable %[1]s %[2]s {\n", family, tableName, family)
		for _, chain := range c.Rules(v6) {
			fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy accept;\n", chain.Name, chain.Type, hookName(chain.Hook), *chain.Priority)
			for _, rule := range chain.Rules {
				fmt.Fprintf(&b, "\t\t%s\n", rule)
			}
			b.WriteString("\t}\n")
		}
		b.WriteString("}\n")
		if c.Mode == TProxy {
			fmt.Fprintf(&b, "# %s rule add fwmark %d lookup %d\n# %[1]s route replace local default dev lo table %[3]d\n", ip, c.TProxyMark, c.TProxyTable)
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
