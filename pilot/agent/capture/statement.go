package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// statement is one condition or action of a rule, in nft's syntax and as the expressions of the kernel.
type statement struct {
	text  string
	exprs []expr.Any
}

// Rule is a list of conditions followed by actions.
type Rule []statement

// String returns the rule in nft's syntax.
func (r Rule) String() string {
	words := lists.Map(r, func(s statement) string { return s.text })
	return strings.Join(words, " ")
}

func (r Rule) exprs() (all []expr.Any) {
	for _, s := range r {
		all = append(all, s.exprs...)
	}
	return all
}

// compare is a condition on the value that load puts into register 1.
func compare(name string, op expr.CmpOp, value string, data []byte, load expr.Any) statement {
	word := ""
	if op == expr.CmpOpNeq {
		word = "!= "
	}
	return statement{name + " " + word + value, []expr.Any{load, &expr.Cmp{Op: op, Register: 1, Data: data}}}
}

// interfaceIs matches the inbound or outbound interface of packets.
func interfaceIs(out bool, name string) statement {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	word, key := "iifname", expr.MetaKeyIIFNAME
	if out {
		word, key = "oifname", expr.MetaKeyOIFNAME
	}
	return compare(word, expr.CmpOpEq, fmt.Sprintf("%q", name), data, &expr.Meta{Key: key, Register: 1})
}

func protocol(name string, number byte) statement {
	return compare("meta l4proto", expr.CmpOpEq, name, []byte{number}, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1})
}

func tcp() statement { return protocol("tcp", unix.IPPROTO_TCP) }
func udp() statement { return protocol("udp", unix.IPPROTO_UDP) }

// port matches the destination port of packets, or the source port if from is set. The protocol must have been
// matched before.
func port(from bool, op expr.CmpOp, n uint16) statement {
	word, offset := "th dport", uint32(2)
	if from {
		word, offset = "th sport", 0
	}
	return compare(word, op, fmt.Sprint(n), binary.BigEndian.AppendUint16(nil, n),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2})
}

// address matches the destination address of packets, or the source address if from is set.
func address(from bool, op expr.CmpOp, p netip.Prefix) statement {
	// The headers of RFC 791 and RFC 8200 have the source address at these offsets, followed by the destination
	// address.
	word, offset, size := "ip", uint32(12), 4
	if p.Addr().Is6() {
		word, offset, size = "ip6", 8, 16
	}
	if from {
		word += " saddr"
	} else {
		word, offset = word+" daddr", offset+uint32(size)
	}
	load := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(size)}
	if p.IsSingleIP() {
		return compare(word, op, p.Addr().String(), p.Addr().AsSlice(), load)
	}
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	s := compare(word, op, p.String(), p.Addr().AsSlice(), load)
	masked := &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(size), Mask: mask, Xor: make([]byte, size)}
	s.exprs = []expr.Any{s.exprs[0], masked, s.exprs[1]}
	return s
}

// meta matches a 32-bit property of a packet: its mark, or the user or group of its socket.
func meta(word string, key expr.MetaKey, op expr.CmpOp, n uint32) statement {
	return compare("meta "+word, op, fmt.Sprint(n), binaryutil.NativeEndian.PutUint32(n), &expr.Meta{Key: key, Register: 1})
}

func mark(op expr.CmpOp, n uint32) statement { return meta("mark", expr.MetaKeyMARK, op, n) }

func connectionMark(n uint32) statement {
	return compare("ct mark", expr.CmpOpEq, fmt.Sprint(n), binaryutil.NativeEndian.PutUint32(n), &expr.Ct{Key: expr.CtKeyMARK, Register: 1})
}

// state matches the states of connections. bits are the kernel's flags for names.
func state(names string, bits uint32) statement {
	return statement{"ct state " + names, []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}}
}

func accept() statement {
	return statement{"accept", []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}}
}

func drop() statement { return statement{"drop", []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}} }

func immediate(data []byte) expr.Any { return &expr.Immediate{Register: 1, Data: data} }

// redirect redirects packets to a port of this machine.
func redirect(n uint16) statement {
	return statement{fmt.Sprintf("redirect to :%d", n), []expr.Any{
		immediate(binary.BigEndian.AppendUint16(nil, n)),
		&expr.Redir{RegisterProtoMin: 1},
	}}
}

// tproxy passes packets unchanged to the socket that listens on a port. The rule does not match if there is no such
// socket.
func tproxy(v6 bool, n uint16) statement {
	family := byte(unix.NFPROTO_IPV4)
	if v6 {
		family = unix.NFPROTO_IPV6
	}
	return statement{fmt.Sprintf("tproxy to :%d", n), []expr.Any{
		immediate(binary.BigEndian.AppendUint16(nil, n)),
		&expr.TProxy{Family: family, TableFamily: family, RegPort: 1},
	}}
}

func setMark(n uint32) statement {
	return statement{fmt.Sprintf("meta mark set %d", n), []expr.Any{
		immediate(binaryutil.NativeEndian.PutUint32(n)),
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}}
}

// saveMark copies the mark of a packet to its connection.
func saveMark() statement {
	return statement{"ct mark set meta mark", []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: 1},
	}}
}

// restoreMark copies the mark of a connection to a packet.
func restoreMark() statement {
	return statement{"meta mark set ct mark", []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: 1},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}}
}

// zone sets the conntrack zone, which separates connections with the same addresses and ports.
func zone(n uint16) statement {
	return statement{fmt.Sprintf("ct zone set %d", n), []expr.Any{
		immediate(binaryutil.NativeEndian.PutUint16(n)),
		&expr.Ct{Key: expr.CtKeyZONE, SourceRegister: true, Register: 1},
	}}
}
