package scope_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestDirtyHostsAndListeners checks which hosts and listeners a change affects, in a mesh with aliases, a routed
// pattern, and two services of one address.
func TestDirtyHostsAndListeners(t *testing.T) {
	service := func(ns, name string, change ...func(*registry.Service)) *registry.Service {
		s := &registry.Service{Host: name + "." + ns, Namespace: ns, Name: name,
			Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}, {Name: "tcp", Number: 90, Protocol: protocols.TCP}}}
		for _, c := range change {
			c(s)
		}
		return s
	}
	at := func(address string) func(*registry.Service) {
		return func(s *registry.Service) { s.Addresses = []string{address} }
	}
	alias := func(of string) func(*registry.Service) {
		return func(s *registry.Service) { s.Resolution, s.ExternalName = registry.Alias, of }
	}
	object := func(kind *kinds.Kind, ns, name, spec string) *kinds.Object {
		o := &kinds.Object{Key: kinds.Key{Kind: kind, Namespace: ns, Name: name}, Spec: kind.New()}
		must.Succeed(t, protojson.Unmarshal([]byte(spec), o.Spec.(proto.Message)))
		return o
	}
	for _, c := range []struct {
		name    string
		service *registry.Service
		object  *kinds.Object
		want    string
		all     bool
		places  string
	}{
		{name: "a service", service: service("a", "new", at("10.0.0.9")), want: "new.a", places: "10.0.0.9:80 10.0.0.9:90 :80 :90?"},
		{name: "a service without address", service: service("a", "new"), want: "new.a", places: ":80 :90"},
		{name: "one that shares its address", service: service("a", "new", at("10.0.0.1")), want: "new.a web.a",
			places: "10.0.0.1:80 10.0.0.1:80 10.0.0.1:90 10.0.0.1:90 :80 :80 :90? :90?"},
		{name: "one that names stand for, and that is routed to", service: service("a", "web", at("10.0.0.1")),
			want: "*.wild also.a other.a routed.example web.a x.wild"},
		{name: "a name", service: service("a", "third", alias("other.a")), want: "*.wild also.a other.a routed.example third.a web.a x.wild"},
		{name: "one that a pattern routes", service: service("wild", "y"), want: "*.wild routed.example y.wild"},
		{name: "one that a partial pattern routes", service: service("part", "y-p"), want: "*-p.part y-p.part"},
		{name: "routes of a partial pattern", object: object(kinds.VirtualService, "a", "v",
			`{"hosts":["*p.part"],"http":[{"timeout":"1s"}]}`), want: "*-p.part *p.part x-p.part"},
		{name: "a rule", object: object(kinds.DestinationRule, "a", "r", `{"host":"free.a"}`), want: "free.a", places: ":80 :90"},
		{name: "a rule of a pattern", object: object(kinds.DestinationRule, "a", "r", `{"host":"*.free"}`), want: "*.free"},
		{name: "routes", object: object(kinds.VirtualService, "a", "v",
			`{"hosts":["free.a"],"http":[{"route":[{"destination":{"host":"x.wild"}}]}]}`), want: "free.a x.wild"},
		{name: "routes of a gateway", object: object(kinds.VirtualService, "a", "v", `{"hosts":["free.a"],"gateways":["gw"]}`), want: "free.a"},
		{name: "a delegate", object: object(kinds.VirtualService, "a", "part",
			`{"http":[{"route":[{"destination":{"host":"free.a"}}]}]}`), want: "free.a root.example"},
		{name: "a Sidecar", object: object(kinds.Sidecar, "a", "s", `{}`), want: ""},
		{name: "a policy of peers", object: object(kinds.PeerAuthentication, "a", "p", `{}`), want: "", all: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
			enter := func(services []*registry.Service, objects ...*kinds.Object) *snapshot.Snapshot {
				changes := registry.Changes{Services: map[registry.ServiceKey]*registry.Service{}}
				for _, s := range services {
					changes.Services[s.Key()] = s
				}
				b.ApplyRegistry(changes)
				for _, o := range objects {
					b.Apply([]kinds.Change{{Key: o.Key, Object: o}})
				}
				return b.Commit(time.Time{})
			}
			first := scope.NewIndex(enter(
				[]*registry.Service{service("a", "web", at("10.0.0.1")), service("a", "free"), service("a", "other", alias("web.a")),
					service("a", "also", alias("other.a")), service("wild", "x"), service("part", "x-p")},
				object(kinds.VirtualService, "a", "wild",
					`{"hosts":["*.wild","routed.example"],"http":[{"route":[{"destination":{"host":"other.a"}}]}]}`),
				object(kinds.VirtualService, "a", "partial", `{"hosts":["*-p.part"],"http":[{"timeout":"1s"}]}`),
				object(kinds.VirtualService, "a", "root", `{"hosts":["root.example"],"http":[{"delegate":{"name":"part"}}]}`),
			), nil)
			if !first.Dirty.All {
				t.Error("the first Index is not all dirty")
			}
			var s *snapshot.Snapshot
			if c.service != nil {
				s = enter([]*registry.Service{c.service})
			} else {
				s = enter(nil, c.object)
			}
			x := scope.NewIndex(s, first)
			if got := strings.Join(x.Dirty.Hosts, " "); got != c.want || x.Dirty.All != c.all {
				t.Errorf("reaches %q, all %v", got, x.Dirty.All)
			}
			var places []string
			for _, p := range x.Dirty.Listeners {
				place := p.Address + ":" + map[uint32]string{80: "80", 90: "90"}[p.Port]
				if p.Address == "" && !p.Wildcard {
					place += "?" // only of a Sidecar's own listeners
				}
				places = append(places, place)
			}
			if slices.Sort(places); c.places != "" && strings.Join(places, " ") != c.places {
				t.Errorf("places %v", places)
			}
		})
	}
}

