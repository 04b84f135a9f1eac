package dns

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// table is the name table of most tests.
func table() *NameTable {
	return &NameTable{Table: map[string]*NameInfo{
		"reviews.default.svc.cluster.local": {IPs: []string{"10.0.0.1"}, Registry: "Kubernetes", ShortName: "reviews", Namespace: "default"},
		"ratings.other.svc.cluster.local": {IPs: []string{"10.0.0.2", "fd00::2"}, Registry: "Kubernetes", ShortName: "ratings",
			Namespace: "other"},
		"headless.default.svc.cluster.local": {
			IPs: []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"}, Registry: "Kubernetes",
			ShortName: "headless", Namespace: "default",
		},
		"Example.com":      {IPs: []string{"240.240.0.1"}, Registry: "External"},
		"*.wild.com":       {IPs: []string{"240.240.0.2"}, Registry: "External"},
		"*.deep.wild.com":  {IPs: []string{"240.240.0.3"}, Registry: "External"},
		"six.example.com":  {IPs: []string{"fd00::6"}, Registry: "External"},
		"alias.example.io": {IPs: []string{"240.240.0.4", "no address"}, Registry: "External", AltHosts: []string{"other.example.io"}},
	}}
}

// set makes a server answer from a table.
func set(t testing.TB, s *Server, table *NameTable) {
	t.Helper()
	must.Succeed(t, s.SetTable(wire(table)))
}

// start runs a Server that forwards other names to the servers, and returns its address.
func start(t *testing.T, o Options, servers ...string) *Server {
	t.Helper()
	conf := "search default.svc.cluster.local svc.cluster.local\n"
	for _, s := range servers {
		host, port, err := net.SplitHostPort(s)
		must.Succeed(t, err)
		o.ServerPort = port
		conf += "nameserver " + host + "\n"
	}
	o.Addr, o.Namespace = cmp.Or(o.Addr, "127.0.0.1:0"), "default"
	o.ResolvConf = filepath.Join(t.TempDir(), "resolv.conf")
	must.Succeed(t, os.WriteFile(o.ResolvConf, []byte(conf), 0o600))
	s, err := New(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// startTable calls start with the table of most tests.
func startTable(t *testing.T, o Options, servers ...string) *Server {
	t.Helper()
	s := start(t, o, servers...)
	set(t, s, table())
	return s
}

// server runs a DNS server for resolv.conf on an address, and returns its HOST:PORT.
func server(t *testing.T, addr string, handle dns.HandlerFunc) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	var d Server // only its sockets are used
	must.Succeed(t, d.listen(host, port))
	for i, o := range d.sockets {
		s := &dns.Server{Handler: handle}
		if i == 0 {
			s.PacketConn = o.Closer.(net.PacketConn)
		} else {
			s.Listener = o.Closer.(net.Listener)
		}
		done := make(chan struct{})
		go func() { defer close(done); s.ActivateAndServe() }()
		t.Cleanup(func() {
			o.Close()
			<-done
		})
	}
	return d.sockets[0].addr.String()
}

// freePort returns a port that is free on several addresses.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := freeport.Pick(t.Context(), "0.0.0.0")
	must.Succeed(t, err)
	return port
}

// reply answers A queries with an address.
func reply(ip string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, req *dns.Msg) {
		m := new(dns.Msg).SetReply(req)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: req.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 7},
			A: net.ParseIP(ip)}}
		w.WriteMsg(m)
	}
}

// rcode answers every query with a code.
func rcode(code int) dns.HandlerFunc {
	return func(w dns.ResponseWriter, req *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(req, code)) }
}

// ask returns a server's answer as text: the code and the sorted records.
func ask(t *testing.T, addr, network, name string, qtype uint16) string {
	t.Helper()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	resp, _, err := (&dns.Client{Net: network, Timeout: 20 * time.Second}).Exchange(m, addr)
	must.Succeed(t, err)
	lines := []string{dns.RcodeToString[resp.Rcode]}
	for _, rr := range resp.Answer {
		lines = append(lines, strings.Join(strings.Fields(rr.String()), " "))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "; ")
}

