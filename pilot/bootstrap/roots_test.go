package bootstrap

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	meshv1 "istio.io/api/mesh/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// entryOf returns one of caCertificates with the roots of several CAs.
func entryOf(list ...*pki.Bundle) string {
	text := "- pem: |\n"
	for _, b := range list {
		text += "    " + strings.ReplaceAll(strings.TrimSpace(textOf(b)), "\n", "\n    ") + "\n"
	}
	return text
}

func textOf(b *pki.Bundle) string { return string(pki.EncodeCertificates(b.Roots...)) }

// TestRootsAreSent: proxies of both protocols that ask for roots are sent those of the CA, then those of the mesh
// configuration, each once and none that cannot be read; and all of them again when the mesh configuration or the CA
// has others.
func TestRootsAreSent(t *testing.T) {
	o := certificateOptions(t)
	own, next, second, third := selfSigned(t), selfSigned(t), selfSigned(t), selfSigned(t)
	o.Certificates.StateDir, o.Certificates.MultiRoot = "", true
	plug(t, o.Certificates.Folder, own)
	o.MeshConfig = filepath.Join(t.TempDir(), "mesh.yaml")
	write(t, o.MeshConfig, "caCertificates:\n"+entryOf(second)+"- pem: x\n")
	s := started(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	whole, err := dial(t, s.Addresses().GRPC).StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	delta, err := dial(t, s.Addresses().GRPC).DeltaAggregatedResources(ctx)
	must.Succeed(t, err)
	node := &corev3.Node{Id: nodeInA}
	_ = whole.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ProxyConfigType, Node: node})
	_ = delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ProxyConfigType, Node: node})
	for _, step := range []struct {
		what string
		does func()
		want []string
	}{
		{"at first", func() {}, []string{textOf(own), textOf(second)}},
		{"another mesh configuration", func() {
			write(t, o.MeshConfig, "caCertificates:\n"+entryOf(own, third)+entryOf(second)+entryOf(third))
		}, []string{textOf(own), textOf(third), textOf(second)}},
		{"another CA", func() { plug(t, o.Certificates.Folder, next) }, []string{textOf(next), textOf(own) + textOf(third), textOf(second)}},
	} {
		step.does()
		for received := false; !received; {
			r, err := whole.Recv()
			if err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			received = len(r.Resources) == 1 && slices.Equal(rootsIn(t, r.Resources[0]), step.want)
			_ = whole.Send(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo})
		}
		for received := false; !received; {
			r, err := delta.Recv()
			if err != nil {
				t.Fatalf("%s, delta: %v", step.what, err)
			}
			received = len(r.Resources) == 1 && r.Resources[0].Name == "" && slices.Equal(rootsIn(t, r.Resources[0].Resource), step.want)
			_ = delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
		}
	}
}

// rootsIn returns the roots in a ProxyConfig.
func rootsIn(t *testing.T, a *anypb.Any) []string {
	t.Helper()
	c := &meshv1.ProxyConfig{}
	if err := proto.Unmarshal(a.Value, c); err != nil || a.TypeUrl != envoy.ProxyConfigType {
		t.Fatalf("%s: %v", a.TypeUrl, err)
	}
	return c.CaCertificatesPem
}

// TestRootsAreNotSent: without ISTIO_MULTIROOT_MESH, a proxy that asks for roots gets no answer, and everything else.
func TestRootsAreNotSent(t *testing.T) {
	o := certificateOptions(t)
	o.MeshConfig = filepath.Join(t.TempDir(), "mesh.yaml")
	write(t, o.MeshConfig, "caCertificates:\n"+entryOf(selfSigned(t)))
	s := started(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	stream, err := dial(t, s.Addresses().GRPC).StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ProxyConfigType, Node: &corev3.Node{Id: nodeInA}})
	for _, typeURL := range []string{envoy.ClusterType, envoy.ListenerType} {
		_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL})
		if r, err := stream.Recv(); err != nil || r.TypeUrl != typeURL {
			t.Fatalf("%v, %v: want %s", r, err, typeURL)
		}
	}
}

// TestRootsAreHandedOutWithBrokenTemplates: namespaces get the roots while the server waits for templates of injection
// that can be used.
func TestRootsAreHandedOutWithBrokenTemplates(t *testing.T) {
	api := &apiserver.Server{}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName("shop")
	api.Put("/api/v1/namespaces/shop", namespace)
	at := httptest.NewServer(api)
	t.Cleanup(at.Close)
	o := certificateOptions(t)
	o.Certificates.StateDir, o.Certificates.RootsMap, o.Certificates.CRLMap = "", "roots", "revoked"
	o.Client, o.PodName, o.NoElection = &rest.Config{Host: at.URL}, "istiod-0", true
	write(t, filepath.Join(o.ConfigDir, "templates.yaml"), templatesMap("{{ nope }}"))
	s, err := New(o)
	must.Succeed(t, err)
	run(t, s)
	eventually(t, "the roots", func() bool { return api.Object("/api/v1/namespaces/shop/configmaps/roots") != nil })
	if s.ready.Load() {
		t.Error("ready with broken templates")
	}
}

// TestControlPlanesWithOtherConfigMaps runs two control planes of one namespace, whose ConfigMaps have different names:
// each publishes its own.
func TestControlPlanesWithOtherConfigMaps(t *testing.T) {
	api := &apiserver.Server{}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName("shop")
	api.Put("/api/v1/namespaces/shop", namespace)
	at := httptest.NewServer(api)
	t.Cleanup(at.Close)
	for _, name := range []string{"one", "two"} {
		o := certificateOptions(t)
		o.Certificates.StateDir, o.Certificates.RootsMap = "", name
		o.Client, o.PodName, o.Revision = &rest.Config{Host: at.URL}, "istiod-"+name, name
		s, err := New(o)
		must.Succeed(t, err)
		run(t, s)
	}
	for _, name := range []string{"one", "two"} {
		eventually(t, "the roots of "+name, func() bool { return api.Object("/api/v1/namespaces/shop/configmaps/"+name) != nil })
	}
}
