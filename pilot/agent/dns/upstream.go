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

// upstream asks the servers of resolv.conf.
type upstream struct {
	path, port string
	parallel   bool
	timeout    time.Duration
	log        *slog.Logger
	metrics    *metrics
	own        func(addr string) bool // whether a server is this program itself
	slots      chan struct{}          // as many as queries may wait
	ctx        context.Context
	cancel     context.CancelFunc
	asked      sync.Map // of query to struct{}: those that this program has sent and that are not answered

	mu      sync.Mutex // guards what follows
	read    time.Time  // when the file was last looked at
	changed time.Time  // when the file was last written
	servers []string
	search  string
}

// query is one that this program has sent. When it arrives here again, the rules that lead DNS traffic to this program
// do not leave out its own.
type query struct {
	port int
	id   uint16
}

// recheck is how long the servers are used without a look at their file.
const recheck = 5 * time.Second

func newUpstream(o Options, m *metrics, own func(string) bool) *upstream {
	u := &upstream{path: o.ResolvConf, port: o.ServerPort, parallel: o.Parallel, timeout: o.Timeout, log: o.Log, metrics: m, own: own}
	u.path = cmp.Or(u.path, "/etc/resolv.conf")
	u.port = cmp.Or(u.port, "53")
	u.timeout = cmp.Or(u.timeout, 5*time.Second)
	o.Forwarded = cmp.Or(o.Forwarded, 512)
	u.slots = make(chan struct{}, o.Forwarded)
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u
}

// config returns the servers, host:port, and the first search domain. A file that cannot be read leaves the last ones.
func (u *upstream) config() (servers []string, search string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.read.IsZero() && time.Since(u.read) < recheck {
		return u.servers, u.search
	}
	u.read = time.Now()
	info, err := os.Stat(u.path)
	if err == nil && info.ModTime().Equal(u.changed) {
		return u.servers, u.search
	}
	c, err := dns.ClientConfigFromFile(u.path)
	if err != nil {
		u.log.Warn("the servers of DNS are unknown", "err", err)
		return u.servers, u.search
	}
	u.changed, u.servers, u.search = info.ModTime(), nil, ""
	for _, host := range c.Servers {
		addr := net.JoinHostPort(host, u.port)
		if u.own(addr) {
			u.log.Warn("a DNS server is this program itself, and is not asked", "addr", addr)
			continue
		}
		u.servers = append(u.servers, addr)
	}
	if len(c.Search) > 0 {
		u.search = c.Search[0]
	}
	return u.servers, u.search
}

// ask returns what the servers answer to a query that came from a port, or SERVFAIL.
func (u *upstream) ask(fromPort int, req *dns.Msg, overTCP bool) *dns.Msg {
	failure := new(dns.Msg).SetRcode(req, dns.RcodeServerFailure)
	if _, loop := u.asked.Load(query{fromPort, req.Id}); loop {
		u.log.Warn("a DNS query of this program came back to it: its own traffic must not be captured", "name", req.Question[0].Name)
		u.metrics.failures.Inc()
		return failure
	}
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	default:
		u.metrics.failures.Inc()
		return failure
	}
	u.metrics.forwarded.Inc()
	start := time.Now()
	servers, _ := u.config()
	var resp *dns.Msg
	if u.parallel && len(servers) > 1 {
		resp = u.askAll(servers, req, overTCP)
	} else {
		resp = u.askEach(servers, req, overTCP)
	}
	u.metrics.duration.Observe(time.Since(start).Seconds())
	if resp == nil {
		u.metrics.failures.Inc()
		return failure
	}
	resp.Id = req.Id
	resp.Compress = true
	return resp
}

// askEach asks one server after the other until one has a good answer. Without one it returns a bad one, or nil.
func (u *upstream) askEach(servers []string, req *dns.Msg, overTCP bool) (worst *dns.Msg) {
	for _, s := range servers {
		resp := u.exchange(u.ctx, s, req, overTCP)
		if good(resp) {
			return resp
		}
		if resp != nil {
			worst = resp
		}
	}
	return worst
}

// askAll asks all servers at once, as askEach else.
func (u *upstream) askAll(servers []string, req *dns.Msg, overTCP bool) (worst *dns.Msg) {
	ctx, cancel := context.WithCancel(u.ctx)
	defer cancel()
	answers := make(chan *dns.Msg, len(servers))
	for _, s := range servers {
		safe.Go(u.log, "dns server", func() {
			var resp *dns.Msg
			defer func() { answers <- resp }()
			resp = u.exchange(ctx, s, req, overTCP)
		})
	}
	for range servers {
		resp := <-answers
		if good(resp) {
			return resp
		}
		if resp != nil {
			worst = resp
		}
	}
	return worst
}

// good reports whether a response says something of the name, rather than of the server.
func good(m *dns.Msg) bool {
	return m != nil && m.Rcode != dns.RcodeServerFailure && m.Rcode != dns.RcodeRefused && m.Rcode != dns.RcodeNotImplemented
}

// exchange asks one server, and asks again over TCP for what does not fit into its response over UDP. Nil: no answer.
func (u *upstream) exchange(ctx context.Context, server string, req *dns.Msg, overTCP bool) *dns.Msg {
	network := "udp"
	if overTCP {
		network = "tcp"
	}
	resp, err := u.send(ctx, network, server, req)
	if err == nil && resp.Truncated && !overTCP {
		if whole, err := u.send(ctx, "tcp", server, req); err == nil {
			return whole
		}
	}
	if err != nil {
		u.log.Debug("a DNS server did not answer", "addr", server, "err", err)
		return nil
	}
	return resp
}

// send sends a query, under a new ID, and returns the response.
func (u *upstream) send(ctx context.Context, network, server string, req *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	client := &dns.Client{Net: network, Timeout: u.timeout, UDPSize: udpSize}
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	m := *req // its sections are not changed
	m.Id = dns.Id()
	sent := query{portOf(conn.LocalAddr()), m.Id}
	u.asked.Store(sent, struct{}{})
	defer u.asked.Delete(sent)
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
