package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// TestVersionsOfOneIdentity checks that the versions that clients of an identity, or of a tenant, have named take a
// bounded amount of memory, where clients with the same versions take no more than one of them. A client beyond the
// bound waits until another one has acknowledged what it was sent, or has left, and is refused if that takes too long.
// Other identities are served meanwhile.
func TestVersionsOfOneIdentity(t *testing.T) {
	const named, each = 20, 300
	for _, c := range []struct {
		name           string
		accounts       []string // of the clients with other versions, one after the other
		other, refused string
	}{
		{"identity", []string{"flood", "flood", "flood"}, "web", "spiffe://cluster.local/ns/a/sa/flood"},
		{"tenant", []string{"one", "two", "three"}, "b/web", "namespace a of cluster.local"},
	} {
		// flood lets clients name as many versions as the account has room for. The second client has not acknowledged yet.
		flood := func(t *testing.T, wait time.Duration) (resume func(account, prefix string) *deltaClient, second *deltaClient,
			m *discoveryv3.DeltaDiscoveryResponse, r *rig,
		) {
			r = newRig(t, accounts(1000), func(o *Options) {
				o.Limits = limits.Default()
				o.Limits.MemoryWait = wait
			})
			a := r.server.admission
			if c.name == "tenant" {
				a.tenants.versions = quota.NewValues[identity.Tenant, *wire.SharedVersions](2 * named * each) // the versions of two clients
			} else {
				a.versions = quota.NewValues[identity.Holder, *wire.SharedVersions](2 * named * each)
			}
			r.publish(true, "cds a=1")
			resume = func(account, prefix string) *deltaClient {
				client := r.silent("account", account)
				client.send(&discoveryv3.DeltaDiscoveryRequest{
					Node: nodeOf(account, "web.a"), TypeUrl: envoy.ClusterType, InitialResourceVersions: versionsOf(prefix, named),
				})
				return client
			}
			for range 5 {
				resume(c.accounts[0], "x").receive()
			}
			second = resume(c.accounts[1], "y")
			m = second.receive()
			// Only the first request of a type may name versions.
			second.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: versionsOf("more", named)})
			return resume, second, m, r
		}
		// empty checks that the accounts are empty without streams.
		empty := func(t *testing.T, r *rig) {
			r.server.Shutdown()
			a := r.server.admission
			id := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: c.accounts[0]}
			h, _ := identity.Peer{Proof: identity.Token, ID: id}.Holder()
			if n, of := a.versions.Held(h), a.tenants.versions.Held(h.Tenant()); n != 0 || of != 0 {
				t.Errorf("without streams the account has %d bytes, and the tenant %d", n, of)
			}
		}
		t.Run(c.name+" refused", func(t *testing.T) {
			resume, _, _, r := flood(t, time.Second)
			_, err := resume(c.accounts[2], "z").stream.Recv()
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("more versions: %v", err)
			}
			resume(c.other, "z").receive()
			if n := sample(t, r.reg, "pilot_xds_refused_streams", "reason", "versions"); n != 1 {
				t.Errorf("%v streams are counted as refused", n)
			}
			empty(t, r)
		})
		t.Run(c.name+" waits", func(t *testing.T) {
			resume, second, m, r := flood(t, time.Hour)
			waiting := resume(c.accounts[2], "z")
			second.acknowledge(m)
			second.acknowledge(second.receive()) // the removal of all that it has named
			waiting.receive()
			last := resume(c.accounts[2], "v")
			waiting.cancel()
			last.receive()
			empty(t, r)
		})
	}
}

func versionsOf(prefix string, n int) map[string]string {
	versions := map[string]string{}
	for i := range n {
		versions[fmt.Sprint(prefix, "-", i)] = "1"
	}
	return versions
}
