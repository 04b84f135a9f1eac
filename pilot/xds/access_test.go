package xds

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// oracle is an Access that a test writes.
type oracle struct {
	mu             sync.Mutex
	allowed, known bool
	notify         func()
	cluster        string // that it was asked about
	stopped        int
}

func (o *oracle) Watch(cluster string, _ identity.ID, notify func()) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notify, o.cluster = notify, cluster
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stopped++
	}
}

func (o *oracle) Allowed(cluster string, _ identity.ID) (bool, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cluster != o.cluster {
		return false, false
	}
	return o.allowed, o.known
}

// say sets the answer. Without known there is none to new questions.
func (o *oracle) say(allowed, known, notify bool) {
	o.mu.Lock()
	o.allowed, o.known = allowed, known
	call := o.notify
	o.mu.Unlock()
	if notify {
		call()
	}
}

// parseCertificate returns the certificate of a PEM text.
func parseCertificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no PEM: %q", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	must.Succeed(t, err)
	return c
}

// TestAccessToSecrets: a peer is sent the secrets of its namespace once it is known that it may have them. While that
// is not known it keeps what it has and gets no others. What is withdrawn is replaced, and comes back. What is wanted
// of a cluster follows.
func TestAccessToSecrets(t *testing.T) {
	access := &oracle{}
	var mu sync.Mutex
	var wanted []kinds.Key
	wants := func(names ...string) {
		t.Helper()
		eventually(t, fmt.Sprint("wanted: ", names), func() bool {
			mu.Lock()
			defer mu.Unlock()
			var list []string
			for _, k := range wanted {
				list = append(list, k.String())
			}
			return slices.Equal(list, names)
		})
	}
	r := newSecureRig(t, xdstest.NewPeers(t, []string{"spiffe://cluster.local/ns/a/sa/web"}), func(o *Options) {
		o.Access = access
		o.World = wanting{want: func(keys []kinds.Key) {
			mu.Lock()
			defer mu.Unlock()
			wanted = keys
		}}
	})
	r.publish(true, "cds a=1", "sds kubernetes://x=1", "sds kubernetes://y-cacert=1")
	stream, err := r.dialAs(0).DeltaAggregatedResources(t.Context())
	must.Succeed(t, err)
	c := &deltaClient{t: t, stream: stream}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType})
	c.expect("cds a=1")
	secrets := func(want string) {
		t.Helper()
		m, err := stream.Recv()
		must.Succeed(t, err)
		got := envoy.ShortType(m.TypeUrl)
		for _, x := range m.Resources {
			s := &tlsv3.Secret{}
			must.Succeed(t, proto.Unmarshal(x.Resource.Value, s))
			got += " " + x.Name + "=" + strings.TrimPrefix(s.GetTlsCertificate().GetPrivateKey().GetInlineString(), xdstest.Canary)
		}
		for _, name := range m.RemovedResources {
			got += " -" + name
		}
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	c.subscribe("sds", "kubernetes://x")
	c.subscribe("eds", "0")
	c.expect("eds 0=none") // and no secret before it is known whether the peer may have it
	wants()
	access.say(true, true, true)
	secrets("sds kubernetes://x=1")
	wants("Secret a/x")

	access.say(true, false, false)
	c.subscribe("sds", "kubernetes://y-cacert")
	c.subscribe("eds", "1")
	c.expect("eds 1=none")
	r.publish(true, "sds kubernetes://x=2")
	secrets("sds kubernetes://x=2")
	wants("Secret a/x")
	access.say(true, true, true)
	secrets("sds kubernetes://y-cacert=1")
	wants("Secret a/x", "Secret a/y", "Secret a/y-cacert")

	waits := func(want string) {
		t.Helper()
		eventually(t, "what the proxy waits for is: "+want, func() bool {
			all := r.server.Clients()
			return len(all) == 1 && (want == "") == (all[0].Waits == "") && strings.Contains(all[0].Waits, want)
		})
	}
	c.subscribe("lds", "none") // an Envoy that starts waits for other things too
	c.expect("lds -none")
	waits("")
	access.say(false, true, true)
	m, err := stream.Recv()
	must.Succeed(t, err)
	waits(
		"it does not get the secret kubernetes://x, because its service account may not list secrets: " +
			"bind a Role that may get, watch and list secrets in namespace a to its service account web",
	)
	if n := strings.Count(r.log.String(), "service account may not list Secrets"); n != 1 {
		t.Errorf("the log says %d times that the proxy does not get the secrets:\n%s", n, r.log)
	}
	if len(m.Resources) != 2 || len(m.RemovedResources) > 0 || strings.Contains(m.String(), xdstest.Canary) {
		t.Errorf("what is withdrawn is not replaced: %v, %v", m.Resources, m.RemovedResources)
	}
	var certificate, ca *x509.Certificate
	for _, x := range m.Resources {
		s := &tlsv3.Secret{}
		must.Succeed(t, proto.Unmarshal(x.Resource.Value, s))
		if trusted := s.GetValidationContext().GetTrustedCa().GetInlineBytes(); trusted != nil {
			ca = parseCertificate(t, trusted)
			continue
		}
		of := s.GetTlsCertificate()
		if _, err := tls.X509KeyPair(of.GetCertificateChain().GetInlineBytes(), of.GetPrivateKey().GetInlineBytes()); err != nil {
			t.Errorf("the stand-in of a certificate: %v", err)
		}
		certificate = parseCertificate(t, of.GetCertificateChain().GetInlineBytes())
	}
	switch {
	case certificate == nil || ca == nil:
		t.Errorf("the stand-ins lack one: %v", m.Resources)
	case certificate.IsCA || !ca.IsCA || bytes.Equal(certificate.RawSubjectPublicKeyInfo, ca.RawSubjectPublicKeyInfo):
		t.Error("a peer has the key of the CA that stands in")
	}
	wants()
	access.say(true, true, true)
	secrets("sds kubernetes://x=2 kubernetes://y-cacert=1")
	wants("Secret a/x", "Secret a/y", "Secret a/y-cacert")
	waits("")
	stopped := func() bool {
		access.mu.Lock()
		defer access.mu.Unlock()
		return access.stopped == 1
	}
	if stopped() {
		t.Error("nobody watches")
	}
	must.Succeed(t, stream.CloseSend())
	eventually(t, "it is watched no longer", stopped)
}

