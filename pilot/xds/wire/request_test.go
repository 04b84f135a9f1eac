package wire

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
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// same compares a request with the generated type's reading of the same bytes.
func (r *Request) same(m proto.Message, l *limits.Limits) error {
	d := &discoveryv3.DeltaDiscoveryRequest{}
	version := ""
	switch m := m.(type) {
	case *discoveryv3.DeltaDiscoveryRequest:
		d = m
	case *discoveryv3.DiscoveryRequest:
		version = m.GetVersionInfo()
		d.Node, d.TypeUrl, d.ResourceNamesSubscribe = m.GetNode(), m.GetTypeUrl(), m.GetResourceNames()
		d.ResponseNonce, d.ErrorDetail = m.GetResponseNonce(), m.GetErrorDetail()
	}
	names := func(what string, got Names, list []string) error {
		want := slices.Compact(slices.Sorted(slices.Values(list)))
		i, starred := slices.BinarySearch(want, Star)
		if starred {
			want = slices.Delete(want, i, i+1)
		}
		if got.Star != starred || !slices.Equal(got.Names.All(), want) {
			return fmt.Errorf("%s %v %q, want %v %q", what, got.Star, got.Names.All(), starred, want)
		}
		return nil
	}
	if r.Fault != nil {
		all := slices.Concat(d.GetResourceNamesSubscribe(), d.GetResourceNamesUnsubscribe())
		bad := func(n string) bool {
			return len(n) > l.NameLength || strings.ContainsFunc(n, func(c rune) bool { return c < ' ' || 0x7f <= c && c < 0xa0 })
		}
		if len(all) <= l.NamesPerRequest && len(d.GetInitialResourceVersions()) <= l.NamesPerStream && !slices.ContainsFunc(all, bad) {
			return fmt.Errorf("fault %w", r.Fault)
		}
		return nil
	}
	versions := map[string]string{}
	had := r.Versions.Own
	if r.Versions.Shared != nil {
		had = slices.Concat(had, r.Versions.Shared.List)
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
	case r.TypeURL != d.GetTypeUrl(), r.Nonce != d.GetResponseNonce(), r.Resumes != (version != ""):
		return fmt.Errorf("%q %q %v", r.TypeURL, r.Nonce, r.Resumes)
	case !proto.Equal(r.Detail, d.GetErrorDetail()) || (r.Detail == nil) != (d.GetErrorDetail() == nil):
		return fmt.Errorf("detail %v, want %v", r.Detail, d.GetErrorDetail())
	case (r.Node == nil) != (d.GetNode() == nil) || who != nil && !proto.Equal(r.Node, who):
		return fmt.Errorf("node %v, want %v", r.Node, who)
	case r.Capabilities != capabilities:
		return fmt.Errorf("extensions %b, want %b", r.Capabilities, capabilities)
	case !maps.Equal(versions, d.GetInitialResourceVersions()):
		return fmt.Errorf("versions %q, want %q", versions, d.GetInitialResourceVersions())
	}
	if err := names("leaves", r.Unsubscribed, d.GetResourceNamesUnsubscribe()); err != nil {
		return err
	}
	return names("names", r.Names, d.GetResourceNamesSubscribe())
}

func generated(delta bool) proto.Message {
	if delta {
		return &discoveryv3.DeltaDiscoveryRequest{}
	}
	return &discoveryv3.DiscoveryRequest{}
}

