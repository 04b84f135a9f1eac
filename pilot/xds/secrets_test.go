package xds

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// secretNames are names by which clients ask for secrets, with the namespace that each is in: "own" is the client's,
// and what is in none is nobody's.
var secretNames = map[string]string{
	"kubernetes://s0":           "own",
	"kubernetes://a/s0":         "a",
	"kubernetes://b/s0":         "b",
	"kubernetes-gateway://a/s1": "a",
	"kubernetes-gateway://b/s1": "b",
	"kubernetes://a/../b/s0":    "",
	"kubernetes://b/s0/a":       "",
	"default":                   "",
	"ROOTCA":                    "",
	"*":                         "",
}

// secretClient is a proxy of a namespace that asks for secrets. have is what it was sent and not told to remove.
type secretClient struct {
	name      string
	namespace string // of the identity that it proves; empty: it proves none
	delta     bool
	send      func(typeURL string, add, remove []string) error
	receive   func() (*answer, error)
	close     context.CancelFunc
	asked     map[string]bool
	have      map[string]string
}

// answer is what the two protocols' responses have in common.
type answer struct {
	typeURL   string
	resources []*anypb.Any
	removed   []string
}

// allowed reports whether the client may receive a secret.
func (c *secretClient) allowed(name string) bool {
	in := secretNames[name]
	return c.namespace != "" && (in == "own" || in == c.namespace)
}

func newSecretClient(
	t *rapid.T, service discoveryv3.AggregatedDiscoveryServiceClient, namespace, identity string, delta bool,
) *secretClient {
	c := &secretClient{
		name: fmt.Sprintf("of %s as %q, delta %t", namespace, identity, delta), namespace: identity, delta: delta, asked: map[string]bool{},
		have: map[string]string{},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	c.close = cancel
	node := &corev3.Node{Id: "sidecar~10.0.0.1~web." + namespace + "~" + namespace + ".svc.cluster.local", Metadata: &structpb.Struct{}}
	if delta {
		stream, err := service.DeltaAggregatedResources(ctx)
		must.Succeed(t, err)
		c.send = func(typeURL string, add, remove []string) error {
			return stream.Send(
				&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove},
			)
		}
		c.receive = func() (*answer, error) {
			m, err := stream.Recv()
			a := &answer{typeURL: m.GetTypeUrl(), removed: m.GetRemovedResources()}
			for _, x := range m.GetResources() {
				a.resources = append(a.resources, x.Resource)
			}
			return a, err
		}
		return c
	}
	stream, err := service.StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	c.send = func(typeURL string, add, _ []string) error {
		if typeURL == envoy.SecretType {
			add = slices.Collect(maps.Keys(c.asked))
		}
		return stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: typeURL, ResourceNames: add})
	}
	c.receive = func() (*answer, error) {
		m, err := stream.Recv()
		return &answer{typeURL: m.GetTypeUrl(), resources: m.GetResources()}, err
	}
	return c
}

// until takes responses until one has a resource of a type and a text in it. Each secret on the way is one that the
// client may receive. Once the server has taken all requests, it is one that the client asked for, too.
func (c *secretClient) until(t *rapid.T, typeURL, text string, taken bool) {
	for {
		m, err := c.receive()
		if err != nil {
			t.Fatalf("%s waits for %s: %v", c.name, text, err)
		}
		for _, x := range m.resources {
			if m.typeURL == typeURL && strings.Contains(string(x.Value), text) {
				return
			}
			if m.typeURL != envoy.SecretType {
				continue
			}
			s := &tlsv3.Secret{}
			must.Succeed(t, proto.Unmarshal(x.Value, s))
			if !c.allowed(s.Name) || taken && !c.asked[s.Name] {
				t.Fatalf("%s is sent %s", c.name, s.Name)
			}
			c.have[s.Name] = s.GetTlsCertificate().GetPrivateKey().GetInlineString()
		}
		for _, name := range m.removed {
			delete(c.have, name)
		}
	}
}

