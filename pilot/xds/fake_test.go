package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// fakeTranslator gives what a test wrote down for each revision. An assignment has the name of its service's host.
type fakeTranslator struct {
	mu     sync.Mutex
	worlds map[uint64]*fakeWorld
	calls  map[string]int
	block  chan struct{} // when set, every call waits for it to be closed
}

type fakeWorld struct {
	resources map[string]map[string]*envoy.Resource
	unions    map[string]envoy.Union
	poison    map[string]bool // type, or type/name
}

func newFakeTranslator() *fakeTranslator {
	return &fakeTranslator{worlds: map[uint64]*fakeWorld{0: {}}, calls: map[string]int{}}
}

func fakeResource(name, version string) *envoy.Resource {
	return &envoy.Resource{Name: name, Version: version, Body: appendText(nil, 2, name+"="+version)} // an Any of no type
}

// publish adds a world that differs from the newest by edits "<type> <name>=<version>" or "<type> <name>" (gone) or "<type> !<name>" (poisoned).
func (f *fakeTranslator) publish(full bool, edits ...string) *snapshot.Snapshot {
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
	s.Delta.Full = full
	s.Delta.Triggers = map[string]int{"config": 1}
	touched := map[string]bool{}
	for _, e := range edits {
		short, rest, _ := strings.Cut(e, " ")
		if e == "!join" {
			w.poison["/join"] = true
			continue
		}
		t := longType(short)
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
			w.resources[t][name] = fakeResource(name, version)
		} else {
			delete(w.resources[t], name)
		}
		touched[t] = true
		if short == "eds" {
			s.Delta.Endpoints = append(s.Delta.Endpoints, registry.ServiceKey{Namespace: "a", Host: name})
		}
	}
	for t := range touched {
		// Two halves, so that both are compared.
		var out, in []*envoy.Resource
		for _, name := range slices.Sorted(maps.Keys(w.resources[t])) {
			if strings.HasPrefix(name, "in") {
				in = append(in, w.resources[t][name])
			} else {
				out = append(out, w.resources[t][name])
			}
		}
		w.unions[t] = envoy.Union{Outbound: envoy.NewSet(out), Inbound: envoy.NewSet(in)}
	}
	f.worlds[rev] = w
	return s
}

func (f *fakeTranslator) world(s *snapshot.Snapshot, call string) *fakeWorld {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call]++
	return f.worlds[s.Revision]
}

func (f *fakeTranslator) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fakeTranslator) Join(s *snapshot.Snapshot, p *node.Proxy) Cohort {
	if w := f.world(s, "join"); w.poison["/join"] {
		panic("join is poisoned")
	}
	if f.block != nil {
		<-f.block
	}
	return p.Type
}

func (f *fakeTranslator) Wildcard(s *snapshot.Snapshot, _ Cohort, typeURL string) envoy.Union {
	w := f.world(s, "wildcard "+ShortType(typeURL))
	if w.poison[typeURL+"/*"] {
		panic(fmt.Sprintf("%s is poisoned", typeURL))
	}
	if typeURL == envoy.ClusterType || typeURL == envoy.ListenerType || typeURL == nameTableType {
		return w.unions[typeURL]
	}
	return envoy.Union{}
}

func (f *fakeTranslator) Named(s *snapshot.Snapshot, _ Cohort, typeURL, name string) *envoy.Resource {
	w := f.world(s, "named "+ShortType(typeURL))
	if w.poison[typeURL+"/"+name] {
		panic(fmt.Sprintf("%s %s is poisoned", typeURL, name))
	}
	if r := w.resources[typeURL][name]; r != nil {
		return r
	}
	if typeURL == envoy.EndpointType || typeURL == envoy.RouteType {
		return fakeResource(name, "none")
	}
	return nil
}

func (f *fakeTranslator) Assignments(_ *snapshot.Snapshot, _ Cohort, key registry.ServiceKey) []string {
	return []string{key.Host}
}

func longType(short string) string {
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
	case "sds":
		return secretType
	case "nds":
		return nameTableType
	}
	return "type.googleapis.com/" + short
}
