package main

import (
	"errors"
	"slices"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// routes is a response with one RouteConfiguration, which has virtual hosts of these names, each with a version.
func routes(t *testing.T, hosts map[string]string) []byte {
	t.Helper()
	r := &routev3.RouteConfiguration{Name: "80"}
	for name, version := range hosts {
		r.VirtualHosts = append(r.VirtualHosts, &routev3.VirtualHost{Name: name, Domains: []string{name, version}})
	}
	slices.SortFunc(r.VirtualHosts, func(a, b *routev3.VirtualHost) int { return len(a.Name) - len(b.Name) })
	body, err := anypb.New(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: routesURL, Nonce: "n", Resources: []*discoveryv3.Resource{{Name: "80", Version: "1", Resource: body}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// client is a stream that is subscribed to routes and virtual hosts.
func client(h *hub, sotw bool) *stream {
	s := newStream(sotw)
	h.subscribe(s, routesURL, []string{"80"}, nil)
	if !sotw {
		h.subscribe(s, hostsURL, nil, nil)
	}
	return s
}

// drain decodes what is queued: "RDS 80" for a RouteConfiguration, with a "+" where virtual hosts come by themselves, and its or the other virtual hosts.
func drain(t *testing.T, s *stream) (out []string) {
	t.Helper()
	for _, p := range s.queue {
		var delta discoveryv3.DeltaDiscoveryResponse
		var sotw discoveryv3.DiscoveryResponse
		if err := errors.Join(proto.Unmarshal(p.body.delta, &delta), proto.Unmarshal(p.body.sotw, &sotw)); err != nil {
			t.Fatal(err)
		}
		for i, x := range delta.Resources {
			m, err := x.Resource.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			if len(sotw.Resources) != len(delta.Resources) || !proto.Equal(sotw.Resources[i], x.Resource) {
				t.Fatal("the protocols differ")
			}
			switch m := m.(type) {
			case *routev3.RouteConfiguration:
				text := "RDS " + x.Name
				if m.GetVhds().GetConfigSource().GetAds() != nil {
					text += "+"
				}
				for _, host := range m.VirtualHosts {
					text += " " + host.Name
				}
				out = append(out, text)
			case *routev3.VirtualHost:
				out = append(out, "VHDS "+x.Name+" "+m.Domains[1])
			}
		}
		for _, name := range p.removed {
			out = append(out, "gone "+name)
		}
	}
	s.queue = nil
	return out
}

func TestHub(t *testing.T) {
	for _, c := range []struct {
		split, sotw bool
		want        [][]string
	}{
		{false, true, [][]string{{"RDS 80 a bb"}, {"RDS 80 a bb"}, nil, {"RDS 80 a"}}},
		{false, false, [][]string{{"RDS 80 a bb"}, {"RDS 80 a bb"}, nil, {"RDS 80 a"}}},
		{true, false, [][]string{{"RDS 80+", "VHDS 80/a 1", "VHDS 80/bb 1"}, {"VHDS 80/bb 2"}, nil, {"gone 80/bb"}}},
	} {
		h := newHub(c.split)
		take := func(hosts map[string]string) {
			if err := h.take(routes(t, hosts)); err != nil {
				t.Fatal(err)
			}
		}
		take(map[string]string{"a": "1", "bb": "1"})
		s := client(h, c.sotw)
		var got [][]string
		got = append(got, drain(t, s))
		for _, hosts := range []map[string]string{{"a": "1", "bb": "2"}, {"a": "1", "bb": "2"}, {"a": "1"}} {
			take(hosts)
			got = append(got, drain(t, s))
		}
		h.subscribe(s, routesURL, []string{"80"}, nil) // in either protocol, nothing new
		if again := drain(t, s); again != nil {
			t.Errorf("an acknowledgement is answered with %v", again)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("split %v (-want +got):\n%s", c.split, diff)
		}
	}
	h, s := newHub(false), newStream(true)
	if err := h.take(routes(t, map[string]string{"a": "1"})); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"80"}, {"81"}, {"80", "81"}} {
		h.subscribe(s, routesURL, names, nil)
	}
	if diff := cmp.Diff([]string{"RDS 80 a", "RDS 80 a", "RDS 80 a"}, drain(t, s)); diff != "" { // of an unknown name alone all, which is no more
		t.Errorf("left and wanted again (-want +got):\n%s", diff)
	}
	if err := newHub(true).take([]byte{1}); err == nil {
		t.Error("nonsense was taken")
	}
}
