package session

import (
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestSecretGoesWhileItsNameIsTakenBack: a client lets go of a name and takes it back, while a response with the secret
// is on its way. It takes that one, so it has to learn that the secret has gone since, in whatever order the server
// hears of all that.
func TestSecretGoesWhileItsNameIsTakenBack(t *testing.T) {
	for _, early := range []bool{false, true} { // the secret goes before the name is taken back
		f := xdstest.NewTranslator()
		s := newTestSession(f, quiet{}, true)
		s.Start(f.Publish(true, "sds s0=1"))
		do := func(r *discoveryv3.DeltaDiscoveryRequest) {
			t.Helper()
			r.TypeUrl = envoy.SecretType
			if _, err := ask(s, r); err != nil {
				t.Fatal(err)
			}
		}
		gone := func() { s.Adopt(NewPush(f.Publish(true, "sds s0"), time.Unix(0, 0))) }
		do(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"s0"}})
		r := s.Next()
		if r == nil || len(r.Resources) != 1 {
			t.Fatalf("the client is sent %v", r)
		}
		do(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"s0"}})
		if early {
			gone()
			if r := s.Next(); r != nil {
				t.Fatalf("a client that wants nothing is sent %v", r)
			}
		}
		do(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"s0"}})
		do(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.Nonce})
		if !early {
			gone()
		}
		if r := s.Next(); r == nil || !slices.Equal(r.Removed, []string{"s0"}) {
			t.Errorf("early %t: the client is sent %v", early, r)
		}
	}
}
