package mcp_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	securityv1 "istio.io/api/security/v1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config/mcp"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	virtualServices = "networking.istio.io/v1/VirtualService"
	serviceEntries  = "networking.istio.io/v1/ServiceEntry"
	policies        = "security.istio.io/v1/AuthorizationPolicy"
)

// deadline bounds every wait of these tests.
const deadline = 2 * time.Minute

// world is what scripted servers have: it stays when one of them goes. A type that has no list is not answered for.
type world struct {
	mu       sync.Mutex
	lists    map[string][]*anypb.Any
	versions map[string]int
	changed  chan struct{} // closed at each change
	requests []*discoveryv3.DiscoveryRequest
	headers  []metadata.MD // of each stream
}

func newWorld() *world {
	w := &world{lists: map[string][]*anypb.Any{}, versions: map[string]int{}, changed: make(chan struct{})}
	for _, url := range []string{virtualServices, serviceEntries, policies} {
		w.set(url)
	}
	return w
}

func (w *world) set(url string, list ...*anypb.Any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists[url] = list
	w.versions[url]++
	close(w.changed)
	w.changed = make(chan struct{})
}

// forget has servers not answer for a type.
func (w *world) forget(url string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lists, url)
}

func (w *world) heard() []*discoveryv3.DiscoveryRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// scripted is an ADS server of a world.
type scripted struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	*world
}

func (s scripted) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	s.mu.Lock()
	s.headers = append(s.headers, md)
	s.mu.Unlock()
	asked, sent := make(chan string), map[string]int{}
	go func() {
		defer close(asked)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.requests = append(s.requests, r)
			s.mu.Unlock()
			if r.ResponseNonce == "" {
				select {
				case asked <- r.TypeUrl:
				case <-stream.Context().Done():
					return
				}
			}
		}
	}()
	for {
		s.mu.Lock()
		changed := s.changed
		var due []*discoveryv3.DiscoveryResponse
		for url, version := range sent {
			list, ok := s.lists[url]
			if now := s.versions[url]; ok && now != version {
				sent[url] = now
				due = append(
					due, &discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: fmt.Sprint(now), Nonce: fmt.Sprint(url, now), Resources: list},
				)
			}
		}
		s.mu.Unlock()
		for _, r := range due {
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		select {
		case url, ok := <-asked:
			if !ok {
				return nil
			}
			sent[url] = 0
		case <-changed:
		}
	}
}

// serve runs a server of the world at an address of this host and returns the one that it has and what stops it.
func serve(t *testing.T, w *world, address string, options ...grpc.ServerOption) (string, func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must.Succeed(t, err)
	s := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, scripted{world: w})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	stop := func() { s.Stop(); <-ended }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// freeAddress returns an address on which a server can listen again after it has stopped.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := freeport.Pick(t.Context(), "127.0.0.1")
	must.Succeed(t, err)
	return net.JoinHostPort("127.0.0.1", port)
}

// reader is a Source and what it has handed on.
type reader struct {
	*mcp.Source
	mu      sync.Mutex
	calls   [][]kinds.Change
	objects map[kinds.Key]*kinds.Object
}

func read(t *testing.T, o mcp.Options) *reader {
	t.Helper()
	r := &reader{objects: map[kinds.Key]*kinds.Object{}}
	if o.Kinds == nil {
		o.Kinds = []*kinds.Kind{kinds.VirtualService, kinds.ServiceEntry, kinds.AuthorizationPolicy}
	}
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Handler = func(changes []kinds.Change) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, changes)
		for _, c := range changes {
			if r.objects[c.Key] = c.Object; c.Object == nil {
				delete(r.objects, c.Key)
			}
		}
	}
	s, err := mcp.New(o)
	must.Succeed(t, err)
	r.Source = s
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	t.Cleanup(func() { // the test's context has ended
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func (r *reader) object(k *kinds.Kind, ns, name string) *kinds.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[kinds.Key{Kind: k, Namespace: ns, Name: name}]
}

func (r *reader) keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []string
	for k := range maps.Keys(r.objects) {
		keys = append(keys, k.String())
	}
	slices.Sort(keys)
	return keys
}

func (r *reader) history() [][]kinds.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// finds reports whether a finding of that code is about the object, or of the source itself where object is empty.
func (r *reader) finds(code, object string) bool {
	return slices.ContainsFunc(r.Findings(), func(d diag.Diagnostic) bool { return d.Code == code && d.Object == object })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", deadline, what)
		}
	}
}

var created = time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)

func resource(t *testing.T, name string, spec proto.Message) *anypb.Any {
	t.Helper()
	return pack(t, &mcpv1alpha1.Resource{
		Metadata: &mcpv1alpha1.Metadata{
			Name: name, CreateTime: timestamppb.New(created), Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"note": "x"},
		},
		Body: pack(t, spec),
	})
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	must.Succeed(t, err)
	return a
}

func virtual(host string) *networkingv1.VirtualService {
	return &networkingv1.VirtualService{
		Hosts: []string{host},
		Http:  []*networkingv1.HTTPRoute{{Route: []*networkingv1.HTTPRouteDestination{{Destination: &networkingv1.Destination{Host: host}}}}},
	}
}

func entry(host string) *networkingv1.ServiceEntry {
	return &networkingv1.ServiceEntry{
		Hosts: []string{host}, Ports: []*networkingv1.ServicePort{{Number: 443, Name: "tls", Protocol: "TLS"}},
		Resolution: networkingv1.ServiceEntry_DNS,
	}
}

func policy(app string, wrong bool) *securityv1.AuthorizationPolicy {
	p := &securityv1.AuthorizationPolicy{
		Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": app}},
		Rules:    []*securityv1.Rule{{To: []*securityv1.Rule_To{{Operation: &securityv1.Operation{Methods: []string{"GET"}}}}}},
	}
	if wrong {
		p.Rules[0].From = []*securityv1.Rule_From{{Source: &securityv1.Source{IpBlocks: []string{"no address"}}}}
	}
	return p
}
