package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	service = "istiod.istio-system.svc.cluster.local"
	name    = "istiod.istio-system.svc"
	id      = "spiffe://cluster.local/ns/istio-system/sa/istiod"
)

// world is a snapshot that has the endpoints of the Service, and the Pods of some.
type world struct{ s *snapshot.Snapshot }

func (w world) Snapshot() *snapshot.Snapshot { return w.s }

func newWorld(pods map[string]string, endpoints ...*registry.Endpoint) world {
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	svc := &registry.Service{Host: service, Namespace: "istio-system", Name: "istiod", Ports: []registry.Port{
		{Name: "grpc-xds", Number: 15010}, {Name: "https-dns", Number: 15012},
	}}
	workloads := map[registry.WorkloadKey]*registry.Workload{}
	for name, ips := range pods {
		k := registry.WorkloadKey{Kind: kinds.Pod, Namespace: "istio-system", Name: name}
		workloads[k] = &registry.Workload{WorkloadKey: k, Addresses: strings.Split(ips, " "), Cluster: "Kubernetes"}
	}
	b.ApplyRegistry(registry.Changes{
		Services:  map[registry.ServiceKey]*registry.Service{svc.Key(): svc},
		Endpoints: map[registry.ServiceKey][]*registry.Endpoint{svc.Key(): endpoints}, Workloads: workloads,
	})
	return world{b.Commit(time.Unix(1, 0))}
}

func endpoint(address string, port uint32, change ...func(*registry.Endpoint)) *registry.Endpoint {
	e := &registry.Endpoint{Address: address, Port: port, ServicePort: "https-dns", Cluster: "Kubernetes", HealthKnown: true}
	for _, c := range change {
		c(e)
	}
	return e
}

// TestPeers: peers are the ready endpoints of the secure port in the own cluster, each at its own port, but for this
// replica. A replica with addresses of both IP families is one peer.
func TestPeers(t *testing.T) {
	w := newWorld(map[string]string{"istiod-0": "10.0.0.1 fd00::1", "istiod-1": "10.0.0.2 fd00::2"},
		endpoint("10.0.0.1", 15012), endpoint("10.0.0.2", 25012), endpoint("10.0.0.9", 35012),
		endpoint("fd00::1", 15012), endpoint("fd00::2", 25012),
		endpoint("10.0.0.2", 15010, func(e *registry.Endpoint) { e.ServicePort = "grpc-xds" }),
		endpoint("10.0.0.3", 15012, func(e *registry.Endpoint) { e.Health = registry.Unhealthy }),
		endpoint("10.0.0.4", 15012, func(e *registry.Endpoint) { e.Health = registry.Draining }),
		endpoint("10.0.0.5", 15012, func(e *registry.Endpoint) { e.Cluster = "west" }),
	)
	o := Options{Name: "istiod-0", Service: service, Cluster: "Kubernetes", World: w}
	want := []Peer{{"10.0.0.9:35012", "10.0.0.9:35012"}, {"istiod-1", "10.0.0.2:25012"}}
	if got := New(o).Peers(); !slices.Equal(got, want) {
		t.Errorf("peers %v, want %v", got, want)
	}
	o.World = world{}
	if got := New(o).Peers(); len(got) > 0 {
		t.Errorf("before the first snapshot: %v", got)
	}
	if got := New(o).Ask(t.Context(), "syncz"); got != nil {
		t.Errorf("answers of no peer: %v", got)
	}
}

// authority signs the certificates of servers and replicas.
type authority struct{ bundle *pki.Bundle }

func newAuthority(t *testing.T) authority {
	t.Helper()
	b, err := pki.NewSelfSigned("cluster.local", time.Hour, time.Now())
	must.Succeed(t, err)
	return authority{b}
}

func (a authority) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range a.bundle.Roots {
		pool.AddCert(c)
	}
	return pool
}

func (a authority) certificate(t *testing.T, l pki.Leaf) tls.Certificate {
	t.Helper()
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	l.Key, l.TTL = key.Public(), time.Hour
	der, _, err := a.bundle.Sign(l, time.Now())
	must.Succeed(t, err)
	return tls.Certificate{PrivateKey: key, Certificate: [][]byte{der}}
}

// caller is a Caller with the identity of a replica.
type caller struct {
	config *tls.Config
	err    error
}

func (c caller) TLS(context.Context) (*tls.Config, error) { return c.config, c.err }

