package capture

import (
	"fmt"
	"net/netip"
	"os/user"
	"strconv"
	"strings"
)

// Mode is how inbound connections are redirected to Envoy.
type Mode string

// Redirect loses the client's address. TProxy keeps it. None captures no inbound connections.
const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
	None     Mode = "NONE"
)

// Config says which traffic is captured.
type Config struct {
	OutboundPort uint16 // Envoy's port for outbound connections
	InboundPort  uint16 // Envoy's port for inbound connections
	// TunnelPort is the port of connections that are already tunneled. They are exempt, except in mode TProxy.
	TunnelPort uint16
	Mode       Mode
	// UIDs, GIDs and Marks identify Envoy's connections: by user, group or mark.
	UIDs, GIDs, Marks []uint32

	// AllInbound captures all ports except InboundExclude. Otherwise only InboundInclude is captured.
	AllInbound     bool
	InboundInclude []uint16
	InboundExclude []uint16

	// AllOutbound captures all addresses except ExcludeRanges. Otherwise only IncludeRanges is captured.
	AllOutbound     bool
	IncludeRanges   []netip.Prefix
	ExcludeRanges   []netip.Prefix
	OutboundInclude []uint16 // ports that are captured for all addresses
	OutboundExclude []uint16
	// IncludeGroups limits outbound capture to processes of these groups, if there are any. Processes of ExcludeGroups
	// are exempt.
	IncludeGroups, ExcludeGroups []uint32

	// Loopback is the IPv4 range of connections between programs of the pod, which are not captured. The default is
	// 127.0.0.1.
	Loopback netip.Prefix

	ExcludeInterfaces []string // interfaces whose traffic is exempt
	// VirtualInterfaces are the interfaces of virtual machines. Traffic that arrives on them is treated as outbound.
	VirtualInterfaces []string

	// DNS captures queries to DNSServers, or queries to all servers if AllDNS is set.
	DNS, AllDNS bool
	DNSServers  []netip.Addr
	DNSPort     uint16 // port of the DNS proxy

	TProxyMark  uint32 // mark of packets for Envoy, in mode TProxy
	TProxyTable int    // routing table that delivers them

	DropInvalid bool // drop packets that belong to no connection
	IPv6        bool // capture IPv6 too
}

// list splits a comma-separated list. It skips empty elements.
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

// parseIDs parses a list of numbers, and of names that lookup resolves.
func parseIDs(s string, lookup func(string) (string, error)) (out []uint32, err error) {
	for _, item := range list(s) {
		n, err := strconv.ParseUint(item, 10, 32)
		if err != nil {
			id, lookupErr := lookup(item)
			if n, err = strconv.ParseUint(id, 10, 32); lookupErr != nil || err != nil {
				return nil, fmt.Errorf("%q is neither a number nor a name that exists on this machine", item)
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
