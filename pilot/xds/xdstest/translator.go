package xdstest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Translator returns the resources that a test has published for each revision. An assignment has the name of its
// service's host.
type Translator struct {
	mu     sync.Mutex
	worlds map[uint64]*fakeWorld
	calls  map[string]int
	sets   map[string]*envoy.Set
	Block  chan struct{} // optional; every call waits until it is closed
	Still  atomic.Bool   // proxies never change their cohorts
	Empty  atomic.Bool   // missing assignments are in Union.Empty
	Held   sync.Map      // by proxy ID: a channel that delays its calls until it is closed
	Kept   atomic.Int64  // bytes for each cohort except the first
	Each   atomic.Bool   // each proxy has its own cohort
	Refers atomic.Bool   // clusters and listeners are messages that refer to assignments, route configurations and secrets
	Routes atomic.Bool   // route configurations are messages that route to the cluster in their version, after a dot
	keys   *cohort.Interner
}

type fakeWorld struct {
	resources map[string]map[string]*envoy.Resource
	unions    map[string]envoy.Union
	poison    map[string]bool // type, or type/name
	same      bool            // equal to the previous world
}

// NewTranslator returns a Translator whose world 0 is empty.
func NewTranslator() *Translator {
	return &Translator{keys: cohort.NewInterner(), worlds: map[uint64]*fakeWorld{0: {}}, calls: map[string]int{}}
}

// Publish adds a world that differs from the newest by edits: "<type> <name>=<version>" sets a resource, "<type>
// <name>" removes it, and "<type> !<name>" makes its translation fail.
func (f *Translator) Publish(full bool, edits ...string) *snapshot.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	rev := uint64(len(f.worlds))
	old := f.worlds[rev-1]
	w := &fakeWorld{resources: map[string]map[string]*envoy.Resource{}, unions: maps.Clone(old.unions), poison: map[string]bool{}}
	if w.unions == nil {
		w.unions = map[string]envoy.Union{}
	}
	for t, m := range old.resources {
		w.resources[t] = maps.Clone(m)
	}
	s := &snapshot.Snapshot{Revision: rev}
	s.Diff.Full = full
	s.Diff.Triggers = map[string]int{"config": 1}
	touched := map[string]bool{}
	for _, e := range edits {
		short, rest, _ := strings.Cut(e, " ")
		// The edit "!share <namespace>[/<account>] <name>" shares a secret in this world only.
		if secret, is := strings.CutPrefix(e, "!share "); is {
			with, resource, _ := strings.Cut(secret, " ")
			namespace, account, _ := strings.Cut(with, "/")
			s.Shared = snapshot.ShareSecrets(kinds.SharedSecret{Namespace: namespace, Account: account, Resource: resource})
			continue
		}
		if e == "!join" {
			w.poison["/join"] = true
			continue
		}
		t := LongType(short)
		if name, ok := strings.CutPrefix(rest, "!"); ok {
			w.poison[t+"/"+name] = true
			touched[t] = true
			continue
		}
		if w.resources[t] == nil {
			w.resources[t] = map[string]*envoy.Resource{}
		}
		name, version, ok := strings.Cut(rest, "=")
		if ok {
			w.resources[t][name] = Resource(name, version)
			switch {
			case envoy.TypeOf(t).Secret:
				w.resources[t][name] = Secret(name, version)
			case f.Refers.Load() && t == envoy.ClusterType:
				w.resources[t][name] = cluster(name, version)
			case f.Refers.Load() && t == envoy.ListenerType:
				w.resources[t][name] = listener(name, version)
			case f.Routes.Load() && t == envoy.RouteType:
				w.resources[t][name] = route(name, version)
			}
		} else {
			delete(w.resources[t], name)
		}
		touched[t] = true
		if short == "eds" {
			s.Diff.Endpoints = append(s.Diff.Endpoints, registry.ServiceKey{Namespace: "a", Host: name})
		}
	}
	for t := range touched {
		// Two halves, so that tests cover both.
		var out, in []*envoy.Resource
		for _, name := range slices.Sorted(maps.Keys(w.resources[t])) {
			if strings.HasPrefix(name, "in") {
				in = append(in, w.resources[t][name])
			} else {
				out = append(out, w.resources[t][name])
			}
		}
		w.unions[t] = envoy.Union{Shared: envoy.NewSet(out), Own: envoy.NewSet(in)}
	}
	w.same = len(edits) == 0
	f.worlds[rev] = w
	return s
}

func (f *Translator) world(s *snapshot.Snapshot, call string) *fakeWorld {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call]++
	return f.worlds[s.Revision]
}

// Count returns the number of calls.
func (f *Translator) Count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