func (a authority) caller(t *testing.T) caller {
	t.Helper()
	return caller{config: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name, RootCAs: a.roots(),
		Certificates: []tls.Certificate{a.certificate(t, pki.Leaf{URI: id})}}}
}

// replicasOf returns the replicas beside istiod-0.
func replicasOf(w World, c Caller) *Replicas {
	return New(Options{Name: "istiod-0", Service: service, Cluster: "Kubernetes", World: w, Caller: c, Logger: slog.New(slog.DiscardHandler)})
}

// replica is a server that answers questions in one way, or not.
type replica struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	answer func(stream context.Context, question string) (*discoveryv3.DiscoveryResponse, error)
	asked  atomic.Int32
}

func (r *replica) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	r.asked.Add(1)
	q, err := s.Recv()
	if err != nil {
		return err
	}
	response, err := r.answer(s.Context(), q.GetTypeUrl()+" "+strings.Join(q.GetResourceNames(), ","))
	if err != nil {
		return err
	}
	return s.Send(response)
}

// serve runs a replica until the test ends, and returns its endpoint.
func (r *replica) serve(t *testing.T, config *tls.Config) *registry.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var options []grpc.ServerOption
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	s := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return endpoint("127.0.0.1", uint32(l.Addr().(*net.TCPAddr).Port))
}

func (a authority) server(t *testing.T) *tls.Config {
	t.Helper()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.certificate(t, pki.Leaf{Names: []string{name}})},
		ClientCAs: a.roots(), ClientAuth: tls.RequireAndVerifyClientCert}
}

// saying returns a response with pages, of a replica of some name and version.
func saying(name, version string, pages ...string) (*discoveryv3.DiscoveryResponse, error) {
	r := &discoveryv3.DiscoveryResponse{ControlPlane: &corev3.ControlPlane{
		Identifier: fmt.Sprintf(`{"Component": "istiod", "ID": %q, "Info": {"version": %q, "odd": {"new": true}}}`, name, version),
	}}
	for _, p := range pages {
		r.Resources = append(r.Resources, &anypb.Any{TypeUrl: "istio.io/debug", Value: []byte(p)})
	}
	return r, nil
}

// TestAsk: whatever peers do, each has an answer or an error that says why not.
func TestAsk(t *testing.T) {
	a := newAuthority(t)
	cases := map[string]struct {
		answer func(context.Context, string) (*discoveryv3.DiscoveryResponse, error)
		json   string
		err    string // part of it
		name   string // in the answer; empty: the address
	}{
		"well": {func(_ context.Context, q string) (*discoveryv3.DiscoveryResponse, error) {
			return saying("istiod-1", "1", fmt.Sprintf("[%q]", q))
		}, `["istio.io/debug pushes?limit=5"]`, "", "istiod-1"},
		"another version": {func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			return saying("istiod-2", "9", `[{"proxy": "web.a", "unknown": {}}]`)
		}, `[{"proxy": "web.a", "unknown": {}}]`, "", "istiod-2"},
		"no JSON": {func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			return saying("istiod-3", "1", "404 page not found")
		}, "", `its answer is no JSON: "404 page not found"`, "istiod-3"},
		"large": {func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			return saying("istiod-4", "1", `"`+strings.Repeat("x", 4096)+`"`)
		}, "", "larger than max", ""},
		"no page": {
			func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) { return saying("istiod-5", "1") }, "",
			"it answers with 0 pages instead of one", "istiod-5",
		},
		"refuses": {func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			return nil, status.Error(codes.PermissionDenied, "not you")
		}, "", "it refuses this replica: not you", ""},
		"busy": {func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			return nil, status.Error(codes.ResourceExhausted, "earlier pages")
		}, "", "earlier pages", ""},
		"says nothing of itself": {func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			r, err := saying("", "", "[]")
			r.ControlPlane = nil
			return r, err
		}, "[]", "", ""},
		"itself": {func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			return saying("istiod-0", "1", "[]")
		}, "", "", "istiod-0"},
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	endpoints := []*registry.Endpoint{endpoint("127.0.0.1", uint32(dead.Addr().(*net.TCPAddr).Port))}
	must.Succeed(t, dead.Close())
	at := map[string]string{}
	for what, c := range cases {
		e := (&replica{answer: c.answer}).serve(t, a.server(t))
		endpoints = append(endpoints, e)
		at[what] = fmt.Sprintf("127.0.0.1:%d", e.Port)
	}
	slices.SortFunc(endpoints, registry.CompareEndpoints)
	r := replicasOf(newWorld(nil, endpoints...), a.caller(t))
	r.size, r.timeout = 2048, time.Minute
	answers := r.Ask(t.Context(), "pushes?limit=5")
	if len(answers) != len(cases) { // all, and the dead one, without itself
		t.Errorf("%d answers of %d peers", len(answers), len(cases))
	}
	found := func(address string) Answer {
		i := slices.IndexFunc(answers, func(x Answer) bool { return x.Address == address })
		if i < 0 {
			return Answer{}
		}
		return answers[i]
	}
	if x := found(fmt.Sprintf("127.0.0.1:%d", dead.Addr().(*net.TCPAddr).Port)); x.Err == nil ||
		!strings.Contains(x.Err.Error(), "failed to reach it: ") {
		t.Errorf("a dead peer: %v", x.Err)
	}
	for what, c := range cases {
		x := found(at[what])
		switch {
		case what == "itself":
			if x.Name != "" {
				t.Errorf("it has asked itself: %+v", x)
			}
			continue
		case c.err == "" && (x.Err != nil || string(x.JSON) != c.json), c.err != "" &&
			(x.Err == nil || !strings.Contains(x.Err.Error(), c.err) || x.JSON != nil):
			t.Errorf("%s: %q, %v", what, x.JSON, x.Err)
		}
		want := at[what]
		if c.name != "" {
			want = c.name
		}
		if x.Name != want {
			t.Errorf("%s: it is called %q, want %q", what, x.Name, want)
		}
	}
	if x := found(at["another version"]); x.Version != "9" {
		t.Errorf("version %q", x.Version)
	}
}

