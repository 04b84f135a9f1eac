package dns

import (
	"errors"
	"net"
	"net/netip"
	"runtime"

	"github.com/miekg/dns"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// headerSize is the size of a message header in bytes, by RFC 1035.
const headerSize = 12

// serveUDP answers the queries on a socket until it is closed.
func (s *Server) serveUDP(conn *net.UDPConn) error {
	failed := make(chan error)
	readers := min(runtime.GOMAXPROCS(0), 4)
	for range readers {
		safe.Go(s.o.Log, "dns reader", func() {
			var err error
			defer func() { failed <- err }()
			err = s.readUDP(conn)
		})
	}
	var first error
	for range readers {
		if err := <-failed; err != nil && first == nil {
			first = err
			conn.Close() // ends the other readers
		}
	}
	return first
}

func (s *Server) readUDP(conn *net.UDPConn) error {
	in, out := make([]byte, dns.MaxMsgSize), make([]byte, dns.MaxMsgSize)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(in)
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		safe.Run(s.o.Log, "dns query", func() { s.serveDatagram(conn, in[:n], out, from) })
	}
}

// serveDatagram answers one query from the table, or forwards it in a goroutine.
func (s *Server) serveDatagram(conn *net.UDPConn, in, out []byte, from netip.AddrPort) {
	if len(in) < headerSize || in[2]&0x80 != 0 { // too short for a response, or a response itself
		return
	}
	s.metrics.requests.Inc()
	req, resp, ok := new(dns.Msg), new(dns.Msg), true
	switch err := req.Unpack(in); {
	case err != nil:
		req = &dns.Msg{MsgHdr: req.MsgHdr}
		resp.SetRcode(req, dns.RcodeFormatError)
	case req.Opcode != dns.OpcodeQuery:
		resp.SetRcode(req, dns.RcodeNotImplemented)
	default:
		resp, ok = s.answer(req)
	}
	if ok {
		s.write(conn, req, resp, out, from)
		return
	}
	safe.Go(s.o.Log, "dns query", func() { s.write(conn, req, s.forwarder.ask(int(from.Port()), req, false), nil, from) })
}

// write sends a response. The buffer may be nil.
func (s *Server) write(conn *net.UDPConn, req, resp *dns.Msg, buffer []byte, to netip.AddrPort) {
	truncate(req, resp)
	b, err := resp.PackBuffer(buffer)
	if err == nil {
		_, err = conn.WriteToUDPAddrPort(b, to)
	}
	if err != nil {
		s.o.Log.Debug("failed to send a DNS response", "err", err)
	}
}
