package envoy_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

func cluster(name string) *envoy.Resource {
	return envoy.NewResource(name, &clusterv3.Cluster{Name: name})
}

func all(u interface {
	All(func(*envoy.Resource) bool)
},
) (list []string) {
	for r := range u.All {
		list = append(list, r.Name)
	}
	return list
}

func TestSet(t *testing.T) {
	a, b, c, again := cluster("a"), cluster("b"), cluster("c"), cluster("b")
	s := envoy.NewSet([]*envoy.Resource{c, b, again, a})
	if got := slices.Collect(s.All); !slices.Equal(got, []*envoy.Resource{a, b, c}) {
		t.Errorf("%v", got)
	}
	if s.Get("b") != b || s.Get("bb") != nil || s.Get("") != nil {
		t.Error("Get gives what is not there, or not the first of a name")
	}
	var none *envoy.Set
	if none.Len() != 0 || none.Get("a") != nil || none.Equal(s) || s.Equal(none) || !none.Equal(nil) {
		t.Error("the nil Set has something")
	}
	if !s.Equal(envoy.NewSet([]*envoy.Resource{a, b, c})) || s.Equal(envoy.NewSet([]*envoy.Resource{a, again, c})) ||
		s.Equal(envoy.NewSet([]*envoy.Resource{a, b})) {
		t.Error("Equal does not go by the resources themselves")
	}
}

func TestUnion(t *testing.T) {
	a, b, own, other := cluster("a"), cluster("b"), cluster("own"), cluster("a")
	u := envoy.Union{Shared: envoy.NewSet([]*envoy.Resource{a, own}), Own: envoy.NewSet([]*envoy.Resource{other, b, own}),
		Omit: new(envoy.NameInterner).Intern([]string{"own"})}
	if got := all(u); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	if u.Get("a") != a || u.Get("b") != b || u.Get("own") != nil || u.Get("c") != nil {
		t.Error("Get disagrees with All")
	}
	for range u.All {
		break // a consumer may stop
	}
	if got := all(envoy.Union{}); got != nil {
		t.Errorf("the zero Union has %v", got)
	}
}

