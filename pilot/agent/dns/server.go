package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// DefaultAddr is the address to which the rules of traffic capture redirect DNS queries.
const DefaultAddr = "localhost:15053"

// Options configure a Server.
type Options struct {
	// Addr is the HOST:PORT to listen on, with UDP and TCP. The default is DefaultAddr. The host localhost stands for
	// 127.0.0.1 and, if it is available, ::1. Port 0 chooses a free port.
	Addr string
	// Namespace is the proxy's namespace. Services in it have short names.
	Namespace string
	// ResolvConf is the file with the upstream servers and the search domain. It is read again when it changes. The
	// default is /etc/resolv.conf.
	ResolvConf string
	// ServerPort is the port of the upstream servers. The default is 53.
	ServerPort string
	// Parallel asks all upstream servers at once and uses the first good answer. Otherwise they are asked in sequence.
	Parallel bool
	// Timeout bounds one request to an upstream server. The default is 5 s.
	Timeout time.Duration
	// Forwarded is the maximum number of queries that wait for upstream servers. Further queries fail with SERVFAIL.
	// The default is 512.
	Forwarded int
	// Connections is the maximum number of TCP connections of each listening address. Further connections wait. The
	// default is 256.
	Connections int
	Log         *slog.Logger
	Registerer  prometheus.Registerer
}

// Server answers DNS queries. It is safe for concurrent use.
type Server struct {
	o         Options
	lookup    atomic.Pointer[lookup]
	forwarder *forwarder
	metrics   *metrics
	sockets   []socket
	addr      string
}

// socket is a listening socket and its serve loop, which returns when the socket is closed.
type socket struct {
	io.Closer
	addr  net.Addr
	serve func() error
}

// New opens the sockets. The error names the address that cannot be listened on.
func New(o Options) (*Server, error) {
	o.Addr = cmp.Or(o.Addr, DefaultAddr)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("DNS proxy: address %q: %w", o.Addr, err)
	}
	s := &Server{o: o}
	if s.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, err
	}
	hosts := []string{host}
	if host == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	for i, h := range hosts {
		if err := s.listen(h, port); err != nil && i == 0 {
			return nil, fmt.Errorf("DNS proxy: %w", err)
		} else if err != nil {
			o.Log.Info("failed to listen for DNS queries over IPv6", "err", err)
		} else if i == 0 {
			s.addr = s.sockets[0].addr.String()
			_, port, _ = net.SplitHostPort(s.addr)
		}
	}
	s.forwarder = newForwarder(o, s.metrics, s.isSelf)
	return s, nil
}

// maxConnections is the default of Options.Connections.
const maxConnections = 256

// pausingListener pauses after a failed Accept. Otherwise the library would retry in a busy loop while the process
// has no free file descriptor.
type pausingListener struct{ net.Listener }

// acceptPause is the length of the pause.
const acceptPause = 20 * time.Millisecond

// Accept implements net.Listener.
func (p pausingListener) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		time.Sleep(acceptPause)
	}
	return c, err
}

// maxAttempts is the maximum number of attempts to find a port that is free for both UDP and TCP.
const maxAttempts = 16

