package xds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// ask has a session take a request as it would come.
func ask(s *session, m proto.Message, names ...*recent) (verdict, error) {
	_, delta := m.(*discoveryv3.DeltaDiscoveryRequest)
	r := &request{delta: delta, interner: s.interner, limits: s.limits, recent: slices.Concat(names, []*recent{{}})[0]}
	b, err := proto.Marshal(m)
	if err != nil {
		return verdict{}, err
	}
	if err := r.decode(&rawRequest{}, b); err != nil {
		return verdict{}, err
	}
	if delta {
		return s.incremental(r)
	}
	return s.stateOfTheWorld(r)
}

// same compares a request with the generated type's reading of the same bytes.
func (r *request) same(m proto.Message, l *limits.Limits) error {
	d := &discoveryv3.DeltaDiscoveryRequest{}
	version := ""
	switch m := m.(type) {
	case *discoveryv3.DeltaDiscoveryRequest:
		d = m
	case *discoveryv3.DiscoveryRequest:
		version = m.GetVersionInfo()
		d.Node, d.TypeUrl, d.ResourceNamesSubscribe, d.ResponseNonce, d.ErrorDetail = m.GetNode(), m.GetTypeUrl(), m.GetResourceNames(), m.GetResponseNonce(), m.GetErrorDetail()
	}
	names := func(what string, got requestNames, list []string) error {
		want := slices.Compact(slices.Sorted(slices.Values(list)))
		i, starred := slices.BinarySearch(want, star)
		if starred {
			want = slices.Delete(want, i, i+1)
		}
		if got.star != starred || !slices.Equal(got.names.All(), want) {
			return fmt.Errorf("%s %v %q, want %v %q", what, got.star, got.names.All(), starred, want)
		}
		return nil
	}
	if r.fault != nil {
		all := slices.Concat(d.GetResourceNamesSubscribe(), d.GetResourceNamesUnsubscribe())
		bad := func(n string) bool {
			return len(n) > l.NameLength || strings.ContainsFunc(n, func(c rune) bool { return c < ' ' || 0x7f <= c && c < 0xa0 })
		}
		if len(all) <= l.NamesPerRequest && len(d.GetInitialResourceVersions()) <= l.NamesPerStream && !slices.ContainsFunc(all, bad) {
			return fmt.Errorf("fault %w", r.fault)
		}
		return nil
	}
	versions := map[string]string{}
	had := r.versions.own
	if r.versions.shared != nil {
		had = slices.Concat(had, r.versions.shared.list)
	}
	for _, x := range slices.Backward(had) { // of two with one name the first counts
		versions[x.Name] = x.Version
	}
	who := proto.Clone(d.GetNode()).(*corev3.Node)
	capabilities := node.Extensions(who.GetExtensions())
	if who != nil {
		who.Extensions = nil
	}
	switch {
	case r.typeURL != d.GetTypeUrl(), r.nonce != d.GetResponseNonce(), r.resumes != (version != ""):
		return fmt.Errorf("%q %q %v", r.typeURL, r.nonce, r.resumes)
	case !proto.Equal(r.detail, d.GetErrorDetail()) || (r.detail == nil) != (d.GetErrorDetail() == nil):
		return fmt.Errorf("detail %v, want %v", r.detail, d.GetErrorDetail())
	case (r.node == nil) != (d.GetNode() == nil) || who != nil && !proto.Equal(r.node, who):
		return fmt.Errorf("node %v, want %v", r.node, who)
	case r.capabilities != capabilities:
		return fmt.Errorf("extensions %b, want %b", r.capabilities, capabilities)
	case !maps.Equal(versions, d.GetInitialResourceVersions()):
		return fmt.Errorf("versions %q, want %q", versions, d.GetInitialResourceVersions())
	}
	if err := names("leaves", r.unsubscribed, d.GetResourceNamesUnsubscribe()); err != nil {
		return err
	}
	return names("names", r.names, d.GetResourceNamesSubscribe())
}

func generated(delta bool) proto.Message {
	if delta {
		return &discoveryv3.DeltaDiscoveryRequest{}
	}
	return &discoveryv3.DiscoveryRequest{}
}

