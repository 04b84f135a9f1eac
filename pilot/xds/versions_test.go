package xds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/deploy/must"
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
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, accounts(1000), func(o *Options) {
				o.Limits = limits.Default()
				o.Limits.MemoryWait = 2 * time.Second
			})
			a := r.server.admission
			if c.name == "tenant" {
				a.tenants.versions = quota.NewValues[identity.Tenant, *wire.SharedVersions](2 * named * each) // the versions of two clients
			} else {
				a.versions = quota.NewValues[identity.Holder, *wire.SharedVersions](2 * named * each)
			}
			r.publish(true, "cds a=1")
			resume := func(account, prefix string) *deltaClient {
				ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "account", account), 2*time.Minute)
				t.Cleanup(cancel)
				stream, err := r.dial().DeltaAggregatedResources(ctx)
				must.Succeed(t, err)
				client := &deltaClient{t: t, stream: stream, cancel: cancel}
				client.send(&discoveryv3.DeltaDiscoveryRequest{
					Node: nodeOf(account, "web.a"), TypeUrl: envoy.ClusterType, InitialResourceVersions: versionsOf(prefix, named),
				})
				return client
			}
			served := func(client *deltaClient) *discoveryv3.DeltaDiscoveryResponse {
				t.Helper()
				m, err := client.stream.Recv()
				must.Succeed(t, err)
				return m
			}
			for range 5 {
				served(resume(c.accounts[0], "x"))
			}
			second := resume(c.accounts[1], "y")
			m := served(second)
			// Only the first request of a type may name versions.
			second.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: versionsOf("more", named)})
			_, err := resume(c.accounts[2], "z").stream.Recv()
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("more versions: %v", err)
			}
			served(resume(c.other, "z"))
			if n := sample(t, r.reg, "pilot_xds_refused_streams", "reason", "versions"); n != 1 {
				t.Errorf("%v streams are counted as refused", n)
			}
			waiting := resume(c.accounts[2], "z")
			second.acknowledge(m)
			second.acknowledge(served(second)) // the removal of all that it has named
			served(waiting)
			last := resume(c.accounts[2], "v")
			waiting.cancel()
			served(last)
			r.server.Shutdown()
			id := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: c.accounts[0]}
			h, _ := identity.Peer{Proof: identity.Token, ID: id}.Holder()
			if n, of := a.versions.Held(h), a.tenants.versions.Held(h.Tenant()); n != 0 || of != 0 {
				t.Errorf("without streams the account has %d bytes, and the tenant %d", n, of)
			}
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
