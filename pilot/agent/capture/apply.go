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

// Apply writes the rules into the network namespace of the calling thread, and replaces existing rules. The change of
// all tables is atomic. Routes are added before the rules that need them, and removed after them.
func Apply(c Config) error {
	for _, v6 := range c.families() {
		if err := addRoutes(c, v6); err != nil {
			return err
		}
	}
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("failed to open nftables: %w", err)
	}
	deleteTables(conn)
	for _, v6 := range c.families() {
		table := conn.AddTable(&nftables.Table{Name: tableName, Family: family(v6)})
		policy := nftables.ChainPolicyAccept
		for _, chain := range c.Rules(v6) {
			added := conn.AddChain(&nftables.Chain{
				Name: chain.Name, Table: table, Type: chain.Type, Hooknum: chain.Hook, Priority: chain.Priority, Policy: &policy,
			})
			for _, rule := range chain.Rules {
				conn.AddRule(&nftables.Rule{Table: table, Chain: added, Exprs: rule.exprs()})
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return withRemedy("failed to write the rules", err)
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

// Remove removes the rules with their routes and addresses. It does nothing if there are no rules.
func Remove(c Config) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("failed to open nftables: %w", err)
	}
	deleteTables(conn)
	if err := conn.Flush(); err != nil {
		return withRemedy("failed to remove the rules", err)
	}
	for _, v6 := range []bool{false, true} {
		if err := removeRoutes(c, v6); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("failed to find the interface lo: %w", err)
	}
	if err := netlink.AddrDel(lo, sourceIPv6()); err != nil && !missing(err) {
		return withRemedy("failed to remove the address ::6 of lo", err)
	}
	return nil
}

// deleteTables deletes the tables of both families. It adds them first, because deleting a missing table is an error.
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

// withRemedy adds the usual cause of an error and its remedy to the error.
func withRemedy(what string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w: the container needs the capability NET_ADMIN", what, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%s: %w: the kernel lacks a module of nf_tables: nft_redir, nft_tproxy or nft_ct", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// addRoutes adds the local address from which Envoy calls applications over IPv6 and, for TPROXY, the routing rule
// and the route that deliver marked packets to this machine.
func addRoutes(c Config, v6 bool) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("failed to find the interface lo: %w", err)
	}
	if v6 {
		if err := netlink.AddrReplace(lo, sourceIPv6()); err != nil && !errors.Is(err, os.ErrExist) {
			return withRemedy("failed to add the address ::6 to lo", err)
		}
	}
	if c.Mode != TProxy {
		return nil
	}
	rule := markRule(c, v6)
	existing, err := netlink.RuleListFiltered(rule.Family, rule, netlink.RT_FILTER_MARK|netlink.RT_FILTER_TABLE)
	if err != nil {
		return withRemedy("failed to list routing rules", err)
	}
	if len(existing) == 0 { // the kernel accepts duplicates
		if err := netlink.RuleAdd(rule); err != nil {
			return withRemedy("failed to add a routing rule", err)
		}
	}
	route := markRoute(c, v6, lo)
	if err := netlink.RouteReplace(route); err != nil {
		return withRemedy("failed to add a route", err)
	}
	return nil
}

// removeRoutes removes the routing rules and the route of one family.
func removeRoutes(c Config, v6 bool) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("failed to find the interface lo: %w", err)
	}
	for {
		err := netlink.RuleDel(markRule(c, v6)) // there may be several
		if err != nil && !missing(err) {
			return withRemedy("failed to remove a routing rule", err)
		} else if err != nil {
			break
		}
	}
	if err := netlink.RouteDel(markRoute(c, v6, lo)); err != nil && !missing(err) {
		return withRemedy("failed to remove a route", err)
	}
	return nil
}

// missing reports whether an error means that the object to remove does not exist.
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
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if v6 {
		everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	dst := &net.IPNet{IP: everything.Addr().AsSlice(), Mask: net.CIDRMask(0, everything.Addr().BitLen())}
	return &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Table: c.TProxyTable, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}
}
