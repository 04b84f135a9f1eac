package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Apply writes the rules into the network namespace of the calling thread, in the place of those that were there. All
// tables change at once, or none. Routes come before the rules that need them, and go after those that did.
func Apply(c Config) error {
	for _, v6 := range c.families() {
		if err := addRoutes(c, v6); err != nil {
			return err
		}
	}
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	deleteTables(conn)
	for _, v6 := range c.families() {
		table := conn.AddTable(&nftables.Table{Name: tableName, Family: family(v6)})
		policy := nftables.ChainPolicyAccept
		for _, chain := range c.Rules(v6) {
			made := conn.AddChain(&nftables.Chain{Name: chain.Name, Table: table, Type: chain.Type, Hooknum: chain.Hook, Priority: chain.Priority, Policy: &policy})
			for _, rule := range chain.Rules {
				conn.AddRule(&nftables.Rule{Table: table, Chain: made, Exprs: rule.exprs()})
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return explain("write the rules", err)
	}
	for _, v6 := range []bool{false, true} {
		if c.Mode == TProxy && slices.Contains(c.families(), v6) {
			continue
		}
		if err := removeRoutes(c, v6); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the rules, and what belongs to them. Where there are none, it does nothing.
func Remove(c Config) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	deleteTables(conn)
	if err := conn.Flush(); err != nil {
		return explain("remove the rules", err)
	}
	for _, v6 := range []bool{false, true} {
		if err := removeRoutes(c, v6); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.AddrDel(lo, sourceIPv6()); err != nil && !missing(err) {
		return explain("remove the address ::6 of lo", err)
	}
	return nil
}

// deleteTables deletes the tables of both families. Adding them first makes that work where there are none.
func deleteTables(conn *nftables.Conn) {
	for _, v6 := range []bool{false, true} {
		conn.DelTable(conn.AddTable(&nftables.Table{Name: tableName, Family: family(v6)}))
	}
}

func family(v6 bool) nftables.TableFamily {
	if v6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

// explain names what usually is missing.
func explain(what string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w: the container needs the capability NET_ADMIN", what, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%s: %w: the kernel lacks a module of nf_tables: nft_redir, nft_tproxy or nft_ct", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// addRoutes has marked packets delivered to this machine, with TPROXY, and gives it the address from which Envoy calls
// applications over IPv6.
func addRoutes(c Config, v6 bool) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if v6 {
		if err := netlink.AddrReplace(lo, sourceIPv6()); err != nil && !errors.Is(err, os.ErrExist) {
			return explain("give lo the address ::6", err)
		}
	}
	if c.Mode != TProxy {
		return nil
	}
	rule := markRule(c, v6)
	there, err := netlink.RuleListFiltered(rule.Family, rule, netlink.RT_FILTER_MARK|netlink.RT_FILTER_TABLE)
	if err != nil {
		return explain("list routing rules", err)
	}
	if len(there) == 0 { // the kernel takes the same rule again
		if err := netlink.RuleAdd(rule); err != nil {
			return explain("add a routing rule", err)
		}
	}
	route := markRoute(c, v6, lo)
	if err := netlink.RouteReplace(route); err != nil {
		return explain("add a route", err)
	}
	return nil
}

// removeRoutes removes routing rules and routes of one family.
func removeRoutes(c Config, v6 bool) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	for {
		err := netlink.RuleDel(markRule(c, v6)) // one of several
		if err != nil && !missing(err) {
			return explain("remove a routing rule", err)
		} else if err != nil {
			break
		}
	}
	if err := netlink.RouteDel(markRoute(c, v6, lo)); err != nil && !missing(err) {
		return explain("remove a route", err)
	}
	return nil
}

// missing reports whether an error says that what was to be removed is not there.
func missing(err error) bool {
	for _, e := range []unix.Errno{unix.ENOENT, unix.ESRCH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func sourceIPv6() *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("::6"), Mask: net.CIDRMask(128, 128)}}
}

func markRule(c Config, v6 bool) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Mark, r.Table = netlink.FAMILY_V4, c.TProxyMark, c.TProxyTable
	if v6 {
		r.Family = netlink.FAMILY_V6
	}
	return r
}

func markRoute(c Config, v6 bool, lo netlink.Link) *netlink.Route {
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if v6 {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	dst := &net.IPNet{IP: all.Addr().AsSlice(), Mask: net.CIDRMask(0, all.Addr().BitLen())}
	return &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Table: c.TProxyTable, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}
}
