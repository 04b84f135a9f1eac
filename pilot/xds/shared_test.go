package xds

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestSharedSecrets: a secret of another namespace goes to the namespace that it is shared with, and to no other. Once
// it is not shared any more it is replaced, and its new content is not sent; shared again, it is. Who proves nothing
// gets none, even of what all may have.
func TestSharedSecrets(t *testing.T) {
	const shared, all = "kubernetes-gateway://c/s", "configmap://c/ca-cacert"
	id := func(namespace string) []string { return []string{"spiffe://cluster.local/ns/" + namespace + "/sa/web"} }
	r := newSecureRig(t, xdstest.NewPeers(t, nil, id("a"), id("b")))
	r.publish(true, "cds x=1", "sds "+shared+"=1", "sds "+all+"=1", "!share a "+shared)
	var clients []*deltaClient
	for i, namespace := range []string{"a", "a", "b"} {
		stream, err := r.dialAs(i).DeltaAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := &deltaClient{t: t, stream: stream}
		node := &corev3.Node{Id: "sidecar~10.0.0.1~web." + namespace + "~" + namespace + ".svc.cluster.local"}
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: envoy.ClusterType})
		c.expect("cds x=1")
		clients = append(clients, c)
	}
	nobody, a, b := clients[0], clients[1], clients[2]
	// next returns the names and keys of the secrets that come next; nothing if another type does.
	next := func(c *deltaClient) string {
		t.Helper()
		m, err := c.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.TypeUrl != envoy.SecretType {
			return ""
		}
		var got []string
		for _, x := range m.Resources {
			s := &tlsv3.Secret{}
			if err := proto.Unmarshal(x.Resource.Value, s); err != nil {
				t.Fatal(err)
			}
			key := strings.TrimPrefix(s.GetTlsCertificate().GetPrivateKey().GetInlineString(), xdstest.Canary)
			if key == "" {
				key = "replaced"
			}
			got = append(got, x.Name+"="+key)
		}
		for _, name := range m.RemovedResources {
			got = append(got, "-"+name)
		}
		return strings.Join(got, " ")
	}
	for _, c := range clients {
		c.subscribe("sds", shared, all)
		c.subscribe("eds", "y")
	}
	if got := next(a); got != shared+"=1" {
		t.Fatalf("a gets %q", got)
	}
	a.expect("eds y=none")
	b.expect("eds y=none")
	nobody.expect("eds y=none")

	r.publish(true, "sds "+shared+"=2", "cds x=2") // no longer shared
	a.expect("cds x=2")
	if got := next(a); got != shared+"=replaced" {
		t.Fatalf("without a share, a gets %q", got)
	}
	b.expect("cds x=2")
	nobody.expect("cds x=2")
	r.publish(true, "sds "+shared+"=3", "cds x=3")
	a.expect("cds x=3")
	r.publish(true, "sds "+shared+"=4", "cds x=4", "!share a "+shared)
	a.expect("cds x=4") // and no secret before it
	if got := next(a); got != shared+"=4" {
		t.Fatalf("shared again, a gets %q", got)
	}

	// What is shared with everybody is for those that ask for it then.
	b.expect("cds x=3")
	b.expect("cds x=4")
	r.publish(true, "sds "+all+"=5", "cds x=5", "!share  "+all)
	b.expect("cds x=5")
	b.subscribe("sds", all)
	if got := next(b); got != all+"=5" {
		t.Fatalf("b gets %q", got)
	}
	nobody.expect("cds x=3")
	nobody.expect("cds x=4")
	nobody.expect("cds x=5")
	nobody.subscribe("sds", all)
	nobody.subscribe("eds", "z")
	nobody.expect("eds z=none")
}
