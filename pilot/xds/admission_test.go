package xds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// costOf returns what counts for names of assignments.
func costOf(names ...string) int {
	return session.CostOfNames(envoy.TypeOf(envoy.EndpointType), new(envoy.NameInterner).Intern(names))
}

// from has every stream come from an address of the pod network, proved or not.
func from(proof identity.Proof) func(*Options) {
	return func(o *Options) {
		l := limits.Default()
		l.StreamsPerSource, l.NameBytesPerSource = 3, costOf("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9")
		o.Limits = l
		o.Authenticate = func(context.Context) (identity.Peer, error) {
			p := identity.Peer{Address: netip.MustParseAddrPort("10.0.0.1:1234"), Proof: proof}
			if proof != identity.Unproved {
				p.ID = identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "default"}
			}
			return p, nil
		}
	}
}

// An address whose streams prove nothing has few of them, and one more as soon as one ends. Others have any number.
func TestUnprovedStreamsAreFew(t *testing.T) {
	r := newRig(t, from(identity.Unproved))
	r.publish(true, "cds a=1")
	var all []*deltaClient
	for i := range 3 {
		c := r.delta(fmt.Sprintf("p%d.a", i))
		c.expect("cds a=1")
		all = append(all, c)
	}
	refused := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.dial().DeltaAggregatedResources(ctx)
		must.Succeed(t, err)
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("more.a"), TypeUrl: envoy.ClusterType})
		_, err = stream.Recv()
		if c := status.Code(err); err != nil && c != codes.ResourceExhausted {
			t.Fatal(err)
		}
		return err != nil
	}
	if !refused() {
		t.Fatal("a fourth stream is served")
	}
	all[0].cancel()
	eventually(t, "there is room again", func() bool { return !refused() })

	r = newRig(t, from(identity.Token))
	r.publish(true, "cds a=1")
	for i := range 10 {
		r.delta(fmt.Sprintf("p%d.a", i)).expect("cds a=1")
	}
}

// accounts has every stream come from the service account that its metadata names, of the namespace a, or of the one
// before a slash.
func accounts(streams int) func(*Options) {
	return func(o *Options) {
		o.Streams = streams
		o.Authenticate = func(ctx context.Context) (identity.Peer, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			namespace, sa, ok := strings.Cut(md.Get("account")[0], "/")
			if !ok {
				namespace, sa = "a", namespace
			}
			return identity.Peer{
				Address: netip.MustParseAddrPort("10.0.0.1:1234"), Proof: identity.Token,
				ID: identity.ID{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: sa},
			}, nil
		}
	}
}

// nodeOf returns the node of a pod of a, or of the same pod in the namespace of an account, as accounts takes it.
func nodeOf(account, pod string) *corev3.Node {
	namespace, _, ok := strings.Cut(account, "/")
	if !ok {
		return xdstest.Node(pod)
	}
	n := xdstest.Node(strings.TrimSuffix(pod, ".a") + "." + namespace)
	n.Id = strings.Replace(n.Id, "~a.svc", "~"+namespace+".svc", 1)
	return n
}

// firstOf returns what a stream of a service account gets first: the error that ends it, or nil. The stream stays
// open until the test ends.
func (r *rig) firstOf(account string, names ...string) (*deltaClient, error) {
	r.t.Helper()
	c := r.silent("account", account)
	url := envoy.ClusterType
	if len(names) > 0 {
		url = envoy.EndpointType
	}
	// Recv says whether it has ended.
	_ = c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOf(account, "web.a"), TypeUrl: url, ResourceNamesSubscribe: names})
	_, err := c.stream.Recv()
	return c, err
}

// TestStreamsOfOneIdentity checks that an identity has a tenth of the streams and is refused more, that another
// identity is served at once meanwhile, and that there is room again when a stream ends.
func TestStreamsOfOneIdentity(t *testing.T) {
	r := newRig(t, accounts(30))
	r.publish(true, "cds a=1")
	var all []*deltaClient
	for range 3 {
		c, err := r.firstOf("flood")
		must.Succeed(t, err)
		all = append(all, c)
	}
	for range 40 { // more than there are in all
		_, err := r.firstOf("flood")
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "spiffe://cluster.local/ns/a/sa/flood") {
			t.Fatalf("one more stream: %v", err)
		}
	}
	if _, err := r.firstOf("web"); err != nil {
		t.Errorf("another identity: %v", err)
	}
	if n := sample(t, r.reg, "pilot_xds_refused_streams", "reason", "streams"); n != 40 {
		t.Errorf("%v streams are counted as refused", n)
	}
	all[0].cancel()
	eventually(t, "there is room again", func() bool { _, err := r.firstOf("flood"); return err == nil })
}

