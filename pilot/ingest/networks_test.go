package ingest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// book is a DNS of what is known at once.
type book struct {
	known   map[string][]string
	wanted  []string
	waits   int
	failing map[string]facts.Failure
}

func (b *book) Want(needs []facts.Need) {
	b.wanted = nil
	for _, n := range needs {
		b.wanted = append(b.wanted, n.Name)
	}
}

func (b *book) Wait(time.Duration) (list []kinds.Change) {
	b.waits++
	for host, addresses := range b.known {
		list = append(list, facts.Change(kinds.HostAddresses, host, &addresses))
	}
	return list
}

func (b *book) Failing() map[string]facts.Failure { return maps.Clone(b.failing) }

func gatewayService(name string, labels map[string]string, at ...corev1.LoadBalancerIngress) *kinds.Object {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "istio-system", Labels: labels},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "tls", Port: 15443}}},
		Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: at}},
	}
	return &kinds.Object{Key: kinds.Key{Kind: kinds.Service, Namespace: "istio-system", Name: name}, Labels: labels, Spec: svc}
}

func podAt(ip string) *kinds.Object {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "a", Labels: map[string]string{"app": "web"}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
	return &kinds.Object{Key: kinds.Key{Kind: kinds.Pod, Namespace: "a", Name: "web-0"}, Labels: p.Labels, Spec: p}
}

// enters wants exactly these ways into networks.
func (s testWorld) enters(want ...string) {
	s.t.Helper()
	var got []string
	for _, g := range s.Snapshot().Networks.Gateways() {
		got = append(got, fmt.Sprintf("%s at %s:%d of %q", g.Network, g.Address, g.Port, g.Cluster))
	}
	if d := cmp.Diff(want, got); d != "" {
		s.t.Errorf("gateways (-want +got):\n%s", d)
	}
}

func (s testWorld) networkOf(want string) {
	s.t.Helper()
	list := s.Snapshot().Endpoints(registry.ServiceKey{Namespace: "a", Host: "web.a.svc.cluster.local"}).List
	if len(list) != 1 || list[0].Network != want {
		s.t.Errorf("endpoints %v, want one in network %q", list, want)
	}
}

const networks = `
networks:
  home:
    endpoints: [{fromRegistry: c1}]
    gateways: [{registryServiceName: named.istio-system.svc.cluster.local, port: 8443}]
  away:
    endpoints: [{fromCidr: 10.2.0.0/16}]
    gateways: [{address: 192.0.2.9, port: 443}]
`

// Gateways, and the networks of endpoints, follow the mesh's list of networks, labels of Services and the label of the
// root namespace; and only what differs is handed on.
func TestNetworksFollow(t *testing.T) {
	s := newTestWorld(t, Options{ClusterID: "c1"})
	web := serviceIn("a")
	web.Spec.(*corev1.Service).Spec.Selector = map[string]string{"app": "web"}
	ip := corev1.LoadBalancerIngress{IP: "192.0.2.1"}
	s.apply(
		web, podAt("10.1.0.1"), gatewayService("named", nil, ip),
		gatewayService("labelled", map[string]string{names.LabelNetwork: "away"}, corev1.LoadBalancerIngress{IP: "192.0.2.2"}),
	)
	s.enters(`away at 192.0.2.2:15443 of "c1"`)
	s.networkOf("")

	s.apply(configMap("istio", map[string]string{"meshNetworks": networks}))
	s.enters(`home at 192.0.2.1:8443 of "c1"`, `away at 192.0.2.2:15443 of "c1"`, `away at 192.0.2.9:443 of ""`)
	s.networkOf("home")
	if f := s.Findings(); len(f) > 0 {
		t.Errorf("findings %v", f)
	}
	s.apply(podAt("10.2.0.1"))
	s.networkOf("away")
	if s.Snapshot().Diff.Global {
		t.Error("an endpoint of a known network is told as a change of the networks")
	}
	s.apply(namespaceWith("istio-system", map[string]string{names.LabelNetwork: "labelled"}))
	s.networkOf("labelled")
	s.apply(gatewayService("labelled", nil))
	s.enters(`home at 192.0.2.1:8443 of "c1"`, `away at 192.0.2.9:443 of ""`)
	if d := s.Snapshot().Diff; !d.Global || d.Triggers["networks"] != 1 {
		t.Errorf("the gateway's end is told as %+v", d.Triggers)
	}
	s.apply(configMap("istio", map[string]string{"meshNetworks": "networks: {home: {gateways: [{}]}}"}))
	s.enters(`home at 192.0.2.1:8443 of "c1"`, `away at 192.0.2.9:443 of ""`) // what is wrong keeps the last good one
	s.apply(configMap("istio", map[string]string{"mesh": ""}))
	s.enters()
	if s.Snapshot().Networks != nil {
		t.Error("a mesh of one network has a table of them")
	}
}

