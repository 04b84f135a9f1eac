package xds

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestSharedSecrets: a secret of another namespace goes to the namespace that it is shared with, to accounts that an
// Access allows the Secrets of that namespace, and to no other. Once it is not shared any more it is replaced, and its
// new content is not sent; shared again, it is. A proxy that proves no identity gets no secret, even of those that are
// shared with all.
func TestSharedSecrets(t *testing.T) {
	const shared, all = "kubernetes-gateway://c/s", "configmap://c/ca-cacert"
	id := func(namespace string) []string { return []string{"spiffe://cluster.local/ns/" + namespace + "/sa/web"} }
	access := &oracle{}
	access.say(true, true, false)
	r := newSecureRig(t, xdstest.NewPeers(t, nil, id("a"), id("b")), func(o *Options) { o.Access = access })
	r.publish(true, "cds x=1", "sds "+shared+"=1", "sds "+all+"=1", "!share a "+shared)
	var clients []*deltaClient
	for i, namespace := range []string{"a", "a", "b"} {
		stream, err := r.dialAs(i).DeltaAggregatedResources(t.Context())
		must.Succeed(t, err)
		c := &deltaClient{t: t, stream: stream}
		node := &corev3.Node{Id: "sidecar~10.0.0.1~web." + namespace + "~" + namespace + ".svc.cluster.local"}
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: envoy.ClusterType})
		c.expect("cds x=1")
		clients = append(clients, c)
	}
	nobody, a, b := clients[0], clients[1], clients[2]
	for _, c := range clients {
		c.subscribe("sds", shared, all)
		c.subscribe("eds", "y")
	}
	if got := a.secrets(); got != shared+"=1" {
		t.Fatalf("a gets %q", got)
	}
	a.expect("eds y=none")
	b.expect("eds y=none")
	nobody.expect("eds y=none")

	r.publish(true, "sds "+shared+"=2", "cds x=2") // no longer shared
	a.expect("cds x=2")
	if got := a.secrets(); got != shared+"=replaced" {
		t.Fatalf("without a share, a gets %q", got)
	}
	b.expect("cds x=2")
	nobody.expect("cds x=2")
	r.publish(true, "sds "+shared+"=3", "cds x=3")
	for _, c := range clients { // a stream that has not sent it would skip it
		c.expect("cds x=3")
	}
	r.publish(true, "sds "+shared+"=4", "cds x=4", "!share a "+shared)
	a.expect("cds x=4") // and no secret before it
	if got := a.secrets(); got != shared+"=4" {
		t.Fatalf("shared again, a gets %q", got)
	}

	// What is shared with everybody is for those that ask for it then.
	b.expect("cds x=4")
	nobody.expect("cds x=4")
	r.publish(true, "sds "+all+"=5", "cds x=5", "!share  "+all)
	b.expect("cds x=5")
	b.subscribe("sds", all)
	if got := b.secrets(); got != all+"=5" {
		t.Fatalf("b gets %q", got)
	}
	nobody.expect("cds x=5")
	nobody.subscribe("sds", all)
	nobody.subscribe("eds", "z")
	nobody.expect("eds z=none")
}

// TestSecretsSharedWithoutAccess: without an Access it is not known which accounts of a namespace may have a secret
// that is shared with the namespace, so no account gets it.
func TestSecretsSharedWithoutAccess(t *testing.T) {
	const ofNamespace, ofAccount = "kubernetes-gateway://c/s", "kubernetes-gateway://c/t"
	r := newSecureRig(t, xdstest.NewPeers(t, []string{"spiffe://cluster.local/ns/a/sa/web"}))
	r.publish(true, "cds x=1", "sds "+ofNamespace+"=1", "sds "+ofAccount+"=1", "!share a "+ofNamespace, "!share a/web "+ofAccount)
	stream, err := r.dialAs(0).DeltaAggregatedResources(t.Context())
	must.Succeed(t, err)
	c := &deltaClient{t: t, stream: stream}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType})
	c.expect("cds x=1")
	c.subscribe("sds", ofNamespace, ofAccount)
	if got := c.secrets(); got != ofAccount+"=1" {
		t.Errorf("the proxy gets %q", got)
	}
}