// FuzzRequest reads bytes as requests of either protocol, and again when they are known: they are refused where the
// generated types refuse them, and say the same.
func FuzzRequest(f *testing.F) {
	l := limits.Default()
	l.NamesPerRequest, l.NamesPerStream, l.NameLength = 40, 60, 50
	add := func(m proto.Message) {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...)) // merged
		f.Add(b[:len(b)-len(b)/3])
		f.Add(protowire.AppendVarint(protowire.AppendTag(b, 99, protowire.VarintType), 7))
		f.Add(append(b, 0x1b, 0x1c)) // a group where a string should be
		f.Add(append(b, 0x1a, 2, 0xff, 0xfe))
		f.Add(append(b, 0x2a, 3, 0x0a, 1, 0xff))
		f.Add(append(b, 0x2a, 8, 0x0a, 1, 'a', 0x0a, 1, 'b', 0x18, 1))
	}
	n := testNode("web.a")
	n.Extensions = []*corev3.Extension{
		{Name: "x", Category: "y"}, {Name: "z"}, {Name: "istio.alpn", Category: "envoy.filters.http", TypeUrls: []string{"istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"}},
	}
	versions := map[string]string{}
	for _, name := range manyNames(30) {
		versions[name] = "v" + name
	}
	detail := &rpcstatus.Status{Code: 3, Message: "no"}
	add(&discoveryv3.DiscoveryRequest{VersionInfo: "1", Node: n, ResourceNames: append(manyNames(30), star), TypeUrl: envoy.EndpointType, ResponseNonce: "n", ErrorDetail: detail})
	add(&discoveryv3.DeltaDiscoveryRequest{
		Node: n, ResourceNamesSubscribe: manyNames(20), ResourceNamesUnsubscribe: append(manyNames(18), star), InitialResourceVersions: versions, TypeUrl: "what.Ever",
		ResponseNonce: "n", ErrorDetail: detail, ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{Name: "l", DynamicParameters: map[string]string{"a": "b"}}},
	})
	f.Add([]byte{0x0a, 2, 0x4a, 9})    // a node whose extensions are cut off
	f.Add([]byte{0x0a, 2, 0x4a, 0})    // one with an empty one
	f.Add([]byte{0xf8, 0xff, 0xff, 1}) // a field beyond all
	f.Fuzz(func(t *testing.T, b []byte) {
		interner := newNameInterner()
		for _, delta := range []bool{true, false} {
			m := generated(delta)
			want := proto.Unmarshal(b, m)
			re := &recent{}
			for i := range 3 {
				r := &request{delta: delta, interner: interner, limits: &l, recent: re}
				err := r.decode(&rawRequest{}, b)
				if r.fault != nil {
					err = want // the stream ends either way
				}
				if (err != nil) != (want != nil) {
					t.Fatalf("time %d, delta %v: %v, want %v", i, delta, err, want)
				}
				if err == nil {
					if err := r.same(m, &l); err != nil {
						t.Fatalf("time %d, delta %v: %v", i, delta, err)
					}
				}
			}
		}
	})
}

// Clients that say nearly the same, in whatever order, are understood each on its own, and share what they have in
// common.
func TestRequestsShareNamesAndVersions(t *testing.T) {
	interner, l := newNameInterner(), limits.Default()
	rnd := rand.New(rand.NewPCG(1, 2))
	shuffled := func(list []string) []string {
		list = slices.Clone(list)
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	all := manyNames(400)
	var names *envoy.Names
	shared := map[*sharedVersions]int{}
	for i := range 60 {
		d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, ResourceNamesSubscribe: shuffled(all), InitialResourceVersions: map[string]string{}}
		for _, n := range all {
			d.InitialResourceVersions[n] = "v" + n
		}
		d.InitialResourceVersions["inbound"] = fmt.Sprint(i)
		delete(d.InitialResourceVersions, all[i%3])
		if i%20 == 19 { // one who has little in common with the others
			for _, n := range all[:200] {
				d.InitialResourceVersions[n] = "old"
			}
			d.ResourceNamesSubscribe = append(d.ResourceNamesSubscribe[:300], "more", "and more")
		}
		b, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		r := &request{delta: true, interner: interner, limits: &l}
		if err := r.decode(&rawRequest{}, b); err != nil {
			t.Fatal(err)
		}
		if err := r.same(d, &l); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			names = r.names.names
		}
		if i%20 != 19 && r.names.names != names {
			t.Errorf("request %d has a list of names of its own", i)
		}
		shared[r.versions.shared]++
		if i%10 == 5 {
			interner.forget()
		}
	}
	if len(shared) > 16 {
		t.Errorf("60 requests have %d shared lists of versions", len(shared))
	}
}

// Of what clients made up nothing is kept for long, however much it was.
func TestRequestsAreForgotten(t *testing.T) {
	interner, l := newNameInterner(), limits.Default()
	for i := range 40 {
		d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{}}
		for j := range 5000 {
			n := fmt.Sprint(i, "-", j, strings.Repeat("x", 100))
			d.ResourceNamesSubscribe = append(d.ResourceNamesSubscribe, n)
			d.InitialResourceVersions[n] = "1"
		}
		b, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&request{delta: true, interner: interner, limits: &l}).decode(&rawRequest{}, b); err != nil {
			t.Fatal(err)
		}
		if interner.cost > maxSharedBytes || interner.slots > maxSlots {
			t.Fatalf("%d bytes and %d slots are kept", interner.cost, interner.slots)
		}
	}
	heap() // collects what nobody holds
	interner.forget()
	heap()
	interner.forget()
	if len(interner.shared) != 0 || interner.cost != 0 {
		t.Errorf("%d shared lists of %d bytes are kept", len(interner.shared), interner.cost)
	}
	if len(interner.known) != 0 || interner.slots != 0 {
		t.Errorf("%d lists of %d slots are known", len(interner.known), interner.slots)
	}
}

func BenchmarkRequest(b *testing.B) {
	interner, l := newNameInterner(), limits.Default()
	d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{}}
	s := &discoveryv3.DiscoveryRequest{TypeUrl: envoy.EndpointType}
	for i := range 1000 {
		n := fmt.Sprintf("outbound|80||service-%d.namespace-%d.svc.cluster.local", i, i%20)
		d.InitialResourceVersions[n] = "0123456789abcdef"
		s.ResourceNames = append(s.ResourceNames, n)
	}
	for name, m := range map[string]proto.Message{"versions": d, "names": s} {
		bytes, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			re := &recent{}
			var keep *envoy.Names
			for b.Loop() {
				r := &request{delta: m == d, interner: interner, limits: &l, recent: re}
				if err := r.unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes)}); err != nil {
					b.Fatal(err)
				}
				keep = r.names.names
			}
			_ = keep
		})
	}
}