// answers checks a server's UDP response to an A query.
func answers(t *testing.T, what, addr, name, want string) {
	t.Helper()
	if got := ask(t, addr, "udp", name, dns.TypeA); got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestNamesOfTheTable(t *testing.T) {
	s := start(t, Options{}, server(t, "127.0.0.1:0", rcode(dns.RcodeNameError)))
	if got := ask(t, s.Addr(), "udp", "reviews", dns.TypeA); got != "SERVFAIL" || s.Ready() || s.Table().JSON() != nil {
		t.Errorf("before the first table: %s, ready %t", got, s.Ready())
	}
	set(t, s, table())
	if err := s.SetTable([]byte{1}); err == nil {
		t.Error("a table that cannot be read is taken")
	}
	if !s.Ready() || string(s.Table().JSON()) != string(table().JSON()) {
		t.Error("with a table the server is not ready")
	}
	const ours = "reviews.default.svc.cluster.local. 30 IN A 10.0.0.1"
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"reviews.default.svc.cluster.local", dns.TypeA, "NOERROR; " + ours},
		{"REVIEWS.default.svc.Cluster.local", dns.TypeA, "NOERROR; REVIEWS.default.svc.Cluster.local. 30 IN A 10.0.0.1"},
		{"reviews.default.svc", dns.TypeA, "NOERROR; reviews.default.svc. 30 IN A 10.0.0.1"},
		{"reviews.default", dns.TypeA, "NOERROR; reviews.default. 30 IN A 10.0.0.1"},
		{"reviews", dns.TypeA, "NOERROR; reviews. 30 IN A 10.0.0.1"},
		{"reviews", dns.TypeAAAA, "NOERROR"}, // no data, which is not the same as no such name
		{"ratings", dns.TypeA, "NXDOMAIN"},   // in another namespace
		{"ratings.other", dns.TypeAAAA, "NOERROR; ratings.other. 30 IN AAAA fd00::2"},
		{"ratings.default.svc.cluster.local", dns.TypeA, "NXDOMAIN"},
		{"example.com", dns.TypeA, "NOERROR; example.com. 30 IN A 240.240.0.1"},
		{"example.com.default.svc.cluster.local", dns.TypeA, "NOERROR; example.com. 30 IN A 240.240.0.1; " +
			"example.com.default.svc.cluster.local. 30 IN CNAME example.com."},
		{"example.com.default.svc.cluster.local", dns.TypeAAAA, "NOERROR; example.com.default.svc.cluster.local. 30 IN CNAME example.com."},
		{"example.com.svc.cluster.local", dns.TypeA, "NXDOMAIN"}, // not the first search domain
		{"a.wild.com", dns.TypeA, "NOERROR; a.wild.com. 30 IN A 240.240.0.2"},
		{"a.b.wild.com", dns.TypeA, "NOERROR; a.b.wild.com. 30 IN A 240.240.0.2"},
		{"a.deep.wild.com", dns.TypeA, "NOERROR; a.deep.wild.com. 30 IN A 240.240.0.3"},
		{"wild.com", dns.TypeA, "NXDOMAIN"},
		{"six.example.com", dns.TypeAAAA, "NOERROR; six.example.com. 30 IN AAAA fd00::6"},
		{"six.example.com", dns.TypeA, "NOERROR"},
		{"other.example.io", dns.TypeA, "NOERROR; other.example.io. 30 IN A 240.240.0.4"},
		{"reviews", dns.TypeTXT, "NXDOMAIN"}, // the table has no TXT records; the servers answer
		{"missing.example.com", dns.TypeA, "NXDOMAIN"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			if got := ask(t, s.Addr(), network, c.name, c.qtype); got != c.want {
				t.Errorf("%s %s over %s:\n got %s\nwant %s", c.name, dns.TypeToString[c.qtype], network, got, c.want)
			}
		}
	}
	set(t, s, &NameTable{})
	answers(t, "a name that left the table", s.Addr(), "reviews", "NXDOMAIN")
}

