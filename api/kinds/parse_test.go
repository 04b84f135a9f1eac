package kinds

import (
	"slices"
	"testing"
)

// TestParse: what texts may name.
func TestParse(t *testing.T) {
	for text, want := range map[string][]Key{
		"VirtualService/web.a": {{Kind: VirtualService, Namespace: "a", Name: "web"}},
		"vs/web.a":             {{Kind: VirtualService, Namespace: "a", Name: "web"}},
		"virtualservices.networking.istio.io/x.y.a": {{Kind: VirtualService, Namespace: "a", Name: "x.y"}},
		"GW/edge.a": {{Kind: Gateway, Namespace: "a", Name: "edge"}, {Kind: KubeGateway, Namespace: "a", Name: "edge"}},
		"Gateway.gateway.networking.k8s.io/edge.a": {{Kind: KubeGateway, Namespace: "a", Name: "edge"}},
		"ns/a": {{Kind: Namespace, Name: "a"}},
	} {
		if got, err := Parse(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "VirtualService", "/web.a", "VirtualService/", "VirtualService/web", "VirtualService/.a",
		"Service/web.A", "VirtualService/web.", "VirtualServise/web.a", "Gateway.example.com/web.a"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
	if got, err := Parse("svc/web"); err == nil || !slices.Equal(got, []Key{{Kind: Service}}) {
		t.Errorf("without a namespace: %v, %v", got, err)
	}
}
