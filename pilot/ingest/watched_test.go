package ingest

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
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
