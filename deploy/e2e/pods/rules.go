package pods

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// What a sidecar and the rules around it agree on.
const (
	// Mark is the SO_MARK by which the sidecar's own connections are known.
	Mark = 1337
	// OutboundPort and InboundPort are where a sidecar accepts what the rules redirect.
	OutboundPort = 15001
	InboundPort  = 15006
	// AdminPort is the sidecar's admin port; it and the two ports for probes and metrics are reached directly.
	AdminPort = 15000
)

// inboundSource is the address from which a sidecar calls the program it stands in front of.
var inboundSource = []byte{127, 0, 0, 6}

var notCaptured = []uint16{AdminPort, 15020, 15021, 15090}

// redirect installs the rules in the namespace of the calling thread. Order matters: the first rule that matches
// decides.
func redirect() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Name: "sidecar", Family: nftables.TableFamilyIPv4})
	chain := func(name string, hook *nftables.ChainHook, rules ...[]expr.Any) {
		c := conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest})
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: r})
		}
	}
	chain("output", nftables.ChainHookOutput,
		join(toLoopback(), from(inboundSource), accept()),
		// The sidecar calls its own pod as a client of a service would: that goes through its inbound side.
		join(toLoopback(), marked(), notToLocalhost(), to(InboundPort)),
		join(toLoopback(), accept()),
		join(marked(), accept()),
		to(OutboundPort),
	)
	in := [][]expr.Any{}
	for _, p := range notCaptured {
		in = append(in, join(toPort(p), accept()))
	}
	chain("prerouting", nftables.ChainHookPrerouting, append(in, to(InboundPort))...)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("install nftables rules: %w", err)
	}
	return nil
}

func join(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// to redirects TCP to a port of the pod itself; other protocols match no rule that redirects.
func to(port uint16) []expr.Any {
	return join(tcp(), []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.Redir{RegisterProtoMin: 1},
	})
}

func tcp() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
	}
}

func marked() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(Mark)},
	}
}

func toLoopback() []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "lo")
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
	}
}

func from(ip []byte) []expr.Any { return ipv4(12, expr.CmpOpEq, ip) }

func notToLocalhost() []expr.Any { return ipv4(16, expr.CmpOpNeq, []byte{127, 0, 0, 1}) }

// ipv4 compares four bytes of the IPv4 header, RFC 791: the source is at 12, the destination at 16.
func ipv4(offset uint32, op expr.CmpOp, ip []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Cmp{Op: op, Register: 1, Data: ip},
	}
}

func toPort(port uint16) []expr.Any {
	return join(tcp(), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
	})
}