// TestTwoAddresses: a replica whose Pod is unknown, and that answers at two addresses, has one answer.
func TestTwoAddresses(t *testing.T) {
	a := newAuthority(t)
	twice := &replica{answer: func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
		return saying("istiod-1", "1", "[]")
	}}
	r := replicasOf(newWorld(nil, twice.serve(t, a.server(t)), twice.serve(t, a.server(t))), a.caller(t))
	if answers := r.Ask(t.Context(), "syncz"); len(answers) != 1 || answers[0].Name != "istiod-1" {
		t.Errorf("answers %v", answers)
	}
}

// TestSlow: a peer that does not answer holds up no question for longer than the time of one peer.
func TestSlow(t *testing.T) {
	a := newAuthority(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // which accepts connections and says nothing, as a stopped process does
	must.Succeed(t, err)
	t.Cleanup(func() { _ = l.Close() })
	w := newWorld(nil, endpoint("127.0.0.1", uint32(l.Addr().(*net.TCPAddr).Port)))
	r := replicasOf(w, a.caller(t))
	r.timeout = 50 * time.Millisecond
	answers := r.Ask(t.Context(), "syncz")
	if len(answers) != 1 || answers[0].Err == nil || answers[0].Err.Error() != "it did not answer within 50ms" {
		t.Errorf("%+v", answers)
	}
}

// TestManyPeers: only so many peers are asked at a time, and only so many in all; the others have an error.
func TestManyPeers(t *testing.T) {
	a := newAuthority(t)
	var now, most atomic.Int32
	peer := &replica{answer: func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(time.Millisecond)
		return saying("", "1", "[]")
	}}
	e := peer.serve(t, a.server(t))
	var endpoints []*registry.Endpoint
	for i := range maxPeers + 5 {
		endpoints = append(endpoints, endpoint(fmt.Sprintf("127.0.%d.1", i), e.Port))
	}
	slices.SortFunc(endpoints, registry.CompareEndpoints)
	r := replicasOf(newWorld(nil, endpoints...), a.caller(t))
	r.timeout = time.Minute
	answers := r.Ask(t.Context(), "syncz")
	left := 0
	for _, x := range answers {
		if x.Err != nil && x.Err.Error() == "at most 100 replicas are asked" {
			left++
		}
	}
	if len(answers) != maxPeers+5 || left != 5 {
		t.Errorf("%d answers, and %d are left out", len(answers), left)
	}
	if n := most.Load(); n > maxAtOnce {
		t.Errorf("%d are asked at a time", n)
	}
}