// TestSecretsOfRemoteClusters: whether a peer of a remote cluster may have secrets is asked there, and what is wanted
// is of that cluster alone, also where the proxy has another name for it.
func TestSecretsOfRemoteClusters(t *testing.T) {
	access := &oracle{}
	wanted := make(chan []string, 8)
	r := newSecureRig(t, xdstest.NewPeers(t, []string{"spiffe://cluster.local/ns/a/sa/web"}), func(o *Options) {
		o.Access, o.Authorizer = access, authorize.New(authorize.Options{ClusterAliases: map[string]string{"fern": "far"}})
		o.World = wanting{want: func(keys []kinds.Key) {
			var list []string
			for _, k := range keys {
				list = append(list, k.String())
			}
			wanted <- list
		}}
	})
	r.publish(true, "cds a=1", "sds kubernetes://x=1")
	stream, err := r.dialAs(0).DeltaAggregatedResources(t.Context())
	must.Succeed(t, err)
	c := &deltaClient{t: t, stream: stream}
	fern := xdstest.Node("web.a")
	fern.Metadata.Fields["CLUSTER_ID"] = structpb.NewStringValue("fern")
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: fern, TypeUrl: envoy.ClusterType})
	c.expect("cds a=1")
	c.subscribe("sds", "kubernetes://x")
	eventually(t, "its own cluster is asked", func() bool {
		access.mu.Lock()
		defer access.mu.Unlock()
		return access.notify != nil && access.cluster == "far"
	})
	access.say(true, true, true)
	if got := <-wanted; !slices.Equal(got, []string{"Secret a/x of cluster far"}) {
		t.Errorf("wanted %q", got)
	}
}

// TestCertificateProvesNoCluster: a peer without a proof of its cluster gets the secrets of the cluster that it names
// once a snapshot shows that it is there, though its account may have them before. Later it keeps them.
func TestCertificateProvesNoCluster(t *testing.T) {
	access, located := &oracle{}, &atomic.Bool{}
	r := newSecureRig(t, xdstest.NewPeers(t, []string{"spiffe://cluster.local/ns/a/sa/web"}), func(o *Options) {
		o.Access = access
		o.World = locating{located: func(_ *snapshot.Snapshot, p identity.Peer, proxy *node.Proxy) bool {
			return located.Load() && p.ID.ServiceAccount == "web" && proxy.Name == "web"
		}}
	})
	r.publish(true, "cds a=1", "sds kubernetes://x=1")
	stream, err := r.dialAs(0).DeltaAggregatedResources(t.Context())
	must.Succeed(t, err)
	c := &deltaClient{t: t, stream: stream}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType})
	c.expect("cds a=1")
	c.subscribe("sds", "kubernetes://x")
	c.subscribe("eds", "0")
	c.expect("eds 0=none")
	access.say(true, true, true)
	eventually(t, "the log says why it gets none", func() bool {
		return strings.Contains(r.log.String(), "refusing secrets: the proxy's cluster is unverified")
	})
	c.subscribe("eds", "1")
	c.expect("eds 1=none") // and no secret
	located.Store(true)
	r.publish(true, "cds a=2")
	got := map[string]bool{}
	for range 2 {
		m, err := stream.Recv()
		must.Succeed(t, err)
		got[envoy.ShortType(m.TypeUrl)] = len(m.Resources) == 1
	}
	if !got["cds"] || !got["sds"] {
		t.Errorf("once it is located it gets %v", got)
	}
	located.Store(false)
	r.publish(true, "sds kubernetes://x=2")
	if m, err := stream.Recv(); err != nil || envoy.ShortType(m.TypeUrl) != "sds" || len(m.Resources) != 1 {
		t.Errorf("later: %v, %v", m, err)
	}
}