// TestArrivals checks how long a stream waits while the first requests of another one are read.
func TestArrivals(t *testing.T) {
	limit := limits.Default().FirstRequestsTime
	for _, c := range []struct {
		name     string
		requests []time.Duration // when the other client sends them
		leaves   bool            // after that
		want     time.Duration
	}{
		{"nothing is sent", nil, false, limit},
		{"one request", []time.Duration{0}, false, arrivalQuiet},
		{"two requests", []time.Duration{0, arrivalQuiet / 2}, false, arrivalQuiet * 3 / 2},
		{"a late request", []time.Duration{limit * 2}, false, limit},
		{"it ends", []time.Duration{0}, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limits.Default()
			a := newAdmission(1, &l, newMetrics(nil), slog.New(slog.DiscardHandler))
			a.arrivals.Resize(1)
			first, err := a.arrive(t.Context(), identity.Peer{}, nil)
			must.Succeed(t, err)
			began := time.Now()
			var other sync.WaitGroup
			defer other.Wait()
			other.Go(func() {
				for _, at := range c.requests {
					time.Sleep(time.Until(began.Add(at)))
					first.within(arrivalQuiet)
				}
				if c.leaves {
					first.end()
				}
			})
			second, err := a.arrive(t.Context(), identity.Peer{}, nil)
			must.Succeed(t, err)
			if took := time.Since(began); took != c.want {
				t.Errorf("%s: it waits for %s, want %s", c.name, took, c.want)
			}
			second.end()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			third, err := a.arrive(t.Context(), identity.Peer{}, nil)
			must.Succeed(t, err)
			if _, err := a.arrive(ctx, identity.Peer{}, nil); status.Code(err) != codes.Canceled {
				t.Errorf("%s: a client that has left: %v", c.name, err)
			}
			third.end()
		})
	}
}

// TestStreamsOfOneTenant checks that the service accounts of a namespace together leave the last tenth of the streams
// to others: a proxy of another namespace is served at once, and one of theirs waits until streams of theirs end.
func TestStreamsOfOneTenant(t *testing.T) {
	r := newRig(t, accounts(20))
	r.publish(true, "cds a=1")
	var all []*deltaClient
	for i := range 18 {
		c, err := r.firstOf(fmt.Sprintf("flood%d", i/2))
		must.Succeed(t, err)
		all = append(all, c)
	}
	served := make(chan error, 1)
	go func() { _, err := r.firstOf("more"); served <- err }()
	if _, err := r.firstOf("b/web"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	select {
	case err := <-served:
		t.Errorf("a namespace with most of the streams is served one more: %v", err)
	default:
	}
	all[0].cancel() // the other namespace has one of the last tenth, which is made up first
	all[1].cancel()
	must.Succeed(t, <-served)
}

// TestMemoryOfOneTenant checks that the service accounts of a namespace together may subscribe to no more names, and
// have no more configuration of their own, than three of them, while another namespace is served.
func TestMemoryOfOneTenant(t *testing.T) {
	r := newRig(t, accounts(1000))
	r.publish(true, "cds a=1")
	names := []string{"x-0", "x-1", "x-2", "x-3"}
	r.server.admission.tenants.lists = quota.NewValues[identity.Tenant, subscribed](2 * costOf(names...))
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		list := []string{fmt.Sprint("y-", i), names[1], names[2], names[3]}
		if _, err := r.firstOf(fmt.Sprint("names", i), list...); status.Code(err) != want {
			t.Errorf("the names of account %d: %v, want %v", i, err, want)
		}
	}
	if _, err := r.firstOf("b/web", names...); err != nil {
		t.Errorf("the names of another namespace: %v", err)
	}

	r = newRig(t, accounts(1000))
	r.fake.Each.Store(true)
	r.fake.Kept.Store(1)
	r.server.admission.tenants.cohortBytes = fewOfTenant
	r.publish(true, "cds a=1")
	var err error
	n := 0
	for ; err == nil && n < 2*fewOfTenant; n++ {
		_, err = r.pod(fmt.Sprint("kinds", n), fmt.Sprintf("p%d.a", n))
		h, leave := r.server.admission.tenants.cohorts.Hold(identity.Tenant{TrustDomain: "cluster.local", Namespace: "a"})
		h.mu.Lock()
		h.next = time.Time{} // the next request has what is kept measured
		h.mu.Unlock()
		leave()
	}
	if n != fewOfTenant+2 || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "namespace a of cluster.local") {
		t.Errorf("%d accounts of a namespace are served, and then: %v", n-1, err)
	}
	if _, err := r.pod("b/web", "web.a"); err != nil {
		t.Errorf("a proxy of another namespace: %v", err)
	}
}

