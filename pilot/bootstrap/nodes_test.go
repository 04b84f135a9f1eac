package bootstrap

import (
	"errors"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// TestImpersonation refuses what can be refused without looking at pods, and has everybody else ask again while no pods
// are known.
func TestImpersonation(t *testing.T) {
	o := certificateOptions(t)
	o.Certificates.NodeAccounts = []NodeAccount{{"kube-system", "ztunnel"}}
	s := started(t, o)
	ztunnel := identity.Peer{
		ID: identity.ID{TrustDomain: "cluster.local", Namespace: "kube-system", ServiceAccount: "ztunnel"}, Proof: identity.Token,
		Bound: identity.Bound{Cluster: "Kubernetes", Pod: "ztunnel-1", PodUID: "1", Node: "n1"},
	}
	unbound, another, web := ztunnel, ztunnel, identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
	unbound.Bound = identity.Bound{}
	another.ID.ServiceAccount = "web"
	for what, c := range map[string]struct {
		caller      identity.Peer
		id          identity.ID
		unavailable bool
	}{
		"no pods are known":    {ztunnel, web, true},
		"not listed":           {another, web, false},
		"no token of a pod":    {unbound, web, false},
		"another trust domain": {ztunnel, identity.ID{TrustDomain: "elsewhere", Namespace: "a", ServiceAccount: "web"}, false},
	} {
		if err := s.impersonate(c.caller, c.id); err == nil || errors.Is(err, authenticate.ErrUnavailable) != c.unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}