// TestSecretsGoToTheirNamespace: after any history of secrets and subscriptions, each peer has the secrets of the
// namespace that it proved to be in, and was never sent another one. A peer that proves none has no secret at all.
func TestSecretsGoToTheirNamespace(t *testing.T) {
	id := func(namespace string) []string { return []string{"spiffe://cluster.local/ns/" + namespace + "/sa/web"} }
	r := newSecureRig(t, xdstest.NewPeers(t, nil, id("a"), id("b")))
	type service = discoveryv3.AggregatedDiscoveryServiceClient
	services := []service{r.dialAs(0), r.dialAs(1), r.dialAs(2)}
	publish := func(edits ...string) { r.publish(true, edits...) }
	publish()
	barriers, sent := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		world := map[string]string{}
		var clients []*secretClient
		for _, delta := range []bool{false, true} {
			clients = append(clients,
				newSecretClient(t, services[0], "a", "", delta), newSecretClient(
					t, services[1], "a", "a", delta,
				), newSecretClient(t, services[2], "b", "b", delta))
		}
		names := slices.Sorted(maps.Keys(secretNames))
		for _, c := range clients {
			defer c.close()
			must.Succeed(t, c.send(envoy.NameTableType, nil, nil))
		}
		put := func(name string) {
			world[name] = fmt.Sprintf("v%d", rapid.IntRange(0, 1000).Draw(t, "version"))
			publish("sds " + name + "=" + world[name])
		}
		toggle := func(name string) {
			for _, c := range clients {
				var err error
				if c.asked[name] {
					delete(c.asked, name)
					delete(c.have, name)
					err = c.send(envoy.SecretType, nil, []string{name})
				} else {
					c.asked[name] = true
					err = c.send(envoy.SecretType, []string{name}, nil)
				}
				must.Succeed(t, err)
			}
		}
		if rapid.Bool().Draw(t, "begins with all secrets") {
			for _, name := range names {
				put(name)
				toggle(name)
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch name := rapid.SampledFrom(names).Draw(t, "name"); rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				delete(world, name)
				publish("sds " + name)
			case 1:
				put(name)
			default:
				toggle(name)
			}
		}
		// Requests are taken in their order, so those for secrets were when the assignment comes; and secrets come
		// before the name table of a snapshot.
		barriers++
		barrier := fmt.Sprintf("barrier%d.", barriers)
		for _, c := range clients {
			must.Succeed(t, c.send(envoy.EndpointType, []string{barrier}, nil))
			c.until(t, envoy.EndpointType, barrier, false)
		}
		edits := []string{"nds " + barrier + "=1"}
		for name := range world {
			world[name] = barrier
			edits = append(edits, "sds "+name+"="+barrier)
		}
		publish(edits...)
		for _, c := range clients {
			c.until(t, envoy.NameTableType, barrier, true)
			for _, name := range names {
				want, has := world[name], c.have[name]
				if !c.asked[name] || !c.allowed(name) {
					want = ""
				}
				if want != "" {
					want = xdstest.Canary + want
					sent++
				}
				if has != want && c.asked[name] && (want != "" || c.delta) { // others may keep what is not there any more
					t.Fatalf("%s has %q as %s, want %q", c.name, has, name, want)
				}
			}
		}
		var gone []string
		for name := range world {
			gone = append(gone, "sds "+name)
		}
		publish(append(gone, "nds "+barrier)...)
	})
	if sent == 0 {
		t.Error("nobody was sent a secret")
	}
	if n := sample(t, r.reg, "pilot_xds_denied_secrets"); n < 1 {
		t.Errorf("%v are counted", n)
	}
	for _, want := range []string{"may not receive the secrets of namespace b", "must connect to the secure port", "is no name of a secret"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	if strings.Contains(r.log.String(), xdstest.Canary) {
		t.Error("the log shows what is in a secret")
	}
}

// TestPlaintextPeersGetNoSecret: they are answered as for a type that nobody serves, and get all else.
func TestPlaintextPeersGetNoSecret(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "sds kubernetes://s0=1", "sds kubernetes://a/s0=1")
	c := r.delta("web.a")
	c.expect("cds a=1")
	c.subscribe("sds", "kubernetes://s0", "kubernetes://a/s0")
	c.subscribe("eds", "x")
	c.expect("eds x=none")
	r.publish(true, "cds a=2", "sds kubernetes://s0=2")
	c.expect("cds a=2")
	if clients := r.server.Clients(); len(clients) != 1 || len(clients[0].Types) != 2 {
		t.Errorf("%+v", clients)
	}
	if n := sample(t, r.reg, "pilot_xds_denied_secrets"); n != 2 {
		t.Errorf("%v are counted", n)
	}
	if n := r.fake.Count("subscribed sds"); n != 0 {
		t.Errorf("secrets were made %d times", n)
	}
}

// TestManyDeniedSecretsCostOneLine: a request of ten thousand names that the peer may not have costs one line of the
// log, of bounded length, and is kept nowhere.
func TestManyDeniedSecretsCostOneLine(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	c := r.delta("web.a")
	c.expect("cds a=1")
	var names []string
	for i := range 10000 {
		names = append(names, fmt.Sprintf("kubernetes://a/%s%d", strings.Repeat("x", 200), i))
	}
	before := r.log.String()
	c.subscribe("sds", names...)
	c.subscribe("eds", "x")
	c.expect("eds x=none")
	logged := strings.TrimPrefix(r.log.String(), before)
	if strings.Count(logged, "\n") != 1 || len(logged) > 1000 || !strings.Contains(logged, "denied=10000") {
		t.Errorf("%d bytes are logged: %.2000s", len(logged), logged)
	}
	eventually(t, "the names are forgotten", func() bool {
		runtime.GC()
		return r.server.interner.Len() <= 1
	})
}

// TestSecretsAreForProxies: a client that reads configuration gets no secret, whoever it is and however it asks.
func TestSecretsAreForProxies(t *testing.T) {
	r := newSecureRig(t, xdstest.NewPeers(t, []string{"spiffe://cluster.local/ns/a/sa/web"}))
	r.publish(true, "cds a=1", "sds kubernetes://s0=1")
	stream, err := r.dialAs(0).DeltaAggregatedResources(t.Context())
	must.Succeed(t, err)
	c := &deltaClient{t: t, stream: stream}
	node := xdstest.Node("web.a")
	node.Metadata.Fields["GENERATOR"] = structpb.NewStringValue("api")
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: envoy.SecretType})
	c.subscribe("sds", "*")
	c.subscribe("sds", "kubernetes://s0")
	c.subscribe("cds")
	c.expect("cds a=1")
	if clients := r.server.Clients(); len(clients) != 1 || len(clients[0].Types) != 1 {
		t.Errorf("%+v", clients)
	}
}