// TestLengthOfNames: the name of a debug page may be longer than other names, because it has a query.
func TestLengthOfNames(t *testing.T) {
	l := limits.Default()
	for typeURL, limit := range map[string]int{envoy.EndpointType: l.NameLength, names.DebugType: pageLength} {
		for _, n := range []int{limit, limit + 1} {
			b, err := proto.Marshal(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: []string{strings.Repeat("n", n)}})
			must.Succeed(t, err)
			r := Request{Limits: &l, Interner: NewInterner()}
			must.Succeed(t, r.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}))
			if (r.Fault != nil) != (n > limit) {
				t.Errorf("a name of %s with %d bytes: %v", typeURL, n, r.Fault)
			}
		}
	}
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
	n := xdstest.Node("web.a")
	n.Extensions = []*corev3.Extension{
		{Name: "x", Category: "y"}, {Name: "z"},
		{Name: "istio.alpn", Category: "envoy.filters.http", TypeUrls: []string{"istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"}},
	}
	versions := map[string]string{}
	for _, name := range xdstest.Names(30) {
		versions[name] = "v" + name
	}
	detail := &rpcstatus.Status{Code: 3, Message: "no"}
	add(&discoveryv3.DiscoveryRequest{
		VersionInfo: "1", Node: n, ResourceNames: append(xdstest.Names(30), Star), TypeUrl: envoy.EndpointType, ResponseNonce: "n",
		ErrorDetail: detail,
	})
	add(&discoveryv3.DeltaDiscoveryRequest{
		Node: n, ResourceNamesSubscribe: xdstest.Names(20), ResourceNamesUnsubscribe: append(xdstest.Names(18), Star),
		InitialResourceVersions: versions, TypeUrl: "what.Ever",
		ResponseNonce: "n", ErrorDetail: detail,
		ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{Name: "l", DynamicParameters: map[string]string{"a": "b"}}},
	})
	f.Add([]byte{0x0a, 2, 0x4a, 9})    // a node whose extensions are cut off
	f.Add([]byte{0x0a, 2, 0x4a, 0})    // one with an empty one
	f.Add([]byte{0xf8, 0xff, 0xff, 1}) // a field beyond all
	f.Fuzz(func(t *testing.T, b []byte) {
		interner := NewInterner()
		for _, delta := range []bool{true, false} {
			m := generated(delta)
			want := proto.Unmarshal(b, m)
			types := map[string]struct{}{}
			for i := range 2 {
				r := &Request{Delta: delta, Interner: interner, Limits: &l, Types: types}
				err := r.decode(&rawRequest{}, b)
				switch {
				case r.Fault != nil:
				case (err != nil) != (want != nil):
					t.Fatalf("request %d of a type, delta %v: %v, want %v", i, delta, err, want)
				case i > 0 && !r.Versions.Empty():
					t.Fatalf("request %d of a type, delta %v, has versions", i, delta)
				}
			}
			re := &Recent{}
			for i := range 3 {
				r := &Request{Delta: delta, Interner: interner, Limits: &l, Recent: re}
				err := r.decode(&rawRequest{}, b)
				if r.Fault != nil {
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
	interner, l := NewInterner(), limits.Default()
	rnd := rand.New(rand.NewPCG(1, 2))
	shuffled := func(list []string) []string {
		list = slices.Clone(list)
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	all := xdstest.Names(400)
	var names *envoy.Names
	shared := map[*SharedVersions]int{}
	for i := range 60 {
		d := &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: envoy.ClusterType, ResourceNamesSubscribe: shuffled(all), InitialResourceVersions: map[string]string{},
		}
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
		must.Succeed(t, err)
		r := &Request{Delta: true, Interner: interner, Limits: &l}
		must.Succeed(t, r.decode(&rawRequest{}, b))
		must.Succeed(t, r.same(d, &l))
		if i == 0 {
			names = r.Names.Names
		}
		if i%20 != 19 && r.Names.Names != names {
			t.Errorf("request %d has a list of names of its own", i)
		}
		shared[r.Versions.Shared]++
		if i%10 == 5 {
			interner.Forget()
		}
	}
	if len(shared) > 16 {
		t.Errorf("60 requests have %d shared lists of versions", len(shared))
	}
}

// TestCohortsShareVersions checks that clients of a cohort share versions, although other cohorts have the same names
// with other versions, and the lists of all cohorts are more than what is kept for later.
func TestCohortsShareVersions(t *testing.T) {
	interner, l := NewInterner(), limits.Default()
	const cohorts, clients, names = 30, 5, 1000
	shared := map[*SharedVersions]int{}
	for i := range cohorts * clients {
		d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.VirtualHostType, InitialResourceVersions: map[string]string{}}
		for j := range names {
			d.InitialResourceVersions[fmt.Sprint("host-", j)] = "1"
			if j%10 == 0 {
				d.InitialResourceVersions[fmt.Sprint("host-", j)] = fmt.Sprint("of cohort ", i%cohorts)
			}
		}
		b, err := proto.Marshal(d)
		must.Succeed(t, err)
		r := &Request{Delta: true, Interner: interner, Limits: &l}
		must.Succeed(t, r.decode(&rawRequest{}, b))
		must.Succeed(t, r.same(d, &l))
		shared[r.Versions.Shared]++
	}
	if len(shared) != cohorts {
		t.Errorf("%d lists are shared, want %d", len(shared), cohorts)
	}
}

// Of what clients made up nothing is kept for long, however much it was.
func TestRequestsAreForgotten(t *testing.T) {
	interner, l := NewInterner(), limits.Default()
	for i := range 40 {
		d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{}}
		for j := range 5000 {
			n := fmt.Sprint(i, "-", j, strings.Repeat("x", 100))
			d.ResourceNamesSubscribe = append(d.ResourceNamesSubscribe, n)
			d.InitialResourceVersions[n] = "1"
		}
		b, err := proto.Marshal(d)
		must.Succeed(t, err)
		must.Succeed(t, (&Request{Delta: true, Interner: interner, Limits: &l}).decode(&rawRequest{}, b))
		if interner.cost > maxSharedBytes || interner.slots > maxSlots {
			t.Fatalf("%d bytes and %d slots are kept", interner.cost, interner.slots)
		}
	}
	for range 3 {
		xdstest.Heap() // collects garbage
		interner.Forget()
	}
	if len(interner.shared) != 0 || len(interner.recent) != 0 || interner.cost != 0 {
		t.Errorf("%d shared lists of %d bytes are kept", len(interner.shared), interner.cost)
	}
	if len(interner.known) != 0 || interner.slots != 0 {
		t.Errorf("%d lists of %d slots are known", len(interner.known), interner.slots)
	}
}

func BenchmarkRequest(b *testing.B) {
	interner, l := NewInterner(), limits.Default()
	d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{}}
	s := &discoveryv3.DiscoveryRequest{TypeUrl: envoy.EndpointType}
	for i := range 1000 {
		n := fmt.Sprintf("outbound|80||service-%d.namespace-%d.svc.cluster.local", i, i%20)
		d.InitialResourceVersions[n] = "0123456789abcdef"
		s.ResourceNames = append(s.ResourceNames, n)
	}
	for name, m := range map[string]proto.Message{"versions": d, "names": s} {
		bytes, err := proto.Marshal(m)
		must.Succeed(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			re := &Recent{}
			var keep *envoy.Names
			for b.Loop() {
				r := &Request{Delta: m == d, Interner: interner, Limits: &l, Recent: re}
				must.Succeed(b, r.Unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes)}))
				keep = r.Names.Names
			}
			_ = keep
		})
	}
}