// TestEncoding: equal messages have equal bytes, maps within Anys included, and the version depends on the bytes.
func TestEncoding(t *testing.T) {
	shuffled := rand.New(rand.NewPCG(1, 2))
	build := func(n int) *envoy.Resource {
		fields := map[string]*structpb.Value{}
		for _, i := range shuffled.Perm(20) {
			fields[fmt.Sprint("k", i)] = envoy.Text(fmt.Sprint(n))
		}
		inner := envoy.Any(envoy.Fields(fields))
		return envoy.NewResource("c", &clusterv3.Cluster{Name: "c",
			TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": inner, "y": inner, "z": inner}})
	}
	first := build(1)
	for range 20 {
		if next := build(1); !slices.Equal(next.Body, first.Body) || next.Version != first.Version {
			t.Fatal("equal messages differ")
		}
	}
	if build(2).Version == first.Version {
		t.Error("different messages have one version")
	}
	var wrapped anypb.Any
	if err := proto.Unmarshal(first.Body, &wrapped); err != nil || wrapped.TypeUrl != envoy.ClusterType ||
		!slices.Equal(wrapped.Value, first.Value()) {
		t.Errorf("the body is no Any of the value: %v %s", err, wrapped.TypeUrl)
	}
	if empty := envoy.NewResource("", &clusterv3.Cluster{}); len(empty.Value()) != 0 {
		t.Errorf("an empty message has the value %q", empty.Value())
	}
}

// TestNewRoute: a spliced message is the same as the whole message marshalled.
func TestNewRoute(t *testing.T) {
	host := func(name string) *routev3.VirtualHost {
		return &routev3.VirtualHost{Name: name, Domains: []string{name, name + ".example.com"}}
	}
	decode := func(r *envoy.Resource, m proto.Message) {
		t.Helper()
		var a anypb.Any
		if err := proto.Unmarshal(r.Bytes(), &a); err != nil || !slices.Equal(a.Value, r.Value()) || r.Size() != len(r.Bytes()) {
			t.Fatalf("%s: %v, an Any of %d bytes, the value has %d; size %d of %d", r.Name, err, len(a.Value), len(r.Value()), r.Size(),
				len(r.Bytes()))
		}
		must.Succeed(t, a.UnmarshalTo(m))
	}
	versions := map[string]bool{}
	for n := range 4 {
		whole := &routev3.RouteConfiguration{Name: "80", IgnorePortInHostMatching: true, MaxDirectResponseBodySizeBytes: envoy.UInt32(7)}
		header := envoy.NewResource("80", proto.Clone(whole))
		head := envoy.NewResource("80", &routev3.RouteConfiguration{Name: "80", Vhds: &routev3.Vhds{ConfigSource: envoy.ADS()}})
		divided := &routev3.RouteConfiguration{Name: "80", Vhds: &routev3.Vhds{ConfigSource: envoy.ADS()}}
		var hosts []*envoy.Resource
		for i := range n {
			h := host(fmt.Sprint("h", i))
			whole.VirtualHosts = append(whole.VirtualHosts, proto.Clone(h).(*routev3.VirtualHost))
			r := envoy.NewHost("80", h)
			hosts = append(hosts, r)
			got := &routev3.VirtualHost{}
			decode(r, got)
			divided.VirtualHosts = append(divided.VirtualHosts, h)
			if !proto.Equal(got, h) || r.Name != "80/"+h.Name {
				t.Errorf("%s by itself: got %v", r.Name, got)
			}
		}
		r := routeOf(header, head, hosts...)
		got := &routev3.RouteConfiguration{}
		if decode(r, got); !proto.Equal(got, whole) {
			t.Errorf("%d hosts: got %v", n, got)
		}
		if n == 0 {
			if r != header {
				t.Error("without virtual hosts it is not the header itself")
			}
			continue
		}
		if r.Name != "80" || r.Header != header || r.Head != head || r.Hosts.Len() != n || versions[r.Version] {
			t.Errorf("%d hosts: parts of %+v", n, r)
		}
		versions[r.Version] = true
		got = &routev3.RouteConfiguration{}
		if decode(envoy.Merged(head, slices.Values(hosts)), got); !proto.Equal(got, divided) {
			t.Errorf("%d hosts, divided: got %v", n, got)
		}
	}
}

func routeOf(header, head *envoy.Resource, hosts ...*envoy.Resource) *envoy.Resource {
	var c envoy.Content
	for _, h := range hosts {
		c.Add(h)
	}
	return envoy.NewRoute(header, head, envoy.NewSet(hosts), c)
}

func count(all iter.Seq[*envoy.Resource]) int { return len(slices.Collect(all)) }

// TestHostName: a host that is written with a slash does not name another route configuration, and gives way by its own
// name.
func TestHostName(t *testing.T) {
	h := envoy.NewHost("http.80", &routev3.VirtualHost{Name: "a/*.example.com:80"})
	if route, _, _ := strings.Cut(h.Name, "/"); route != "http.80" || strings.Count(h.Name, "/") != 1 ||
		h.Name != envoy.HostName("http.80", "a/*.example.com:80") {
		t.Errorf("by itself it is %s", h.Name)
	}
	v, got := envoy.Tombstone(h.Name), &routev3.VirtualHost{}
	if err := proto.Unmarshal(v.Value(), got); err != nil || v.Name != h.Name || got.Name != "a/*.example.com:80" {
		t.Errorf("%s gives way to %s, which is %s", h.Name, v.Name, got.Name)
	}
}

// TestDivided: the virtual hosts of route configurations that may be divided are separate resources, made once.
func TestDivided(t *testing.T) {
	header, head := envoy.NewResource("80", &routev3.RouteConfiguration{Name: "80"}), envoy.NewResource("80", &routev3.RouteConfiguration{})
	a, b := envoy.NewHost("80", &routev3.VirtualHost{Name: "a"}), envoy.NewHost("80", &routev3.VirtualHost{Name: "b"})
	other := envoy.NewResource("9", &routev3.RouteConfiguration{Name: "9"})
	s := envoy.NewSet([]*envoy.Resource{routeOf(header, head, b, a), other})
	heads, hosts := s.Divided()
	if got := slices.Collect(heads.All); !slices.Equal(got, []*envoy.Resource{head, other}) {
		t.Errorf("heads are %v", got)
	}
	if got := slices.Collect(hosts.All); !slices.Equal(got, []*envoy.Resource{a, b}) {
		t.Errorf("hosts are %v", got)
	}
	if h, v := s.Divided(); h != heads || v != hosts {
		t.Error("it was divided twice")
	}
	if got := slices.Collect(hosts.Below("80")); !slices.Equal(got, slices.Collect(hosts.All)) || count(hosts.Below("8")) != 0 ||
		count(hosts.Below("80/a")) != 0 {
		t.Errorf("below 80 are %v", got)
	}
	whole := envoy.NewSet([]*envoy.Resource{other})
	if h, v := whole.Divided(); h != whole || v != nil {
		t.Error("what has nothing to divide is another Set")
	}
	var none *envoy.Set
	if h, v := none.Divided(); h != nil || v != nil {
		t.Error("the nil Set has parts")
	}
}

// TestNames: equal lists are one pointer, for as long as somebody holds it.
func TestNames(t *testing.T) {
	var table envoy.NameInterner
	a, b := table.Intern([]string{"b", "a", "b"}), table.Intern([]string{"a", "b"})
	if a != b || !slices.Equal(a.All(), []string{"a", "b"}) || !a.Has("b") || a.Has("c") || a.Len() != 2 {
		t.Errorf("%v %v", a.All(), b.All())
	}
	if table.Intern([]string{"ab"}) == a || table.Intern(nil) != nil || (*envoy.Names)(nil).Has("a") || (*envoy.Names)(nil).Len() != 0 {
		t.Error("other lists")
	}
	if c := table.InternFrom(a, []string{"c"}); c.Origin() != a || a.Origin() != nil || table.InternFrom(c, []string{"b", "a"}) != a ||
		a.Origin() != nil {
		t.Error("origins")
	}
	for i := range 100 {
		table.Intern([]string{fmt.Sprint(i)})
	}
	for deadline := time.Now().Add(2 * time.Minute); table.Len() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d lists are remembered", table.Len())
		}
		runtime.GC()
	}
	if table.Intern([]string{"a", "b"}) != a {
		t.Error("what is in use was forgotten")
	}
	runtime.KeepAlive(a)
}

