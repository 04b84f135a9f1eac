package bootstrap

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

const machines = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vm, namespace: a}
spec:
  metadata: {labels: {app: vm}}
  template: {serviceAccount: vm, ports: {http: 8080}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: vm, namespace: a}
spec:
  hosts: [vm.example.com]
  ports: [{name: http, number: 80, protocol: HTTP}]
  location: MESH_INTERNAL
  resolution: STATIC
  workloadSelector: {labels: {app: vm}}
`

// stream is a machine's connection: what it sends, and that it ends.
type stream struct {
	t    *testing.T
	ads  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	stop context.CancelFunc
	got  chan *discoveryv3.DiscoveryResponse
}

// machine opens a stream of a workload that registers, or of one that only looks.
func machine(t *testing.T, address, ip, group string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ads, err := dial(t, address).StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	meta := map[string]any{"NAMESPACE": "a", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip}
	if group != "" {
		meta["AUTO_REGISTER_GROUP"] = group
		meta["PROXY_CONFIG"] = map[string]any{"readinessProbe": map[string]any{"httpGet": map[string]any{"port": 8080}}}
	}
	fields, err := structpb.NewStruct(meta)
	must.Succeed(t, err)
	s := &stream{t, ads, cancel, make(chan *discoveryv3.DiscoveryResponse, 100)}
	s.send(&discoveryv3.DiscoveryRequest{
		Node: &corev3.Node{Id: "sidecar~" + ip + "~m.a~a.svc.cluster.local", Metadata: fields}, TypeUrl: envoy.EndpointType,
		ResourceNames: []string{"outbound|80||vm.example.com"},
	})
	go func() {
		defer close(s.got)
		for {
			r, err := ads.Recv()
			if err != nil {
				return
			}
			s.got <- r
		}
	}()
	return s
}

func (s *stream) send(r *discoveryv3.DiscoveryRequest) {
	s.t.Helper()
	must.Succeed(s.t, s.ads.Send(r))
}

// health reports as the agent on the machine does.
func (s *stream) health(message string) {
	s.t.Helper()
	r := &discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/istio.v1.HealthInformation"}
	if message != "" {
		r.ErrorDetail = &status.Status{Code: 500, Message: message}
	}
	s.send(r)
}

// endpoints waits for a response whose one assignment has as many endpoints.
func (s *stream) endpoints(n int) {
	s.t.Helper()
	for end := time.After(deadline); ; {
		select {
		case r := <-s.got:
			a := &endpointv3.ClusterLoadAssignment{}
			if r == nil || len(r.GetResources()) != 1 || r.GetResources()[0].UnmarshalTo(a) != nil {
				s.t.Fatalf("got %v", r)
			}
			s.send(&discoveryv3.DiscoveryRequest{
				TypeUrl: r.GetTypeUrl(), VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce(), ResourceNames: []string{a.GetClusterName()},
			})
			got := 0
			for _, l := range a.GetEndpoints() {
				got += len(l.GetLbEndpoints())
			}
			if got == n {
				return
			}
		case <-end:
			s.t.Fatalf("never %d endpoints", n)
		}
	}
}

// A machine that connects becomes an endpoint, is none while it is unwell, and is gone a while after it has left.
func TestRegistration(t *testing.T) {
	o := testOptions(t)
	o.RegistrationGrace = 200 * time.Millisecond
	write(t, filepath.Join(o.ConfigDir, "vm.yaml"), machines)
	s := started(t, o)
	address := s.Addresses().GRPC
	looker := machine(t, address, "10.0.0.1", "")
	looker.endpoints(0)
	a := machine(t, address, "10.0.0.2", "vm")
	a.health("")
	a.endpoints(1) // of itself
	looker.endpoints(1)
	b := machine(t, address, "10.0.0.3", "vm")
	b.health("")
	looker.endpoints(2)
	b.health("the disk is full")
	looker.endpoints(1)
	b.health("")
	looker.endpoints(2)
	b.stop()
	looker.endpoints(1)
	a.stop()
	looker.endpoints(0)

	refused := machine(t, address, "10.0.0.4", "nobody")
	select {
	case r := <-refused.got:
		if r != nil {
			t.Errorf("answered %v", r)
		}
	case <-time.After(deadline):
		t.Error("a workload of no group is let in")
	}
}

func TestRegistrationOff(t *testing.T) {
	o := testOptions(t)
	o.NoRegistration = true
	write(t, filepath.Join(o.ConfigDir, "vm.yaml"), machines)
	s := started(t, o)
	machine(t, s.Addresses().GRPC, "10.0.0.2", "vm").endpoints(0)
}

// TestStrangersRegisterNothing: a peer of another host that proves no identity registers by the flag alone, also where
// there is no cluster.
func TestStrangersRegisterNothing(t *testing.T) {
	o := testOptions(t)
	o.Certificates.StateDir = filepath.Join(t.TempDir(), "state")
	for _, anyone := range []bool{false, true} {
		o.RegisterAnyone = anyone
		s, err := New(o)
		must.Succeed(t, err)
		for address, want := range map[string]bool{"10.0.0.1:1": anyone, "127.0.0.1:1": true} {
			if err := s.authorizer.Register(identity.Peer{Address: netip.MustParseAddrPort(address)}, "a", "vm"); (err == nil) != want {
				t.Errorf("%s with RegisterAnyone %v: %v", address, anyone, err)
			}
		}
	}
}

// Who does not run any more is known of pods where this is one, and of others where there is but one.
func TestInstancesThatEnded(t *testing.T) {
	o := testOptions(t)
	pods := func(names ...string) *Server {
		s, err := New(o)
		must.Succeed(t, err)
		for _, name := range names {
			k := kinds.Key{Kind: kinds.Pod, Namespace: o.Namespace, Name: name}
			s.world.Commit([]kinds.Change{{Key: k, Object: &kinds.Object{Key: k, Spec: &corev1.Pod{}}}}, time.Time{})
		}
		return s
	}
	o.PodName, o.NoElection = "istiod-0", true
	s := pods("istiod-0", "istiod-1")
	for instance, want := range map[string]bool{"istiod-1": false, "istiod-2": true, "laptop-7_": true} {
		if got := (instances{s, nil}).Gone(t.Context(), instance); got != want {
			t.Errorf("%s is gone: %v", instance, got)
		}
	}
	if (instances{pods("istiod-1"), nil}).Gone(t.Context(), "istiod-2") {
		t.Error("judged by a server whose own pod is not there")
	}
	o.NoServices = true
	if (instances{pods("istiod-0"), nil}).Gone(t.Context(), "istiod-2") {
		t.Error("judged by a server that reads no pods")
	}
}