// reaches is a Catalog whose objects need no facts.
type reaches map[*kinds.Kind]snapshot.Reach

func (r reaches) Kinds() map[*kinds.Kind]snapshot.Reach { return r }
func (reaches) Wants(*kinds.Object) []facts.Want        { return nil }

// TestUnreadKindsAreRefused checks that kinds which snapshots do not compare cannot be read. Otherwise proxies would
// keep outdated configuration.
func TestUnreadKindsAreRefused(t *testing.T) {
	compared := reaches{kinds.Gateway: snapshot.Everywhere, kinds.Telemetry: snapshot.Selected}
	x := scope.NewIndex(snapshot.NewBuilder(snapshot.Options{Mesh: mesh.Default(), Catalog: compared}).Commit(time.Time{}), nil)
	for _, k := range kinds.All() {
		for what, read := range map[string]func(){
			"Objects": func() { x.Objects(k, "a") }, "AllObjects": func() { x.AllObjects(k) }, "Object": func() { x.Object(kinds.Key{Kind: k}) },
		} {
			refused := func() (refused bool) {
				defer func() { refused = recover() != nil }()
				read()
				return false
			}()
			if refused != (compared[k] == snapshot.Unread) {
				t.Errorf("%s of %s: refused %v", what, k.Name, refused)
			}
		}
	}
}

// TestCompare checks for which changes of endpoints every stream compares all that it has, and for which only
// assignments can differ.
func TestCompare(t *testing.T) {
	endpoint := func(change func(*registry.Endpoint)) *registry.Endpoint {
		e := &registry.Endpoint{Address: "10.1.0.1", ServicePort: "http", Port: 80, Identity: "spiffe://cluster.local/ns/a/sa/web",
			TLSMode: "istio"}
		change(e)
		return e
	}
	weight := func(e *registry.Endpoint) { e.Weight = 5 }
	address := func(e *registry.Endpoint) { e.Address = "10.1.0.2" }
	network := func(e *registry.Endpoint) { e.Network = "n1" }
	subDomain := func(e *registry.Endpoint) { e.SubDomain = "web" }
	draining := func(e *registry.Endpoint) { e.Health = registry.Draining }
	plain := func(e *registry.Endpoint) { e.TLSMode = "" }
	identity := func(e *registry.Endpoint) { e.Identity = "spiffe://cluster.local/ns/a/sa/canary" }
	headless := func(s *registry.Service) { s.Headless, s.Resolution = true, registry.Passthrough }
	for _, c := range []struct {
		name    string
		service func(*registry.Service)
		change  func(*registry.Endpoint)
		want    bool
	}{
		{"weight", func(*registry.Service) {}, weight, false},
		{"address", func(*registry.Service) {}, address, false},
		{"mTLS", func(*registry.Service) {}, plain, false},
		{"identity", func(*registry.Service) {}, identity, true},
		{"network", func(*registry.Service) {}, network, false},
		{"headless: weight", headless, weight, false},
		{"headless: address", headless, address, true},
		{"headless: network", headless, network, true},
		{"headless: subdomain", headless, subDomain, true},
		{"headless: draining", headless, draining, true},
		{"headless: mTLS", headless, plain, true},
		{"headless in another cluster: address", func(s *registry.Service) {
			in := *s
			headless(&in)
			s.Clusters = map[string]*registry.Service{"remote": &in}
		}, address, true},
		{"DNS: weight", func(s *registry.Service) { s.Resolution = registry.DNS }, weight, true},
	} {
		s := &registry.Service{Host: "web.a", Namespace: "a", Name: "web",
			Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}}}
		c.service(s)
		b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
		index := func(last *scope.Index, changes registry.Changes) *scope.Index {
			b.ApplyRegistry(changes)
			return scope.NewIndex(b.Commit(time.Time{}), last)
		}
		endpoints := func(change func(*registry.Endpoint)) map[registry.ServiceKey][]*registry.Endpoint {
			return map[registry.ServiceKey][]*registry.Endpoint{s.Key(): {endpoint(change)}}
		}
		x := index(nil, registry.Changes{Services: map[registry.ServiceKey]*registry.Service{s.Key(): s},
			Endpoints: endpoints(func(*registry.Endpoint) {})})
		if !x.Dirty.Compare {
			t.Errorf("%s: the first Index is compared with nothing", c.name)
		}
		if got := index(x, registry.Changes{Endpoints: endpoints(c.change)}).Dirty.Compare; got != c.want {
			t.Errorf("%s: compared %v, want %v", c.name, got, c.want)
		}
	}
}