// TestAnswersAreShuffled checks that all addresses of a name are returned in random order.
func TestAnswersAreShuffled(t *testing.T) {
	s := startTable(t, Options{})
	first := map[string]bool{}
	for range 200 {
		resp, err := dns.Exchange(new(dns.Msg).SetQuestion("headless.", dns.TypeA), s.Addr())
		if err != nil || len(resp.Answer) != 4 {
			t.Fatal(resp, err)
		}
		first[resp.Answer[0].(*dns.A).A.String()] = true
	}
	if len(first) != 4 { // fails by chance less than once in 10^24 runs
		t.Errorf("first were only %v", first)
	}
}

// TestConnectionsAreBounded checks that a client over TCP waits while the number of connections is at its limit.
func TestConnectionsAreBounded(t *testing.T) {
	s := startTable(t, Options{Connections: 1})
	query := new(dns.Msg).SetQuestion("example.com.", dns.TypeA)
	dial := func() *dns.Conn {
		c, err := net.Dial("tcp", s.Addr())
		must.Succeed(t, err)
		t.Cleanup(func() { c.Close() })
		return &dns.Conn{Conn: c}
	}
	first, second := dial(), dial()
	client := &dns.Client{Timeout: 20 * time.Second}
	if _, _, err := client.ExchangeWithConn(query, first); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, second.WriteMsg(query))
	for range 100 {
		if _, _, err := client.Exchange(query, s.Addr()); err != nil { // over UDP
			t.Fatal(err)
		}
	}
	if n := testutil.ToFloat64(s.metrics.requests); n != 101 {
		t.Errorf("%g queries are taken, want 101", n)
	}
	first.Close()
	if r, err := second.ReadMsg(); err != nil || len(r.Answer) != 1 {
		t.Errorf("who waited is answered %v, %v", r, err)
	}
}

// TestLongAnswers checks that a response is truncated to the client's limit over UDP, and to the limit of messages
// over TCP.
func TestLongAnswers(t *testing.T) {
	most := &NameInfo{}
	for i := range 6000 {
		most.IPs = append(most.IPs, fmt.Sprintf("10.9.%d.%d", i/250, i%250+1))
	}
	s := start(t, Options{})
	set(t, s, &NameTable{Table: map[string]*NameInfo{"many": {IPs: most.IPs[:200]}, "most": most}})
	for _, c := range []struct {
		network, name string
		size          uint16
		whole         bool
	}{{"udp", "many.", 0, false}, {"udp", "many.", 1232, false}, {"udp", "many.", 8192, true}, {"tcp", "many.", 0, true},
		{"tcp", "most.", 0, false}} {
		m := new(dns.Msg).SetQuestion(c.name, dns.TypeA)
		if c.size > 0 {
			m.SetEdns0(c.size, false)
		}
		resp, _, err := (&dns.Client{Net: c.network, Timeout: 20 * time.Second}).Exchange(m, s.Addr())
		must.Succeed(t, err)
		if whole := len(resp.Answer) == 200; whole != c.whole || resp.Truncated == c.whole || len(resp.Answer) == 0 {
			t.Errorf("%+v: %d answers, truncated %t", c, len(resp.Answer), resp.Truncated)
		}
		if (resp.IsEdns0() != nil) != (c.size > 0) {
			t.Errorf("%+v: EDNS %v", c, resp.IsEdns0())
		}
	}
}

func TestOtherServers(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		port := freePort(t)
		good := server(t, "127.0.0.2:"+port, reply("192.0.2.1"))
		bad := server(t, "127.0.0.1:"+port, rcode(dns.RcodeServerFailure))
		s := startTable(t, Options{Parallel: parallel}, bad, good)
		answers(t, fmt.Sprint("parallel ", parallel), s.Addr(), "a.org", "NOERROR; a.org. 7 IN A 192.0.2.1")
		none := startTable(t, Options{Parallel: parallel}, bad)
		answers(t, fmt.Sprint("a failing server, parallel ", parallel), none.Addr(), "a.org", "SERVFAIL")
	}
}

