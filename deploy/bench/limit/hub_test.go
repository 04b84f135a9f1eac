package main

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/must"
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
	must.Succeed(t, err)
	b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: load.Routes.URL(), Nonce: "n",
		Resources: []*discoveryv3.Resource{{Name: "80", Version: "1", Resource: body}}})
	must.Succeed(t, err)
	return b
}

// client is a stream that is subscribed to routes and virtual hosts.
func client(h *hub, sotw bool) *stream {
	s := newStream(sotw)
	h.subscribe(s, load.Routes.URL(), []string{"80"}, nil)
	if !sotw {
		h.subscribe(s, load.VirtualHosts.URL(), nil, nil)
	}
	return s
}

// drain decodes what is queued: "RDS 80" for a RouteConfiguration, with a "+" where virtual hosts come by themselves,
// and its or the other virtual hosts.
func drain(t *testing.T, s *stream) (out []string) {
	t.Helper()
	for _, p := range s.queue {
		var delta discoveryv3.DeltaDiscoveryResponse
		var sotw discoveryv3.DiscoveryResponse
		must.Succeed(t, errors.Join(proto.Unmarshal(p.body.delta, &delta), proto.Unmarshal(p.body.sotw, &sotw)))
		for i, x := range delta.Resources {
			m, err := x.Resource.UnmarshalNew()
			must.Succeed(t, err)
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

// hand has a hub take what a feeder has written, and reports whether that was all there is.
func hand(t *testing.T, from *gob.Decoder, to *hub) (synced bool) {
	t.Helper()
	if err := to.fed(from, func() { synced = true }); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return synced
}

func TestHubCopies(t *testing.T) {
	for _, c := range []struct {
		split, sotw bool
		want        [][]string
	}{
		{false, true, [][]string{{"RDS 80 a bb"}, {"RDS 80 a bb"}, nil, {"RDS 80 a"}}},
		{false, false, [][]string{{"RDS 80 a bb"}, {"RDS 80 a bb"}, nil, {"RDS 80 a"}}},
		{true, false, [][]string{{"RDS 80+", "VHDS 80/a 1", "VHDS 80/bb 1"}, {"VHDS 80/bb 2"}, nil, {"gone 80/bb"}}},
	} {
		h, f := newHub(), newFeeder(c.split)
		var pipe bytes.Buffer
		d := gob.NewDecoder(&pipe)
		f.feed(&pipe)
		if !hand(t, d, h) {
			t.Error("nothing is not all there is")
		}
		take := func(hosts map[string]string) {
			must.Succeed(t, f.take(routes(t, hosts)))
			if hand(t, d, h) {
				t.Error("a change is all there is")
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
		h.subscribe(s, load.Routes.URL(), []string{"80"}, nil) // in either protocol, nothing new
		if again := drain(t, s); again != nil {
			t.Errorf("an acknowledgement is answered with %v", again)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("split %v (-want +got):\n%s", c.split, diff)
		}
	}
	h, s, f := newHub(), newStream(true), newFeeder(false)
	must.Succeed(t, f.take(routes(t, map[string]string{"a": "1"})))
	var pipe bytes.Buffer
	f.feed(&pipe)
	hand(t, gob.NewDecoder(&pipe), h)
	for _, names := range [][]string{{"80"}, {"81"}, {"80", "81"}} {
		h.subscribe(s, load.Routes.URL(), names, nil)
	}
	// of an unknown name alone all, which is no more
	if diff := cmp.Diff([]string{"RDS 80 a", "RDS 80 a", "RDS 80 a"}, drain(t, s)); diff != "" {
		t.Errorf("left and wanted again (-want +got):\n%s", diff)
	}
	if err := newFeeder(true).take([]byte{1}); err == nil {
		t.Error("nonsense was taken")
	}
}

// TestSameMessage: a message whose maps stand in another order is the same, and is not handed on.
func TestSameMessage(t *testing.T) {
	fields := map[string]*structpb.Value{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fields[name] = structpb.NewStringValue(name)
	}
	r := &routev3.RouteConfiguration{Name: "80", VirtualHosts: []*routev3.VirtualHost{
		{Name: "v", Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: fields}}}},
	}}
	encode := func() []byte {
		b, err := proto.Marshal(r)
		must.Succeed(t, err)
		return b
	}
	first := encode()
	second := encode()
	for bytes.Equal(first, second) { // ends as soon as Go walks the map in another order
		second = encode()
	}
	if !same(load.Routes.URL(), first, second) {
		t.Error("another order of a map is taken for another message")
	}
	fields["a"] = structpb.NewStringValue("z")
	if same(load.Routes.URL(), first, encode()) {
		t.Error("another message is taken for the same")
	}
	if same("unknown", []byte{1}, []byte{2}) {
		t.Error("of an unknown type other bytes are taken for the same")
	}
}

// TestReadRequest: requests are read by their fields, and one that names what the last one named asks for nothing.
func TestReadRequest(t *testing.T) {
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		must.Succeed(t, err)
		return b
	}
	type got struct {
		Type        string
		Names, Gone []string
		Asks        bool
	}
	node := &corev3.Node{Id: "n"}
	for name, c := range map[string]struct {
		sotw     bool
		requests []proto.Message
		want     []got
	}{
		"delta": {false, []proto.Message{
			&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: "x"},
			&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "x", ResponseNonce: "1"},
			&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "y", ResourceNamesSubscribe: []string{"a", "b"},
				InitialResourceVersions: map[string]string{"a": "1"}},
			&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "y", ResourceNamesSubscribe: []string{"c"}, ResourceNamesUnsubscribe: []string{"a"}},
		}, []got{{"x", nil, nil, true}, {"x", nil, nil, false}, {"y", []string{"a", "b"}, nil, true}, {"y", []string{"c"}, []string{"a"}, true}}},
		"sotw": {true, []proto.Message{
			&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: "y", ResourceNames: []string{"a", "b"}},
			&discoveryv3.DiscoveryRequest{TypeUrl: "y", ResourceNames: []string{"a", "b"}, VersionInfo: "1", ResponseNonce: "1"},
			&discoveryv3.DiscoveryRequest{TypeUrl: "x", ResourceNames: []string{"a", "b"}},
			&discoveryv3.DiscoveryRequest{TypeUrl: "y", ResourceNames: []string{"a"}, VersionInfo: "1", ResponseNonce: "1"},
		}, []got{{"y", []string{"a", "b"}, nil, true}, {"y", nil, nil, false}, {"x", []string{"a", "b"}, nil, true},
			{"y", []string{"a"}, nil, true}}},
	} {
		s := newStream(c.sotw)
		for i, r := range c.requests {
			var g got
			g.Type, g.Names, g.Gone, g.Asks = s.read(marshal(r))
			if diff := cmp.Diff(c.want[i], g); diff != "" {
				t.Errorf("%s, request %d (-want +got):\n%s", name, i, diff)
			}
		}
	}
}