// TestSecretsSharedWithAccounts: what is shared with a service account it gets though an Access denies it what else is
// in its namespace, and as long as it is shared; another account of the namespace does not, nor does a proxy of another
// cluster, nor one that is not known to be in the cluster that it names.
func TestSecretsSharedWithAccounts(t *testing.T) {
	const shared, other = "kubernetes-gateway://a/s", "kubernetes-gateway://a/other"
	access, located := &oracle{}, &atomic.Bool{}
	access.say(false, true, false)
	r := newSecureRig(t, xdstest.NewPeers(
		t, []string{"spiffe://cluster.local/ns/a/sa/edge"}, []string{"spiffe://cluster.local/ns/a/sa/web"},
	), func(o *Options) {
		o.Access = access
		o.World = locating{located: func(*snapshot.Snapshot, identity.Peer, *node.Proxy) bool { return located.Load() }}
	})
	r.publish(true, "cds x=0", "sds "+shared+"=0", "sds "+other+"=0", "!share a/edge "+shared)
	var clients []*deltaClient
	for i, cluster := range []string{"", "far", ""} { // edge, edge of another cluster, web
		stream, err := r.dialAs(i / 2).DeltaAggregatedResources(t.Context())
		must.Succeed(t, err)
		c := &deltaClient{t: t, stream: stream}
		n := xdstest.Node("web.a")
		if cluster != "" {
			n.Metadata.Fields["CLUSTER_ID"] = structpb.NewStringValue(cluster)
		}
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: envoy.ClusterType})
		c.expect("cds x=0")
		c.subscribe("sds", shared, other)
		c.subscribe("eds", "y")
		c.expect("eds y=none")
		clients = append(clients, c)
	}
	located.Store(true)
	steps := []struct {
		edits   []string
		allowed bool
		known   bool
		want    string // for edge
	}{
		{[]string{"!share a/edge " + shared}, false, true, shared + "=1"},
		{[]string{"!share a/edge " + shared}, false, false, shared + "=2"},
		{nil, false, false, shared + "=replaced"},
		{nil, false, false, ""},
		{[]string{"!share a/web " + shared}, false, true, ""},
		{[]string{"!share a/edge " + shared}, false, true, shared + "=6"},
		{[]string{"!share a " + shared}, false, true, shared + "=replaced"}, // which takes the Access too
	}
	for i, step := range steps {
		access.say(step.allowed, step.known, false)
		r.publish(true, append(step.edits, fmt.Sprintf("cds x=%d", i+1), fmt.Sprintf("sds %s=%d", shared, i+1))...)
		for who, c := range clients {
			c.expect(fmt.Sprintf("cds x=%d", i+1))
			if who == 0 && step.want != "" {
				if got := c.secrets(); got != step.want {
					t.Fatalf("step %d: edge gets %q, want %q", i+1, got, step.want)
				}
			}
			if who == 2 && i == 4 {
				if got, want := c.secrets(), shared+"=5"; got != want {
					t.Fatalf("web gets %q, want %q", got, want)
				}
			}
			if who == 2 && i == 5 {
				if got, want := c.secrets(), shared+"=replaced"; got != want {
					t.Fatalf("web gets %q, want %q", got, want)
				}
			}
		}
	}
	for _, c := range clients {
		c.subscribe("eds", "z")
		c.expect("eds z=none") // and no secret before it
	}
}

// secrets returns the names and keys of the secrets that come next; nothing if another type does.
func (c *deltaClient) secrets() string {
	c.t.Helper()
	m := c.receive()
	if m.TypeUrl != envoy.SecretType {
		return ""
	}
	var got []string
	for _, x := range m.Resources {
		s := &tlsv3.Secret{}
		must.Succeed(c.t, proto.Unmarshal(x.Resource.Value, s))
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