// TestSilentServer checks that the next server is asked when one does not answer.
func TestSilentServer(t *testing.T) {
	port := freePort(t)
	good := server(t, "127.0.0.2:"+port, reply("192.0.2.1"))
	silent := server(t, "127.0.0.1:"+port, func(dns.ResponseWriter, *dns.Msg) {})
	for _, parallel := range []bool{false, true} {
		s := startTable(t, Options{Parallel: parallel, Timeout: 50 * time.Millisecond}, silent, good)
		// On a busy machine the good server may be too slow as well, now and then.
		got, want := "", "NOERROR; a.org. 7 IN A 192.0.2.1"
		for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); {
			got = ask(t, s.Addr(), "udp", "a.org", dns.TypeA)
		}
		if got != want {
			t.Errorf("parallel %t: got %s, want %s", parallel, got, want)
		}
	}
}

// TestTruncatedResponses checks that a truncated response is requested again over TCP, so that clients without TCP
// get as much as fits.
func TestTruncatedResponses(t *testing.T) {
	up := server(t, "127.0.0.1:0", func(w dns.ResponseWriter, req *dns.Msg) {
		if w.RemoteAddr().Network() == "udp" {
			m := new(dns.Msg).SetReply(req)
			m.Truncated = true
			w.WriteMsg(m)
			return
		}
		reply("192.0.2.1")(w, req)
	})
	s := startTable(t, Options{}, up)
	answers(t, "truncated", s.Addr(), "a.org", "NOERROR; a.org. 7 IN A 192.0.2.1")
}