// listen opens the UDP and the TCP socket of an address.
func (s *Server) listen(host, port string) error {
	var config net.ListenConfig
	var lastErr error
	for range maxAttempts {
		udp, err := config.ListenPacket(context.Background(), "udp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		tcp, err := config.Listen(context.Background(), "tcp", udp.LocalAddr().String())
		if err == nil {
			limited := netutil.LimitListener(pausingListener{tcp}, cmp.Or(s.o.Connections, maxConnections))
			server := &dns.Server{Listener: limited, Handler: dns.HandlerFunc(s.serve)}
			s.sockets = append(s.sockets, s.socketOf(udp), socket{tcp, tcp.Addr(), server.ActivateAndServe})
			return nil
		}
		if lastErr = err; port != "0" {
			return errors.Join(lastErr, udp.Close())
		}
		if err := udp.Close(); err != nil {
			return err
		}
	}
	return lastErr
}

// socketOf returns the socket of a UDP connection. This package's own readers answer from the table without another
// goroutine. A socket on all addresses is served by the library, which responds from the address that was asked.
func (s *Server) socketOf(c net.PacketConn) socket {
	conn, ok := c.(*net.UDPConn)
	if addr := c.LocalAddr().(*net.UDPAddr); !ok || addr.IP.IsUnspecified() {
		return socket{c, addr, (&dns.Server{PacketConn: c, Handler: dns.HandlerFunc(s.serve)}).ActivateAndServe}
	}
	return socket{conn, conn.LocalAddr(), func() error { return s.serveUDP(conn) }}
}

// isSelf reports whether addr is one of the server's own addresses.
func (s *Server) isSelf(addr string) bool {
	return slices.ContainsFunc(s.sockets, func(o socket) bool { return o.addr.String() == addr })
}

// Addr returns the address that the server listens on, the IPv4 address in case of localhost.
func (s *Server) Addr() string { return s.addr }

// SetTable replaces the name table. encoded is a NameTable in wire format, and must not be modified afterwards. If it
// cannot be decoded, SetTable returns an error and the last table stays in force.
func (s *Server) SetTable(encoded []byte) error {
	t, err := Decode(encoded)
	if err != nil {
		return err
	}
	_, search := s.forwarder.config()
	l := newLookup(t, s.o.Namespace, search)
	l.encoded = encoded
	s.lookup.Store(l)
	return nil
}

// Table returns the name table in force, or nil.
func (s *Server) Table() *NameTable {
	l := s.lookup.Load()
	if l == nil {
		return nil
	}
	t, err := Decode(l.encoded)
	if err != nil { // unreachable: it was decoded before
		s.o.Log.Error("failed to decode the name table in force", "err", err)
	}
	return t
}

// JSON returns the name table in force as JSON, or nil.
func (s *Server) JSON() []byte { return s.Table().JSON() }

// Ready reports whether there is a name table.
func (s *Server) Ready() bool { return s.lookup.Load() != nil }

// Run serves until ctx ends, and then closes the sockets.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, len(s.sockets))
	for _, o := range s.sockets {
		safe.Go(s.o.Log, "dns", func() { failed <- o.serve() })
	}
	var err error
	ended := 0
	select {
	case <-ctx.Done():
	case err = <-failed:
		ended++
		if err != nil {
			err = fmt.Errorf("DNS proxy: %w", err)
		}
	}
	// Run does not wait for queries that wait for upstream servers.
	s.forwarder.cancel()
	for _, o := range s.sockets {
		o.Close()
	}
	for ; ended < len(s.sockets); ended++ {
		_ = <-failed //nolint:staticcheck // an error, as the sockets were closed
	}
	return err
}

// serve answers one query that the library has read.
func (s *Server) serve(w dns.ResponseWriter, req *dns.Msg) {
	safe.Run(s.o.Log, "dns query", func() {
		s.metrics.requests.Inc()
		overTCP := strings.HasPrefix(w.RemoteAddr().Network(), "tcp")
		resp, ok := s.answer(req)
		if !ok {
			resp = s.forwarder.ask(portOf(w.RemoteAddr()), req, overTCP)
		}
		if overTCP {
			resp.Truncate(dns.MaxMsgSize)
		} else {
			truncate(req, resp)
		}
		if err := w.WriteMsg(resp); err != nil {
			s.o.Log.Debug("failed to send a DNS response", "err", err)
		}
	})
}

// answer returns the response to a query. ok is false if the query must be forwarded.
func (s *Server) answer(req *dns.Msg) (*dns.Msg, bool) {
	resp := new(dns.Msg)
	l := s.lookup.Load()
	opt := req.IsEdns0()
	switch {
	case len(req.Question) != 1:
		return resp.SetRcode(req, dns.RcodeFormatError), true
	case opt != nil && opt.Version() != 0:
		resp.SetRcode(req, dns.RcodeBadVers)
		resp.SetEdns0(udpSize, false)
		return resp, true
	case l == nil:
		return resp.SetRcode(req, dns.RcodeServerFailure), true
	}
	answers, ok := l.answer(req.Question[0])
	if !ok {
		return nil, false
	}
	resp.SetReply(req)
	resp.Authoritative, resp.RecursionAvailable, resp.Answer = true, true, answers
	if opt != nil {
		resp.SetEdns0(udpSize, false)
	}
	return resp, true
}

// truncate shortens a response to the size that the client accepts over UDP.
func truncate(req, resp *dns.Msg) {
	size := dns.MinMsgSize
	if opt := req.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
	}
	resp.Truncate(size)
}

// udpSize is the size of UDP messages that this server accepts, which it announces as in RFC 6891.
const udpSize = 4096
