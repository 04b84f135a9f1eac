package api

import (
	"strings"
	"sync"
	"time"
	"weak"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Generator returns the objects of a kind as resources.
type Generator struct {
	resources *envoy.MemoTable[*kinds.Object]
	relay     bool

	mu   sync.Mutex
	sets map[*kinds.Kind]made
}

// made is the list of one kind, as of a revision.
type made struct {
	revision uint64
	set      weak.Pointer[envoy.Set]
}

// idle is how many bytes are kept of resources that no client has, for those that flip back and forth.
const idle = 1 << 20

// New makes a Generator. With relay it also returns the objects that came from other control planes. now is the clock.
func New(relay bool, now func() time.Time) *Generator {
	return &Generator{resources: envoy.NewMemoTable(envoy.NewMemo(idle, now), resource), relay: relay, sets: map[*kinds.Kind]made{}}
}

// ResolveCohort implements session.Translator: all readers are sent the same.
func (g *Generator) ResolveCohort(*snapshot.Snapshot, *node.Proxy) cohort.Key { return cohort.Key{} }

// NeedsReassign implements session.Translator.
func (g *Generator) NeedsReassign(*snapshot.Snapshot, *node.Proxy, cohort.Key, uint64) bool {
	return false
}

// Get implements session.Translator: it returns all objects of the kind that a type URL names.
func (g *Generator) Get(s *snapshot.Snapshot, _ cohort.Key, typeURL string, _ *envoy.Names) (envoy.Union, error) {
	return envoy.Union{Shared: g.Set(s, typeURL)}, nil
}

// Set returns the objects of the kind that a type URL names. Equal content is the same pointer as long as anybody holds
// it.
func (g *Generator) Set(s *snapshot.Snapshot, typeURL string) *envoy.Set {
	kind := kindOf(typeURL)
	if kind == nil {
		return nil
	}
	g.mu.Lock()
	last := g.sets[kind]
	g.mu.Unlock()
	old := last.set.Value()
	if old != nil && last.revision == s.Revision {
		return old
	}
	objects := s.AllObjects(kind)
	list := make([]*envoy.Resource, 0, len(objects))
	for _, o := range objects {
		if g.relay || !o.Relayed {
			list = append(list, g.resources.Get(o))
		}
	}
	set := envoy.NewSet(list)
	if old.Equal(set) {
		set = old
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sets[kind].revision <= s.Revision {
		g.sets[kind] = made{s.Revision, weak.Make(set)}
	}
	return set
}

// kindOf returns the Istio kind that <group>/<version>/<Kind> names, or nil.
func kindOf(typeURL string) *kinds.Kind {
	i := strings.LastIndexByte(typeURL, '/')
	if i < 0 {
		return nil
	}
	k := kinds.Find(typeURL[:i], typeURL[i+1:])
	if k == nil || !k.Istio {
		return nil
	}
	return k
}

// resource encodes one object. An object of unknown age says so as real istiods do, by the year 1: without a time
// clients would read 1970.
func resource(o *kinds.Object) *envoy.Resource {
	created := o.Created
	if created.IsZero() {
		created = time.Time{}
	}
	name := o.Namespace + "/" + o.Name
	m := &mcpv1alpha1.Resource{
		Metadata: &mcpv1alpha1.Metadata{Name: name, CreateTime: timestamppb.New(created), Labels: o.Labels, Annotations: o.Annotations},
		Body:     envoy.Any(o.Spec.(proto.Message)),
	}
	m.Metadata.Version = envoy.NewResource(name, m).Version // clients may take equal versions for equal objects
	return envoy.NewResource(name, m)
}
