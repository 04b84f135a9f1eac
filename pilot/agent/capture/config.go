package capture

import (
	"fmt"
	"net/netip"
	"os/user"
	"strconv"
	"strings"
)

// Mode says how inbound connections are led to Envoy.
type Mode string

// The modes. Redirect loses the client's address, TProxy keeps it, None captures no inbound connections.
const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
	None     Mode = "NONE"
)

// Config says what is captured.
type Config struct {
	OutboundPort uint16 // Envoy's, for what goes out
	InboundPort  uint16 // Envoy's, for what comes in
	TunnelPort   uint16 // of connections that are tunnelled already, and left alone; TProxy captures them too
	Mode         Mode
	// UIDs, GIDs and Marks say whose connections are Envoy's: of these users or groups, or with these marks.
	UIDs, GIDs, Marks []uint32

	AllInbound     bool // all ports but InboundExclude; otherwise InboundInclude alone
	InboundInclude []uint16
	InboundExclude []uint16

	AllOutbound     bool // all addresses but ExcludeRanges; otherwise IncludeRanges alone
	IncludeRanges   []netip.Prefix
	ExcludeRanges   []netip.Prefix
	OutboundInclude []uint16 // ports, to whatever address
	OutboundExclude []uint16
	// IncludeGroups, if there are any, are the groups of the processes whose connections are captured. Those of
	// ExcludeGroups are not.
	IncludeGroups, ExcludeGroups []uint32

	ExcludeInterfaces []string // whose traffic is left alone
	VirtualInterfaces []string // of virtual machines: what comes in by them is treated as going out

	// DNS captures queries to DNSServers, or to any server if AllDNS is set.
	DNS, AllDNS bool
	DNSServers  []netip.Addr
	DNSPort     uint16 // the DNS proxy's

	TProxyMark  uint32 // of packets for Envoy, with TProxy
	TProxyTable int    // the routing table that delivers them

	DropInvalid bool // packets that belong to no connection
	IPv6        bool // IPv6 is captured too
}

// list splits a comma-separated list, and leaves out what is empty.
func list(s string) (out []string) {
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func parsePorts(s string) (out []uint16, err error) {
	for _, item := range list(s) {
		p, err := parsePort(item)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return uint16(n), nil
}

func parseRanges(s string) (out []netip.Prefix, err error) {
	for _, item := range list(s) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			return nil, fmt.Errorf("%q is not a range such as 10.0.0.0/8", item)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// parseIDs reads numbers, and names that lookup knows.
func parseIDs(s string, lookup func(string) (string, error)) (out []uint32, err error) {
	for _, item := range list(s) {
		n, err := strconv.ParseUint(item, 10, 32)
		if err != nil {
			id, lookupErr := lookup(item)
			if n, err = strconv.ParseUint(id, 10, 32); lookupErr != nil || err != nil {
				return nil, fmt.Errorf("%q is neither a number nor a name that this machine knows", item)
			}
		}
		out = append(out, uint32(n))
	}
	return out, nil
}

func uidOf(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func gidOf(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}
