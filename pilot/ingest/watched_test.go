package ingest

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

func TestIgnored(t *testing.T) {
	list, ignore, include := Ignored(
		[]string{"*.istio.io", "ingresses.networking.k8s.io", "gateways", "*gateway.networking.k8s.io"},
		[]string{"*.telemetry.istio.io", "wasmplugins.extensions.istio.io", "telemetries.telemetry.istio.io.", "*"},
	)
	for _, k := range (Options{AlphaGatewayAPI: true}).configKinds() {
		want := k.Istio && k != kinds.Telemetry && k != kinds.WasmPlugin || k == kinds.Ingress
		if slices.Contains(list, k) != want {
			t.Errorf("%s is ignored: %v", resourceOf(k), !want)
		}
	}
	if !slices.Equal(ignore, []string{"gateways", "*gateway.networking.k8s.io"}) ||
		!slices.Equal(include, []string{"telemetries.telemetry.istio.io.", "*"}) {
		t.Errorf("without effect: %v, %v", ignore, include)
	}
}

// TestWhyUnread: why objects are not read, if they are not.
func TestWhyUnread(t *testing.T) {
	o := Options{Namespace: "istio-system", WatchNamespace: "a", Ignored: []*kinds.Kind{kinds.Sidecar}, Client: &rest.Config{}}
	for key, want := range map[kinds.Key]string{
		{Kind: kinds.Sidecar, Namespace: "a", Name: "s"}:                              "PILOT_IGNORE_RESOURCES",
		{Kind: kinds.VirtualService, Namespace: "b", Name: "v"}:                       "ISTIO_WATCH_NAMESPACE",
		{Kind: kinds.VirtualService, Namespace: "a", Name: "v"}:                       "",
		{Kind: kinds.VirtualService, Namespace: "istio-system", Name: "v"}:            "",
		{Kind: kinds.Namespace, Name: "b"}:                                            "",
		{Kind: kinds.VirtualService, Namespace: "b", Name: "v", Cluster: "elsewhere"}: "",
	} {
		if got := (&Sources{o: o}).WhyUnread(key); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", key, got, want)
		}
	}
	o.Client = nil
	if got := (&Sources{o: o}).WhyUnread(kinds.Key{Kind: kinds.Sidecar, Namespace: "b", Name: "s"}); got != "" {
		t.Errorf("in a file: %q", got)
	}
}

// TestUnneeded: Secrets and ConfigMaps are read while they are wanted. Other kinds and the ConfigMap of the mesh
// configuration are always read.
func TestUnneeded(t *testing.T) {
	key := kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "tls"}
	source, err := crd.New(crd.Options{Client: &rest.Config{}})
	must.Succeed(t, err)
	s := &Sources{secrets: source}
	unneeded := func(k kinds.Key) bool { return s.Unneeded(k) != "" }
	if !unneeded(key) || unneeded(kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "tls"}) {
		t.Error("a Secret is read that is not wanted, or a VirtualService is not")
	}
	if !unneeded(kinds.Key{Kind: kinds.ConfigMap, Namespace: "a", Name: "settings"}) || unneeded(s.o.meshKey()) {
		t.Error("a ConfigMap is read that is not wanted, or the mesh configuration is not")
	}
	s.secrets.Want([]kinds.Key{key})
	if unneeded(key) || !unneeded(kinds.Key{Kind: kinds.Secret, Namespace: "b", Name: "tls"}) {
		t.Error("the wanted Secret is not read, or another one is")
	}
	s.o.ConfigDir = "mesh"
	if unneeded(kinds.Key{Kind: kinds.Secret, Namespace: "b", Name: "tls"}) {
		t.Error("a Secret of a file is not read")
	}
}