// TestNamesOfOneIdentity checks that the names that the streams of an identity subscribe to take a bounded amount of
// memory, where streams with the same names take no more than one of them, and that another identity is served
// meanwhile.
func TestNamesOfOneIdentity(t *testing.T) {
	r := newRig(t, accounts(1000))
	r.server.admission.identities.lists = quota.NewValues[identity.Holder, subscribed](
		costOf("x-0", "x-1", "x-2", "x-3", "x-4", "x-5", "x-6", "x-7", "x-8", "x-9"),
	)
	r.publish(true, "cds a=1")
	list := func(prefix string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(prefix, i))
		}
		return all
	}
	for range 20 {
		if _, err := r.firstOf("flood", list("x-", 6)...); err != nil {
			t.Fatalf("the same names on many streams: %v", err)
		}
	}
	c, err := r.firstOf("flood", list("y-", 5)...)
	if status.Code(err) == codes.OK { // the answer may have come before the end
		_, err = c.stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "spiffe://cluster.local/ns/a/sa/flood") {
		t.Errorf("more names: %v", err)
	}
	if _, err := r.firstOf("web", list("y-", 5)...); err != nil {
		t.Errorf("another identity: %v", err)
	}
	if _, err := r.firstOf("flood", list("x-", 6)...); err != nil {
		t.Errorf("a stream within the bound: %v", err)
	}
	if n := sample(t, r.reg, "pilot_xds_refused_streams", "reason", "names"); n != 1 {
		t.Errorf("%v streams are counted as refused", n)
	}
}

// What the streams of one address that proves nothing subscribe to is bounded together.
func TestUnprovedNamesAreFew(t *testing.T) {
	r := newRig(t, from(identity.Unproved))
	r.publish(true, "cds a=1", "eds a=1")
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("n", i))
		}
		return all
	}
	one, two := r.delta("one.a"), r.delta("two.a")
	one.expect("cds a=1")
	two.expect("cds a=1")
	one.subscribe("eds", names(8)...)
	if _, err := one.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	two.subscribe("eds", names(3)...)
	for {
		if _, err := two.stream.Recv(); err != nil {
			if c := status.Code(err); c != codes.ResourceExhausted {
				t.Error(err)
			}
			break
		}
	}
	one.subscribe("eds", "more")
	if _, err := one.stream.Recv(); err != nil {
		t.Errorf("a stream that took no more than its share: %v", err)
	}
	eventually(t, "the names of a stream that ended do not count", func() bool {
		held := r.server.admission.strangers.lists.Held(identity.Holder{Address: netip.MustParseAddr("10.0.0.1")})
		return held == costOf("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "more")
	})
}

// listener accepts connections that say that they come from an address.
type listener struct {
	net.Listener
	from []string
}

func (l *listener) Accept() (net.Conn, error) {
	if len(l.from) == 0 {
		return nil, net.ErrClosed
	}
	at := netip.MustParseAddrPort(l.from[0])
	l.from = l.from[1:]
	here, _ := net.Pipe()
	return &remoteConn{here, net.TCPAddrFromAddrPort(at)}, nil
}

type remoteConn struct {
	net.Conn
	at net.Addr
}

func (c *remoteConn) RemoteAddr() net.Addr { return c.at }

// One address has a bounded number of connections, whatever others have, and this host any number.
func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	a := newAccepted(2)
	l := a.wrap(&listener{from: []string{
		"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "[::ffff:10.0.0.1]:4", "10.0.0.2:1", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "10.0.0.1:5",
	}})
	accept := func(want string) net.Conn {
		t.Helper()
		c, err := l.Accept()
		must.Succeed(t, err)
		if got := c.RemoteAddr().String(); got != want {
			t.Fatalf("accepted %s, not %s", got, want)
		}
		return c
	}
	first := accept("10.0.0.1:1")
	accept("10.0.0.1:2")
	accept("10.0.0.2:1")
	for _, at := range []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"} {
		accept(at)
	}
	for range 2 { // closing twice counts once
		must.Succeed(t, first.Close())
	}
	accept("10.0.0.1:5")
	if n := a.bound.Held(netip.MustParseAddr("10.0.0.1")); n != 2 {
		t.Errorf("%d connections of the first address are counted", n)
	}
}
