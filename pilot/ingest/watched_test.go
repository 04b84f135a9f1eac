package ingest

import (
	"slices"
	"testing"

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
