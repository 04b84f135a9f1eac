package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestRejectedNamesAreBounded: the memory of a client that asks for ever other names, and rejects them, is bounded.
func TestRejectedNamesAreBounded(t *testing.T) {
	f := xdstest.NewTranslator()
	snap := f.Publish(true, "eds a=1")
	s := newTestSession(f, quiet{}, true)
	s.Start(snap)
	for i := range 10000 {
		n := wire.Names{Names: s.interner.Of([]string{fmt.Sprintf("n%d", i)})}
		q := &wire.Request{Delta: true, Interner: s.interner, Limits: s.limits, TypeURL: envoy.EndpointType, Names: n}
		if _, err := s.Take(q); err != nil {
			t.Fatal(err)
		}
		nonce := ""
		for x := s.Next(); x != nil; x = s.Next() {
			nonce = x.Nonce
		}
		q = &wire.Request{Delta: true, Interner: s.interner, Limits: s.limits,
			TypeURL: envoy.EndpointType, Unsubscribed: n, Nonce: nonce, Detail: &rpcstatus.Status{Code: 3}}
		if _, err := s.Take(q); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.find(envoy.EndpointType).rejected); n > 100 {
		t.Errorf("%d rejected names are remembered of a client that asks for none", n)
	}
}

// TestHostsRequestedBeforeRoutesAreResent: a client that resumes with virtual hosts before the route configuration has
// them, though that was sent again before its stream broke.
func TestHostsRequestedBeforeRoutesAreResent(t *testing.T) {
	f := xdstest.NewTranslator()
	snap := f.Publish(true, "cds c0=1", "rds r0=c0.1", "vhds r0/h0=c0.1")
	open := func() *Session {
		s := newTestSession(f, quiet{}, true)
		s.divided, s.firstGeneration = true, 77
		s.Start(snap)
		return s
	}
	do := func(s *Session, r *discoveryv3.DeltaDiscoveryRequest) (all []string) {
		if _, err := ask(s, r, nil); err != nil {
			t.Fatal(err)
		}
		for x := s.Next(); x != nil; x = s.Next() {
			all = append(all, envoy.ShortType(x.TypeURL)+fmt.Sprint(show(x), x.Removed))
		}
		return all
	}
	s := open()
	do(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNamesSubscribe: []string{"r0"}})
	do(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.VirtualHostType})
	do(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNamesUnsubscribe: []string{"r0"}})
	do(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNamesSubscribe: []string{"r0"}})
	// The stream broke after the route configuration.
	rds := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.RouteType,
		ResourceNamesSubscribe: []string{"r0"}, InitialResourceVersions: map[string]string{"r0": "head~1"}}
	vhds := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.VirtualHostType, InitialResourceVersions: map[string]string{"r0/h0": "c0.1"}}
	for _, order := range [][]*discoveryv3.DeltaDiscoveryRequest{{rds, vhds}, {vhds, rds}} {
		s = open()
		got := fmt.Sprint(do(s, order[0]), do(s, order[1]))
		if !strings.Contains(got, "r0/h0=c0.1") {
			t.Errorf("the virtual host is not sent again: %s", got)
		}
	}
}

// TestEndpointsOfUnsubscribedClusterAreSent: assignments wait for the removal of their cluster only as long as it is to
// be removed.
func TestEndpointsOfUnsubscribedClusterAreSent(t *testing.T) {
	for _, delta := range []bool{true, false} {
		f := xdstest.NewTranslator()
		s := newTestSession(f, quiet{}, delta)
		s.Start(f.Publish(true, "cds a=1", "cds b=1", "eds a=1", "lds l=1"))
		got := map[string]string{}
		do := func(typeURL string, names []string, leave []string) {
			var err error
			if delta {
				_, err = ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: leave})
			} else {
				_, err = ask(s, &discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, ResponseNonce: func() string {
					if w := s.find(typeURL); w != nil {
						return w.status.Sent
					}
					return ""
				}()})
			}
			must.Succeed(t, err)
		}
		step := func() bool {
			x := s.Next()
			if x == nil {
				return false
			}
			for i := range x.Resources {
				got[envoy.ShortType(x.TypeURL)+" "+x.Resources[i].Name], _, _ = strings.Cut(sentVersion(x, i), ".")
			}
			return true
		}
		do(envoy.ClusterType, []string{"a", "b"}, nil)
		do(envoy.EndpointType, []string{"a"}, nil)
		do(envoy.ListenerType, nil, nil)
		for step() {
		}
		s.Adopt(NewPush(f.Publish(true, "cds a", "cds b=2", "eds a=2", "lds l=2"), time.Time{}))
		step() // clusters
		step() // listeners; the clusters that are gone are not removed yet
		if delta {
			do(envoy.ClusterType, nil, []string{"a"})
		} else {
			do(envoy.ClusterType, []string{"b"}, nil)
		}
		for step() {
		}
		if delta {
			for _, w := range s.watches { // acknowledge
				_, _ = ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: w.kind.URL, ResponseNonce: w.status.Sent})
			}
			for step() {
			}
		}
		if got["eds a"] != "2" {
			t.Errorf("delta %t: the client has %v", delta, got)
		}
	}
}

// TestWildcardBesideNamesIsIgnored: for a type that has no whole, "*" is nothing: it takes nothing from the names
// beside it.
func TestWildcardBesideNamesIsIgnored(t *testing.T) {
	for _, delta := range []bool{true, false} {
		f := xdstest.NewTranslator()
		s := newTestSession(f, quiet{}, delta)
		s.Start(f.Publish(true, "eds a=1"))
		got := ""
		do := func(names ...string) {
			var err error
			if delta {
				_, err = ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: names})
			} else {
				_, err = ask(s, &discoveryv3.DiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNames: append(names, "a")})
			}
			must.Succeed(t, err)
			for x := s.Next(); x != nil; x = s.Next() {
				got += fmt.Sprint(show(x), x.Removed)
			}
		}
		do("a")
		do("*")
		s.Adopt(NewPush(f.Publish(false, "eds a=2"), time.Time{}))
		do()
		if !strings.Contains(got, "a=2") || strings.Contains(got, "[a]") {
			t.Errorf("delta %t: the client is sent %s", delta, got)
		}
	}
}

// TestWildcardInPlaceOfNameResends: a client that replaces a name by the wildcard in one request is sent it again, as
// with names.
func TestWildcardInPlaceOfNameResends(t *testing.T) {
	f := xdstest.NewTranslator()
	s := newTestSession(f, quiet{}, true)
	s.Start(f.Publish(true, "cds a=1", "cds b=1"))
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{TypeUrl: envoy.ClusterType, ResourceNamesSubscribe: []string{"a"}},
		{TypeUrl: envoy.ClusterType, ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"a"}},
	} {
		if _, err := ask(s, r); err != nil {
			t.Fatal(err)
		}
		got := ""
		for x := s.Next(); x != nil; x = s.Next() {
			got += fmt.Sprint(show(x), x.Removed)
		}
		if !strings.Contains(got, "a=1") {
			t.Errorf("for %v it is sent %s", r, got)
		}
	}
}
