package kinds

import "testing"

func TestKeyString(t *testing.T) {
	for want, k := range map[string]Key{
		"VirtualService a/web":                            {Kind: VirtualService, Namespace: "a", Name: "web"},
		"Node n of cluster far":                           {Kind: Node, Name: "n", Cluster: "far"},
		"AuthorizationPolicy a/guard (last good version)": {Kind: AuthorizationPolicy, Namespace: "a", Name: "guard" + LastGood},
		"Sidecar a/s of cluster far (last good version)":  {Kind: Sidecar, Namespace: "a", Name: "s" + LastGood, Cluster: "far"},
		"AuthorizationPolicy a/last-good":                 {Kind: AuthorizationPolicy, Namespace: "a", Name: "last-good"},
	} {
		if got := k.String(); got != want || k.IsLastGood() != (want[len(want)-1] == ')') {
			t.Errorf("%q, last good %v, want %q", got, k.IsLastGood(), want)
		}
	}
}
