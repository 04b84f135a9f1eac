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

// DefaultAddr is where the rules of captured traffic send DNS queries.
const DefaultAddr = "localhost:15053"

// Options of a Server.
type Options struct {
	// Addr is host:port to listen on, UDP and TCP; empty means DefaultAddr. localhost means 127.0.0.1, and ::1 where
	// there is one. Port 0 means any free one.
	Addr string
	// Namespace is the proxy's: its services are known by their names alone.
	Namespace string
	// ResolvConf is the file that names the servers and the search domain; empty means /etc/resolv.conf. It is read
	// again after it has changed.
	ResolvConf string
	// ServerPort is the port of those servers; empty means 53.
	ServerPort string
	// Parallel asks all servers at once, and takes the first good answer. Otherwise they are asked one by one.
	Parallel bool
	// Timeout bounds the wait for one server; zero means 5 s.
	Timeout time.Duration
	// Forwarded bounds the queries that wait for other servers; zero means 512. Beyond it they fail by SERVFAIL.
	Forwarded int
	// Connections bounds the TCP connections of one address; zero means 256. Others wait until one of them ends, which
	// idle ones do soon.
	Connections int
	Log         *slog.Logger
	Registerer  prometheus.Registerer
}

// Server answers DNS queries. Its methods are safe for concurrent use.
type Server struct {
	o       Options
	lookup  atomic.Pointer[lookup]
	up      *upstream
	metrics *metrics
	sockets []socket
	addr    string
}

// socket is one that is listened on, and what serves it until it is closed.
type socket struct {
	io.Closer
	addr  net.Addr
	serve func() error
}

// New opens the sockets. The error names the address that cannot be had.
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
			o.Log.Info("DNS over IPv6 is not served", "err", err)
		} else if i == 0 {
			s.addr = s.sockets[0].addr.String()
			_, port, _ = net.SplitHostPort(s.addr)
		}
	}
	s.up = newUpstream(o, s.metrics, s.own)
	return s, nil
}

// maxConnections is the default of Options.Connections.
const maxConnections = 256

// patient is a listener that waits after an error: the library would ask again at once, for as long as the process has
// no descriptor left.
type patient struct{ net.Listener }

// acceptPause is how long it waits.
const acceptPause = 20 * time.Millisecond

// Accept returns the next connection.
func (p patient) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		time.Sleep(acceptPause)
	}
	return c, err
}

// tries bounds how often a port that is free for UDP is not free for TCP.
const tries = 16

// listen opens both sockets of an address.
func (s *Server) listen(host, port string) error {
	var config net.ListenConfig
	var lastErr error
	for range tries {
		udp, err := config.ListenPacket(context.Background(), "udp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		tcp, err := config.Listen(context.Background(), "tcp", udp.LocalAddr().String())
		if err == nil {
			s.sockets = append(s.sockets, s.socketOf(udp), socket{tcp, tcp.Addr(), (&dns.Server{Listener: netutil.LimitListener(patient{tcp}, cmp.Or(s.o.Connections, maxConnections)), Handler: dns.HandlerFunc(s.serve)}).ActivateAndServe})
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

// socketOf serves UDP by this package's own readers, which answer from the table without another goroutine. One that
// listens on all addresses must answer from the one that was asked: the library does that.
func (s *Server) socketOf(c net.PacketConn) socket {
	conn, ok := c.(*net.UDPConn)
	if addr := c.LocalAddr().(*net.UDPAddr); !ok || addr.IP.IsUnspecified() {
		return socket{c, addr, (&dns.Server{PacketConn: c, Handler: dns.HandlerFunc(s.serve)}).ActivateAndServe}
	}
	return socket{conn, conn.LocalAddr(), func() error { return s.serveUDP(conn) }}
}

// own reports whether a server's address is one of this Server.
func (s *Server) own(addr string) bool {
	return slices.ContainsFunc(s.sockets, func(o socket) bool { return o.addr.String() == addr })
}

// Addr returns the address that it listens on; of localhost, that of IPv4.
func (s *Server) Addr() string { return s.addr }

// SetTable replaces the name table by one in its wire format, which the caller leaves unchanged from then on. One that
// cannot be read is an error, and leaves the one before.
func (s *Server) SetTable(encoded []byte) error {
	t, err := Decode(encoded)
	if err != nil {
		return err
	}
	_, search := s.up.config()
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
	if err != nil { // it was decoded before
		s.o.Log.Error("the name table in force", "err", err)
	}
	return t
}

// Ready reports whether there is a name table.
func (s *Server) Ready() bool { return s.lookup.Load() != nil }

// Run serves until ctx ends. It closes the sockets.
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
	// What waits for another server is not waited for.
	s.up.cancel()
	for _, o := range s.sockets {
		o.Close()
	}
	for ; ended < len(s.sockets); ended++ {
		_ = <-failed // they were closed
	}
	return err
}

// serve answers one query of a connection.
func (s *Server) serve(w dns.ResponseWriter, req *dns.Msg) {
	safe.Run(s.o.Log, "dns query", func() {
		s.metrics.requests.Inc()
		overTCP := strings.HasPrefix(w.RemoteAddr().Network(), "tcp")
		resp, ok := s.answer(req)
		if !ok {
			resp = s.up.ask(portOf(w.RemoteAddr()), req, overTCP)
		}
		if overTCP {
			resp.Truncate(dns.MaxMsgSize)
		} else {
			truncate(req, resp)
		}
		if err := w.WriteMsg(resp); err != nil {
			s.o.Log.Debug("a DNS response was not sent", "err", err)
		}
	})
}

// answer returns the response to a query, and whether there is one without asking other servers.
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

// truncate makes a response fit into what a client takes over UDP.
func truncate(req, resp *dns.Msg) {
	size := dns.MinMsgSize
	if opt := req.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
	}
	resp.Truncate(size)
}

// udpSize is how long a UDP message this server takes, as RFC 6891 has servers say.
const udpSize = 4096