// TestNamesEdited: a list that was edited from another one is the interned list with the same names.
func TestNamesEdited(t *testing.T) {
	some := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("n", rapid.IntRange(0, 400).Draw(t, "n")) }), 0, 200)
	rapid.Check(t, func(t *rapid.T) {
		var table envoy.NameInterner
		list := some.Draw(t, "list")
		n := table.Intern(slices.Clone(list))
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			remove, add := some.Draw(t, "remove"), some.Draw(t, "add")
			list = slices.DeleteFunc(list, func(s string) bool { return slices.Contains(remove, s) })
			list = append(list, add...)
			n = table.Edited(n, table.Intern(slices.Clone(remove)), table.Intern(slices.Clone(add)))
			slices.Sort(list)
			list = slices.Compact(list)
			if n.Len() != len(list) || !slices.Equal(n.All(), list) || !slices.Equal(slices.Collect(n.Each()), list) {
				t.Fatalf("%v, want %v", n.All(), list)
			}
			if table.Intern(slices.Clone(list)) != n {
				t.Fatal("equal lists are two")
			}
		}
	})
}

type key struct{ n int }

func TestMemo(t *testing.T) {
	m := envoy.NewMemo(10, nil)
	built := 0
	table := envoy.NewMemoTable(m, func(k key) *envoy.Resource { built++; return cluster(fmt.Sprint(k.n)) })
	a := table.Get(key{1})
	if table.Get(key{1}) != a || table.Get(key{2}) == a || built != 2 {
		t.Errorf("built %d times", built)
	}
	if hits, misses := m.Stats(); hits != 1 || misses != 2 {
		t.Errorf("%d hits, %d misses", hits, misses)
	}
}

// TestMemoIsBounded: unused resources are bounded in bytes, so that a few large ones evict many small ones.
func TestMemoIsBounded(t *testing.T) {
	m := envoy.NewMemo(1<<20, nil)
	built := map[int]int{}
	table := envoy.NewMemoTable(m, func(k key) *envoy.Resource {
		built[k.n]++
		return envoy.NewResource(fmt.Sprint(k.n), wrapperspb.Bytes(make([]byte, 100<<10)))
	})
	for n := range 50 {
		table.Get(key{n})
	}
	for range 3 { // the weak pointers of what was pushed out are cleared by the collector
		runtime.GC()
	}
	table.Get(key{49})
	table.Get(key{0})
	if built[49] != 1 || built[0] != 2 {
		t.Errorf("the newest was built %d times, the oldest %d times", built[49], built[0])
	}
}