// ResolveCohort implements session.Translator.
func (f *Translator) ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) cohort.Key {
	if w := f.world(s, "join"); w.poison["/join"] {
		panic("join is poisoned")
	}
	if f.Block != nil {
		<-f.Block
	}
	if c, ok := f.Held.Load(p.ID); ok {
		<-c.(chan struct{})
	}
	k := cohort.Key{Node: string(p.Type)}
	if f.Each.Load() {
		k = f.keys.Intern(cohort.Inputs{Client: cohort.Client{Type: p.Type, Domain: p.ID}})
	}
	return k
}

// Compare implements session.Translator.
func (f *Translator) Compare(s *snapshot.Snapshot) bool { return s.Diff.Full }

// ReassignsOnly implements xds.Translator.
func (f *Translator) ReassignsOnly(s *snapshot.Snapshot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.worlds[s.Revision].same
}

// Bytes implements xds.Translator.
func (f *Translator) Bytes(cohorts []cohort.Key) int { return int(f.Kept.Load()) * (len(cohorts) - 1) }

// NeedsReassign implements session.Translator.
func (f *Translator) NeedsReassign(*snapshot.Snapshot, *node.Proxy, cohort.Key, uint64) bool {
	return !f.Still.Load()
}

// Get implements session.Translator.
func (f *Translator) Get(s *snapshot.Snapshot, _ cohort.Key, typeURL string, names *envoy.Names) (envoy.Union, error) {
	if names == nil {
		return f.wildcard(s, typeURL), nil
	}
	return f.subscribed(s, typeURL, names)
}

func (f *Translator) wildcard(s *snapshot.Snapshot, typeURL string) envoy.Union {
	w := f.world(s, "wildcard "+envoy.ShortType(typeURL))
	if w.poison[typeURL+"/*"] {
		panic(fmt.Sprintf("%s is poisoned", typeURL))
	}
	if envoy.TypeOf(typeURL).Complete || slices.Contains([]string{envoy.NameTableType, envoy.ProxyConfigType}, typeURL) {
		return w.unions[typeURL]
	}
	return envoy.Union{}
}

func (f *Translator) subscribed(s *snapshot.Snapshot, typeURL string, names *envoy.Names) (envoy.Union, error) {
	w := f.world(s, "subscribed "+envoy.ShortType(typeURL))
	var list []*envoy.Resource
	var failed []string
	var err error
	for name := range names.Each() {
		switch r := w.resources[typeURL][name]; {
		case w.poison[typeURL+"/"+name]:
			err = errors.Join(err, fmt.Errorf("panic in translate %s: %s %s is poisoned", envoy.ShortType(typeURL), typeURL, name))
			failed = append(failed, name)
		case r != nil && typeURL == envoy.RouteType:
			list = append(list, fakeRoute(r, w.resources[envoy.VirtualHostType]))
		case r != nil:
			list = append(list, r)
		case typeURL == envoy.EndpointType && f.Empty.Load():
		case envoy.TypeOf(typeURL).Total:
			list = append(list, Resource(name, "none"))
		}
	}
	u := f.same(s, typeURL, envoy.NewSet(list))
	if typeURL == envoy.EndpointType && f.Empty.Load() {
		u.Empty, u.Failed = names, new(envoy.NameInterner).Intern(failed)
	}
	return u, err
}

// fakeRoute returns a route configuration with its virtual hosts, whose names begin with its own.
func fakeRoute(r *envoy.Resource, all map[string]*envoy.Resource) *envoy.Resource {
	var hosts []*envoy.Resource
	whole := &envoy.Resource{Name: r.Name, Version: r.Version, Header: r}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, r.Name+"/") {
			hosts = append(hosts, all[name])
			whole.Version += "+" + strings.TrimPrefix(name, r.Name+"/") + all[name].Version
		}
	}
	if hosts == nil {
		return r
	}
	whole.Body = protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), whole.Name+"="+whole.Version)
	whole.Hosts, whole.Head = envoy.NewSet(hosts), Resource(r.Name, "head")
	whole.Head.Version = ""
	whole.Head.SetDivided()
	return whole
}

// same returns an equal Set of an earlier call if there is one, as translators should.
func (f *Translator) same(s *snapshot.Snapshot, typeURL string, set *envoy.Set) envoy.Union {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := typeURL
	for r := range set.All {
		key += " " + r.Name + "=" + r.Version
	}
	if f.sets == nil {
		f.sets = map[string]*envoy.Set{}
	}
	if f.sets[key] == nil || s.Revision%7 == 0 {
		f.sets[key] = set
	}
	return envoy.Union{Shared: f.sets[key]}
}

// LongType returns the type URL for a short name. An unknown name makes up a type.
func LongType(short string) string {
	switch short {
	case "":
		return ""
	case "cds":
		return envoy.ClusterType
	case "eds":
		return envoy.EndpointType
	case "lds":
		return envoy.ListenerType
	case "rds":
		return envoy.RouteType
	case "vhds":
		return envoy.VirtualHostType
	case "sds":
		return envoy.SecretType
	case "pcds":
		return envoy.ProxyConfigType
	case "nds":
		return envoy.NameTableType
	}
	return "type.googleapis.com/" + short
}
