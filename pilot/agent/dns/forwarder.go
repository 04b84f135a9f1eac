package dns

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// forwarder forwards queries to the servers in resolv.conf.
type forwarder struct {
	path, port string
	parallel   bool
	timeout    time.Duration
	log        *slog.Logger
	metrics    *metrics
	// isSelf reports whether an address is the Server's own.
	isSelf func(addr string) bool
	slots  chan struct{} // its capacity is the maximum number of waiting queries
	ctx    context.Context
	cancel context.CancelFunc
	// sent is the set of queries, of type query, that wait for a response.
	sent sync.Map

	mu      sync.Mutex // guards the fields below
	checked time.Time  // when the file was last checked
	modTime time.Time  // modification time of the file when it was last read
	servers []string
	search  string
}

// query identifies a query that a forwarder has sent. If the Server receives it, the rules that redirect DNS traffic
// do not exempt the Server's own.
type query struct {
	port int
	id   uint16
}

// checkInterval is the time between two checks of resolv.conf.
const checkInterval = 5 * time.Second

func newForwarder(o Options, m *metrics, isSelf func(string) bool) *forwarder {
	f := &forwarder{path: o.ResolvConf, port: o.ServerPort, parallel: o.Parallel, timeout: o.Timeout, log: o.Log, metrics: m, isSelf: isSelf}
	f.path = cmp.Or(f.path, "/etc/resolv.conf")
	f.port = cmp.Or(f.port, "53")
	f.timeout = cmp.Or(f.timeout, 5*time.Second)
	o.Forwarded = cmp.Or(o.Forwarded, 512)
	f.slots = make(chan struct{}, o.Forwarded)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// config returns the HOST:PORT of each server and the first search domain. If the file cannot be read, they stay the
// same.
func (f *forwarder) config() (servers []string, search string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.checked.IsZero() && time.Since(f.checked) < checkInterval {
		return f.servers, f.search
	}
	f.checked = time.Now()
	info, err := os.Stat(f.path)
	if err == nil && info.ModTime().Equal(f.modTime) {
		return f.servers, f.search
	}
	c, err := dns.ClientConfigFromFile(f.path)
	if err != nil {
		f.log.Warn("failed to read resolv.conf: the last servers stay in use", "err", err)
		return f.servers, f.search
	}
	f.modTime, f.servers, f.search = info.ModTime(), nil, ""
	for _, host := range c.Servers {
		addr := net.JoinHostPort(host, f.port)
		if f.isSelf(addr) {
			f.log.Warn("skipped a DNS server in resolv.conf that is this program itself", "addr", addr)
			continue
		}
		f.servers = append(f.servers, addr)
	}
	if len(c.Search) > 0 {
		f.search = c.Search[0]
	}
	return f.servers, f.search
}

// ask forwards a query from a client's port. The response is SERVFAIL if no server answers.
func (f *forwarder) ask(fromPort int, req *dns.Msg, overTCP bool) *dns.Msg {
	failure := new(dns.Msg).SetRcode(req, dns.RcodeServerFailure)
	if _, loop := f.sent.Load(query{fromPort, req.Id}); loop {
		f.log.Warn("a forwarded DNS query came back to this program: exempt its traffic from the capture rules", "name", req.Question[0].Name)
		f.metrics.failures.Inc()
		return failure
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		f.metrics.failures.Inc()
		return failure
	}
	f.metrics.forwarded.Inc()
	start := time.Now()
	servers, _ := f.config()
	var resp *dns.Msg
	if f.parallel && len(servers) > 1 {
		resp = f.askAll(servers, req, overTCP)
	} else {
		resp = f.askEach(servers, req, overTCP)
	}
	f.metrics.duration.Observe(time.Since(start).Seconds())
	if resp == nil {
		f.metrics.failures.Inc()
		return failure
	}
	resp.Id = req.Id
	resp.Compress = true
	return resp
}

// askEach asks one server after the other until one has a good response. If none has, it returns a bad response, or
// nil.
func (f *forwarder) askEach(servers []string, req *dns.Msg, overTCP bool) (bad *dns.Msg) {
	for _, s := range servers {
		resp := f.exchange(f.ctx, s, req, overTCP)
		if good(resp) {
			return resp
		}
		if resp != nil {
			bad = resp
		}
	}
	return bad
}

// askAll asks all servers at once. Its result is the same as askEach's.
func (f *forwarder) askAll(servers []string, req *dns.Msg, overTCP bool) (bad *dns.Msg) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	answers := make(chan *dns.Msg, len(servers))
	for _, s := range servers {
		safe.Go(f.log, "dns server", func() {
			var resp *dns.Msg
			defer func() { answers <- resp }()
			resp = f.exchange(ctx, s, req, overTCP)
		})
	}
	for range servers {
		resp := <-answers
		if good(resp) {
			return resp
		}
		if resp != nil {
			bad = resp
		}
	}
	return bad
}

// good reports whether a response is about the name and not about the server's own state.
func good(m *dns.Msg) bool {
	return m != nil && m.Rcode != dns.RcodeServerFailure && m.Rcode != dns.RcodeRefused && m.Rcode != dns.RcodeNotImplemented
}

// exchange asks one server. It asks again over TCP if the UDP response is truncated. It returns nil if there is no
// response.
func (f *forwarder) exchange(ctx context.Context, server string, req *dns.Msg, overTCP bool) *dns.Msg {
	network := "udp"
	if overTCP {
		network = "tcp"
	}
	resp, err := f.send(ctx, network, server, req)
	if err == nil && resp.Truncated && !overTCP {
		if whole, err := f.send(ctx, "tcp", server, req); err == nil {
			return whole
		}
	}
	if err != nil {
		f.log.Debug("failed to ask a DNS server", "addr", server, "err", err)
		return nil
	}
	return resp
}

// send sends a copy of the query with another ID, and returns the response.
func (f *forwarder) send(ctx context.Context, network, server string, req *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	client := &dns.Client{Net: network, Timeout: f.timeout, UDPSize: udpSize}
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	m := *req // its sections are not modified
	m.Id = dns.Id()
	pending := query{portOf(conn.LocalAddr()), m.Id}
	f.sent.Store(pending, struct{}{})
	defer f.sent.Delete(pending)
	resp, _, err := client.ExchangeWithConnContext(ctx, &m, conn)
	return resp, err
}

// portOf returns the port of an address, or 0.
func portOf(a net.Addr) int {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.Port
	case *net.TCPAddr:
		return a.Port
	}
	return 0
}