// TestImpostors: a peer that does not prove to be a control plane is not asked, and learns nothing of this replica.
func TestImpostors(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	var shown atomic.Int32
	watched := func(c tls.Certificate) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{
			c,
		}, ClientAuth: tls.RequireAnyClientCert, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
			shown.Add(1)
			return nil
		}}
	}
	for what, config := range map[string]*tls.Config{
		"without TLS":               nil,
		"a workload":                watched(a.certificate(t, pki.Leaf{URI: "spiffe://cluster.local/ns/istio-system/sa/intruder"})),
		"another name":              watched(a.certificate(t, pki.Leaf{Names: []string{"web.istio-system.svc"}})),
		"the name, by another root": watched(other.certificate(t, pki.Leaf{Names: []string{name}})),
	} {
		peer := &replica{answer: func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
			return saying("istiod-1", "1", "[]")
		}}
		w := newWorld(map[string]string{"intruder": "127.0.0.1"}, peer.serve(t, config))
		r := replicasOf(w, a.caller(t))
		answers := r.Ask(t.Context(), "syncz")
		if len(answers) != 1 || answers[0].Err == nil || answers[0].Name != "intruder" ||
			!strings.HasPrefix(answers[0].Err.Error(), "failed to reach it: ") {
			t.Errorf("%s: %+v", what, answers)
		}
		if peer.asked.Load() > 0 || shown.Load() > 0 {
			t.Errorf("%s: it was asked %d times, and was shown %d certificates", what, peer.asked.Load(), shown.Load())
		}
	}
}

// TestNoIdentity: without a certificate of this replica no peer is asked, and each has the reason.
func TestNoIdentity(t *testing.T) {
	a := newAuthority(t)
	peer := &replica{answer: func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
		return saying("istiod-1", "1", "[]")
	}}
	w := newWorld(nil, peer.serve(t, a.server(t)))
	r := replicasOf(w, caller{err: errors.New("it has none")})
	answers := r.Ask(t.Context(), "syncz")
	if len(answers) != 1 || answers[0].Err == nil ||
		answers[0].Err.Error() != "this replica cannot prove to others who it is: it has none" || peer.asked.Load() > 0 {
		t.Errorf("%+v", answers)
	}
}

// TestMembers: replicas that are not ready are asked too, unless no process listens there.
func TestMembers(t *testing.T) {
	a := newAuthority(t)
	answering := &replica{answer: func(context.Context, string) (*discoveryv3.DiscoveryResponse, error) {
		return saying("istiod-1", "1", "[]")
	}}
	unready := answering.serve(t, a.server(t))
	unready.Health = registry.Unhealthy
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	must.Succeed(t, closed.Close())
	at := func(l net.Listener, health registry.Health) *registry.Endpoint {
		return endpoint("127.0.0.1", uint32(l.Addr().(*net.TCPAddr).Port), func(e *registry.Endpoint) { e.Health = health })
	}
	endpoints := []*registry.Endpoint{unready, at(silent, registry.Unhealthy), at(closed, registry.Unhealthy)}
	slices.SortFunc(endpoints, registry.CompareEndpoints)
	r := replicasOf(newWorld(nil, endpoints...), a.caller(t))
	r.timeout = 500 * time.Millisecond
	if len(r.Members()) != 3 || len(r.Peers()) != 0 {
		t.Errorf("members %v, peers %v", r.Members(), r.Peers())
	}
	errs, answers := 0, r.AskMembers(t.Context(), "inforce")
	for _, x := range answers {
		if x.Err != nil {
			errs++
		}
	}
	if len(answers) != 2 || errs != 1 {
		t.Errorf("%+v", answers)
	}
	ready := replicasOf(newWorld(nil, at(closed, registry.Healthy)), a.caller(t))
	if answers := ready.AskMembers(t.Context(), "inforce"); len(answers) != 1 || answers[0].Err == nil {
		t.Errorf("a ready one that refuses connections: %+v", answers)
	}
	w := newWorld(nil, endpoints...)
	if !r.Affected(w.s) {
		t.Error("the first snapshot has no members")
	}
	later := *w.s
	later.Revision = 2
	later.Diff.Services = nil
	for host, want := range map[string]bool{service: true, "web.a.svc.cluster.local": false} {
		later.Diff.Endpoints = []registry.ServiceKey{{Namespace: "istio-system", Host: host}}
		if r.Affected(&later) != want {
			t.Errorf("endpoints of %s", host)
		}
	}
}