// TestMemoKeepsNothingOld: a resource that nobody uses is found for a minute, and goes with the next one that is built
// afterwards.
func TestMemoKeepsNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := envoy.NewMemo(1<<30, time.Now)
		table := envoy.NewMemoTable(m, func(k key) *envoy.Resource { return cluster(fmt.Sprint(k.n)) })
		for n := range 600 {
			table.Get(key{n})
			time.Sleep(time.Second)
		}
		if got := m.Len(); got < 60 || got > 61 {
			t.Errorf("with a new resource each second it keeps %d", got)
		}
		time.Sleep(time.Hour)
		table.Get(key{-1})
		if got := m.Len(); got != 1 || m.Evictions() != 600 {
			t.Errorf("after an hour it keeps %d, and %d had to go", got, m.Evictions())
		}
	})
}

func TestMemoOff(t *testing.T) {
	m := envoy.NewMemo(0, nil)
	table := envoy.NewMemoTable(m, func(k key) *envoy.Resource { return cluster(fmt.Sprint(k.n)) })
	a, b := table.Get(key{1}), table.Get(key{1})
	if a == b || a.Version != b.Version || table.Len() != 0 {
		t.Error("a memo that is off remembers, or builds different bytes")
	}
	if hits, misses := m.Stats(); hits != 0 || misses != 2 {
		t.Errorf("%d hits, %d misses", hits, misses)
	}
}

// TestMemoForgets: an unused resource that is not among the newest goes. A resource that somebody holds stays, however
// many others come.
func TestMemoForgets(t *testing.T) {
	m := envoy.NewMemo(3, nil)
	table := envoy.NewMemoTable(m, func(k key) *envoy.Resource { return cluster(fmt.Sprint(k.n)) })
	held := table.Get(key{0})
	for i := range 200 {
		table.Get(key{i})
	}
	for deadline := time.Now().Add(2 * time.Minute); table.Len() > 4; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d resources are remembered", table.Len())
		}
		runtime.GC()
	}
	if table.Get(key{0}) != held {
		t.Error("what is in use was forgotten")
	}
	runtime.KeepAlive(held)
}

// TestMemoConcurrent: all who ask for one key at the same time get one pointer.
func TestMemoConcurrent(t *testing.T) {
	m := envoy.NewMemo(4, nil)
	table := envoy.NewMemoTable(m, func(k key) *envoy.Resource { return cluster(fmt.Sprint(k.n)) })
	var wg sync.WaitGroup
	got := make([][]*envoy.Resource, 8)
	for i := range got {
		wg.Go(func() {
			for n := range 200 {
				got[i] = append(got[i], table.Get(key{n}))
				if n%50 == 0 {
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
	for i := range got {
		if !slices.Equal(got[i], got[0]) {
			t.Fatalf("goroutine %d got other pointers", i)
		}
	}
	if hits, misses := m.Stats(); hits+misses != 1600 {
		t.Errorf("%d hits, %d misses", hits, misses)
	}
}

func TestAddress(t *testing.T) {
	if a := envoy.Address("10.0.0.1", 80).GetSocketAddress(); a.GetAddress() != "10.0.0.1" || a.GetPortValue() != 80 {
		t.Errorf("%v", a)
	}
	if a := envoy.Address("unix:///run/x.sock", 0).GetPipe(); a.GetPath() != "/run/x.sock" {
		t.Errorf("%v", a)
	}
	if envoy.IstioMetadata(nil) != nil ||
		envoy.IstioMetadata(map[string]*structpb.Value{"a": envoy.Text("b")}).FilterMetadata["istio"].Fields["a"].GetStringValue() != "b" {
		t.Error("metadata")
	}
}

// TestMemoCountsNames: the bound counts all memory of unused resources, so that few small ones with long names fit.
func TestMemoCountsNames(t *testing.T) {
	const idle, length = 1 << 20, 1 << 10
	m := envoy.NewMemo(idle, nil)
	table := envoy.NewMemoTable(m, func(k key) *envoy.Resource {
		r := cluster(fmt.Sprintf("%0*d", length, k.n))
		r.Body = nil
		return r
	})
	for n := range 2000 {
		table.Get(key{n})
	}
	for deadline := time.Now().Add(2 * time.Minute); table.Len() > idle/length/2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d resources are remembered", table.Len())
		}
		runtime.GC()
	}
}

// TestNamesOnly: NamesOnly recognises an assignment without endpoints.
func TestNamesOnly(t *testing.T) {
	name := strings.Repeat("c", 200) // its length takes two bytes
	a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	if !envoy.NewResource(name, a).NamesOnly() {
		t.Error("an assignment that has nothing has something")
	}
	a.Endpoints = []*endpointv3.LocalityLbEndpoints{{}}
	if envoy.NewResource(name, a).NamesOnly() {
		t.Error("an assignment that has something has nothing")
	}
}