// A gateway that is known by name is there under its addresses: from the first snapshot on where they are known soon,
// and as they change.
func TestNamesOfGateways(t *testing.T) {
	b := &book{known: map[string][]string{"gw.example.com": {"192.0.2.1", "192.0.2.2"}}}
	s := newTestWorld(t, Options{ClusterID: "c1"})
	s.hosts = facts.NewTable[[]string](kinds.HostAddresses, b)
	label := map[string]string{names.LabelNetwork: "away"}
	s.apply(gatewayService(
		"gw", label, corev1.LoadBalancerIngress{Hostname: "gw.example.com"}, corev1.LoadBalancerIngress{Hostname: "unknown.example.com"},
	))
	s.enters(`away at 192.0.2.1:15443 of "c1"`, `away at 192.0.2.2:15443 of "c1"`)
	if want := []string{"gw.example.com", "unknown.example.com"}; !slices.Equal(b.wanted, want) {
		t.Errorf("asked for %v, want %v", b.wanted, want)
	}
	answer := func(host string, addresses ...string) {
		key := kinds.Key{Kind: kinds.HostAddresses, Name: host}
		s.Commit([]kinds.Change{{Key: key, Object: &kinds.Object{Key: key, Spec: &addresses}}}, time.Time{})
	}
	answer("unknown.example.com", "192.0.2.3")
	answer("gw.example.com", "192.0.2.2")
	s.enters(`away at 192.0.2.2:15443 of "c1"`, `away at 192.0.2.3:15443 of "c1"`)
	if n := len(s.Objects()); n != 1 {
		t.Errorf("%d objects: answers are none", n)
	}
	s.apply(gatewayService("gw", label, corev1.LoadBalancerIngress{IP: "192.0.2.4"}))
	s.enters(`away at 192.0.2.4:15443 of "c1"`)
	if len(b.wanted) > 0 {
		t.Errorf("still asks for %v", b.wanted)
	}
}

// Only the first snapshot waits for names: a gateway that comes later is there once its answer is.
func TestNamesThatComeLater(t *testing.T) {
	b := &book{known: map[string][]string{"gw.example.com": {"192.0.2.1"}}}
	s := newTestWorld(t, Options{ClusterID: "c1"})
	s.hosts = facts.NewTable[[]string](kinds.HostAddresses, b)
	s.apply(serviceIn("a"))
	s.apply(gatewayService("gw", map[string]string{names.LabelNetwork: "away"}, corev1.LoadBalancerIngress{Hostname: "gw.example.com"}))
	s.enters()
	if want := []string{"gw.example.com"}; b.waits != 0 || !slices.Equal(b.wanted, want) {
		t.Errorf("waited %d times, asked for %v", b.waits, b.wanted)
	}
	key := kinds.Key{Kind: kinds.HostAddresses, Name: "gw.example.com"}
	s.Commit([]kinds.Change{{Key: key, Object: &kinds.Object{Key: key, Spec: &[]string{"192.0.2.1"}}}}, time.Time{})
	s.enters(`away at 192.0.2.1:15443 of "c1"`)
}