// TestWaitingQueriesAreBounded checks that the number of waiting queries is limited, and that names in the table are
// still answered.
func TestWaitingQueriesAreBounded(t *testing.T) {
	release := make(chan struct{})
	asked := make(chan struct{}, 10)
	up := server(t, "127.0.0.1:0", func(w dns.ResponseWriter, req *dns.Msg) {
		asked <- struct{}{}
		<-release
		reply("192.0.2.1")(w, req)
	})
	reg := prometheus.NewRegistry()
	s := startTable(t, Options{Forwarded: 1, Timeout: time.Minute, Registerer: reg}, up)
	first := make(chan string)
	go func() { first <- ask(t, s.Addr(), "udp", "a.org", dns.TypeA) }()
	<-asked
	answers(t, "one too many", s.Addr(), "b.org", "SERVFAIL")
	answers(t, "beside it", s.Addr(), "reviews", "NOERROR; reviews. 30 IN A 10.0.0.1")
	close(release)
	if got := <-first; got != "NOERROR; a.org. 7 IN A 192.0.2.1" {
		t.Errorf("the one that waited: %s", got)
	}
	found, err := reg.Gather()
	must.Succeed(t, err)
	values := map[string]float64{}
	for _, f := range found {
		values[f.GetName()] = f.Metric[0].GetCounter().GetValue() + float64(f.Metric[0].GetHistogram().GetSampleCount())
	}
	for name, want := range map[string]float64{"requests_total": 3, "upstream_requests_total": 1, "upstream_failures_total": 1,
		"upstream_request_duration_seconds": 1} {
		if got := values["istio_agent_dns_"+name]; got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
}

// TestLoops checks that a query that the server has sent, and that is redirected to it, is not sent again.
func TestLoops(t *testing.T) {
	var self atomic.Pointer[Server]
	var came atomic.Int32
	up := server(t, "127.0.0.1:0", func(w dns.ResponseWriter, req *dns.Msg) {
		came.Add(1)
		w.WriteMsg(self.Load().forwarder.ask(portOf(w.RemoteAddr()), req, false)) // as if the kernel had redirected it
	})
	s := startTable(t, Options{}, up)
	self.Store(s)
	if got := ask(t, s.Addr(), "udp", "a.org", dns.TypeA); got != "SERVFAIL" || came.Load() != 1 {
		t.Errorf("got %s after %d rounds", got, came.Load())
	}
}

// TestOwnAddressIsNoServer checks that the server does not forward to itself if resolv.conf names it.
func TestOwnAddressIsNoServer(t *testing.T) {
	s := start(t, Options{}, "127.0.0.1:5353", "127.0.0.2:5353")
	_, port, _ := net.SplitHostPort(s.Addr())
	s.forwarder.mu.Lock()
	s.forwarder.port = port
	s.forwarder.mu.Unlock()
	if servers, _ := s.forwarder.config(); !slices.Equal(servers, []string{"127.0.0.2:" + port}) {
		t.Errorf("servers are %v", servers)
	}
}

// TestResolvConfChanges checks that a new version of resolv.conf is used, and that an unreadable one changes nothing.
func TestResolvConfChanges(t *testing.T) {
	s := start(t, Options{}, "127.0.0.1:5353")
	again := func() string {
		s.forwarder.mu.Lock()
		s.forwarder.checked = time.Time{}
		s.forwarder.mu.Unlock()
		servers, search := s.forwarder.config()
		return fmt.Sprintf("%v %s", servers, search)
	}
	if got, want := again(), "[127.0.0.1:5353] default.svc.cluster.local"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	must.Succeed(t, os.WriteFile(s.forwarder.path, []byte("nameserver 127.0.0.9\nsearch b\n"), 0o600))
	must.Succeed(t, os.Chtimes(s.forwarder.path, time.Time{}, time.Unix(1, 0)))
	if got, want := again(), "[127.0.0.9:5353] b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	must.Succeed(t, os.Remove(s.forwarder.path))
	if got, want := again(), "[127.0.0.9:5353] b"; got != want {
		t.Errorf("without a file: got %s, want %s", got, want)
	}
}

func TestMalformedQueries(t *testing.T) {
	s := startTable(t, Options{})
	conn, err := net.Dial("udp", s.Addr())
	must.Succeed(t, err)
	defer conn.Close()
	whole, _ := new(dns.Msg).SetQuestion("reviews.", dns.TypeA).Pack()
	for i := range whole {
		conn.Write(whole[:i])
	}
	answers(t, "after malformed queries", s.Addr(), "reviews", "NOERROR; reviews. 30 IN A 10.0.0.1")
	for _, questions := range [][]dns.Question{nil, {{Name: "reviews.", Qtype: dns.TypeA, Qclass: dns.ClassINET},
		{Name: "a.org.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}} {
		m := new(dns.Msg).SetQuestion("reviews.", dns.TypeA)
		m.Question = questions
		if resp, err := dns.Exchange(m, s.Addr()); err != nil || resp.Rcode != dns.RcodeFormatError {
			t.Errorf("%d questions: %v, %v", len(questions), resp, err)
		}
	}
	old := new(dns.Msg).SetQuestion("reviews.", dns.TypeA)
	old.SetEdns0(4096, false)
	old.IsEdns0().SetVersion(1)
	resp, err := dns.Exchange(old, s.Addr())
	if err != nil || resp.Rcode != dns.RcodeBadVers {
		t.Errorf("an unknown version of EDNS: %v, %v", resp, err)
	}
}

// TestResponsesAreNotAnswered checks that the server ignores responses. Otherwise two servers could answer each other
// forever.
func TestResponsesAreNotAnswered(t *testing.T) {
	s := startTable(t, Options{})
	local := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	from, err := net.ListenUDP("udp", local)
	must.Succeed(t, err)
	defer from.Close()
	to, err := net.ListenUDP("udp", local)
	must.Succeed(t, err)
	defer to.Close()
	for _, response := range []bool{true, false} {
		m := new(dns.Msg).SetQuestion("reviews.", dns.TypeA)
		m.Response = response
		in, err := m.Pack()
		must.Succeed(t, err)
		s.serveDatagram(from, in, make([]byte, dns.MaxMsgSize), to.LocalAddr().(*net.UDPAddr).AddrPort())
		if _, err := from.WriteTo([]byte("end"), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, dns.MaxMsgSize)
		n, err := to.Read(got)
		if answered := string(got[:n]) != "end"; err != nil || answered == response {
			t.Errorf("response %v is answered: %v, %v", response, answered, err)
		}
		if !response {
			_, _ = to.Read(got) // the end
		}
	}
}

// TestAllAddresses checks that a server on all addresses responds from the address that was asked.
func TestAllAddresses(t *testing.T) {
	s := startTable(t, Options{Addr: "0.0.0.0:0"})
	_, port, _ := net.SplitHostPort(s.Addr())
	for _, addr := range []string{"127.0.0.1", "127.0.0.2"} {
		answers(t, addr, addr+":"+port, "example.com", "NOERROR; example.com. 30 IN A 240.240.0.1")
	}
}

func FuzzDatagrams(f *testing.F) {
	for _, name := range []string{"reviews.", "missing.org."} {
		b, err := new(dns.Msg).SetQuestion(name, dns.TypeAAAA).Pack()
		must.Succeed(f, err)
		f.Add(b)
		f.Add(b[:len(b)-3])
		b[2] |= 0x28 // another opcode
		f.Add(b)
	}
	s, err := New(Options{Addr: "127.0.0.1:0", ResolvConf: os.DevNull})
	must.Succeed(f, err)
	f.Cleanup(func() {
		for _, o := range s.sockets {
			o.Close()
		}
	})
	set(f, s, table())
	conn := s.sockets[0].Closer.(*net.UDPConn)
	out := make([]byte, dns.MaxMsgSize)
	f.Fuzz(func(_ *testing.T, b []byte) { s.serveDatagram(conn, b, out, netip.MustParseAddrPort("127.0.0.1:9")) })
}

func TestTakenAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	if _, err := New(Options{Addr: l.Addr().String()}); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error is %v", err)
	}
	if _, err := New(Options{Addr: "nonsense"}); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("error is %v", err)
	}
}