// Gateways by which nobody can come in are found, with what is to be done, until that is done.
func TestGatewayFindings(t *testing.T) {
	b := &book{}
	s := newTestWorld(t, Options{ClusterID: "c1"})
	s.hosts = facts.NewTable[[]string](kinds.HostAddresses, b)
	found := func(want ...string) {
		t.Helper()
		var got []string
		for _, d := range s.Findings() {
			if d.Severity != diag.Warning || d.Message == "" || d.Fix == "" {
				t.Errorf("%+v", d)
			}
			got = append(got, d.Code+" "+d.Object+" "+d.Field)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("findings (-want +got):\n%s", d)
		}
	}
	away := map[string]string{names.LabelNetwork: "away"}
	ip, name := corev1.LoadBalancerIngress{IP: "192.0.2.1"}, corev1.LoadBalancerIngress{Hostname: "gw.example.com"}
	const gw = "Service istio-system/gw "
	s.apply(gatewayService("gw", nil))
	found()
	s.apply(gatewayService("gw", away), gatewayService("other", away, ip))
	found("GatewayPending " + gw + "status.loadBalancer")
	s.apply(gatewayService("gw", away, corev1.LoadBalancerIngress{IP: "192.0.2.2"}))
	found()
	s.apply(gatewayService(
		"gw", map[string]string{names.LabelNetwork: "away", "networking.istio.io/gatewayPort": "443"},
		corev1.LoadBalancerIngress{IP: "192.0.2.2"},
	))
	found("GatewayWithoutPort " + gw + "spec.ports")

	s.apply(gatewayService("gw", away, name))
	found() // nobody knows yet
	b.failing = map[string]facts.Failure{"gw.example.com": {Why: "no such host"}, "nobody.example.com": {Why: "no such host"}}
	found("GatewayUnresolved " + gw + "status.loadBalancer")
	b.failing = nil
	found()

	atNodes := gatewayService("gw", away)
	atNodes.Annotations = map[string]string{kube.AnnotationNodes: `{"edge": "yes"}`}
	svc := atNodes.Spec.(*corev1.Service)
	svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30443
	s.Commit([]kinds.Change{{Key: gatewayService("other", nil).Key}, {Key: atNodes.Key, Object: atNodes}}, time.Time{})
	found("GatewayPending " + gw + "metadata.annotations[" + kube.AnnotationNodes + "]")
	node := &kinds.Object{Key: kinds.Key{Kind: kinds.Node, Name: "n"}, Labels: map[string]string{"edge": "yes"}, Spec: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"edge": "yes"}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.3"}}},
	}}
	s.apply(node)
	found()

	s.apply(configMap("istio", map[string]string{"meshNetworks": networks}))
	found("UnknownGateway MeshNetworks networks.home.gateways[0].registryServiceName")
	s.apply(gatewayService("named", nil))
	found("GatewayPending Service istio-system/named status.loadBalancer")
	s.apply(gatewayService("named", nil, ip))
	found()
	elsewhere := gatewayService("named", nil, ip)
	elsewhere.Cluster = "c2" // which is not in the network
	s.Commit([]kinds.Change{{Key: gatewayService("named", nil).Key}, {Key: elsewhere.Key, Object: elsewhere}}, time.Time{})
	found("UnknownGateway MeshNetworks networks.home.gateways[0].registryServiceName")
	s.apply(configMap("istio", map[string]string{"meshNetworks": "networks: {far: {gateways: [{address: gw.example.com, port: 443}]}}"}))
	b.failing = map[string]facts.Failure{"gw.example.com": {Why: "no such host"}}
	found("GatewayUnresolved MeshNetworks networks.far.gateways[0].address")
	s.apply(configMap("istio", map[string]string{"mesh": ""}))
	found()
}

// TestHostNamesAreLeftOut checks that no host name of a gateway is resolved if that is disabled, and that a finding
// names each gateway that is left out.
func TestHostNamesAreLeftOut(t *testing.T) {
	b := &book{known: map[string][]string{"gw.example.com": {"192.0.2.9"}}}
	s := newTestWorld(t, Options{ClusterID: "c1", NoHostNames: true})
	s.hosts = facts.NewTable[[]string](kinds.HostAddresses, b)
	away := map[string]string{names.LabelNetwork: "away"}
	s.apply(gatewayService("gw", away, corev1.LoadBalancerIngress{Hostname: "gw.example.com"}),
		gatewayService("other", away, corev1.LoadBalancerIngress{IP: "192.0.2.2"}))
	all := s.gateways()
	if len(all) != 1 || all[0].Address != "192.0.2.2" || len(b.wanted) > 0 {
		t.Errorf("gateways %v, resolved %v", all, b.wanted)
	}
	found := s.Findings()
	if len(found) != 1 || found[0].Code != "GatewayUnresolved" || found[0].Object != "Service istio-system/gw" {
		t.Errorf("findings %v", found)
	}
}