// wire encodes a table in the wire format, as a control plane does.
func wire(t *NameTable) (b []byte) {
	text := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	for _, name := range t.names() {
		var info []byte
		i := t.Table[name]
		for _, ip := range i.IPs {
			info = text(info, 1, ip)
		}
		info = text(text(text(info, 2, i.Registry), 3, i.ShortName), 4, i.Namespace)
		for _, h := range i.AltHosts {
			info = text(info, 5, h)
		}
		info = protowire.AppendVarint(protowire.AppendTag(info, 99, protowire.VarintType), 7) // a field of later versions
		b = text(b, 1, string(text(text(nil, 1, name), 2, string(info))))
	}
	return b
}

func TestDecode(t *testing.T) {
	got, err := Decode(wire(table()))
	if err != nil || string(got.JSON()) != string(table().JSON()) {
		t.Errorf("got %s, %v", got.JSON(), err)
	}
	if !strings.Contains(string(got.JSON()), `"shortname": "reviews"`) {
		t.Errorf("as JSON: %s", got.JSON())
	}
	if _, err := Decode(wire(table())[:20]); err == nil {
		t.Error("half a table is decoded")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(wire(table()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if table, err := Decode(b); err == nil {
			newLookup(table, "default", "a.b").answer(dns.Question{Name: "x.a.b.", Qtype: dns.TypeA, Qclass: dns.ClassINET})
		}
	})
}

func BenchmarkTable(b *testing.B) {
	l := newLookup(table(), "default", "default.svc.cluster.local")
	q := dns.Question{Name: "reviews.default.svc.cluster.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	for b.Loop() {
		l.answer(q)
	}
}

// Another server to measure, such as Istio's agent: go test -run ^$ -bench Queries ./pilot/agent/dns -args -addr
// 127.0.0.1:15053 -name reviews.default.svc.cluster.local.
var (
	otherAddr = flag.String("addr", "", "address of a DNS server to measure in the place of this one")
	otherName = flag.String("name", "reviews.default.svc.cluster.local", "name to ask for")
)

// BenchmarkQueries queries over UDP with 16 concurrent clients.
func BenchmarkQueries(b *testing.B) {
	addr := *otherAddr
	if addr == "" {
		s, err := New(Options{Addr: "127.0.0.1:0", Namespace: "default", ResolvConf: os.DevNull})
		must.Succeed(b, err)
		set(b, s, table())
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		defer func() { cancel(); <-done }()
		addr = s.Addr()
	}
	query, err := new(dns.Msg).SetQuestion(dns.Fqdn(*otherName), dns.TypeA).Pack()
	must.Succeed(b, err)
	b.SetParallelism(16 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("udp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		answer := make([]byte, 512)
		for pb.Next() {
			if _, err := conn.Write(query); err != nil {
				b.Error(err)
			}
			if n, err := conn.Read(answer); err != nil || n < 12 || answer[7] == 0 { // the number of answers
				b.Errorf("no answer: %x, %v", answer[:n], err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
}
