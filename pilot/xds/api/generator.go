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

// Generator makes resources of the objects of a kind.
type Generator struct {
	resources *envoy.MemoTable[*kinds.Object]
	relay     bool

	mu   sync.Mutex
	sets map[*kinds.Kind]made
}

// made is the list of one kind at a revision.
type made struct {
	revision uint64
	set      weak.Pointer[envoy.Set]
}

// idle bounds the bytes of cached resources that no client has, which help if objects change back.
const idle = 1 << 20

// New returns a Generator. If relay is true, it includes objects from other control planes. now is the clock.
func New(relay bool, now func() time.Time) *Generator {
	return &Generator{resources: envoy.NewMemoTable(envoy.NewMemo(idle, now), resource), relay: relay, sets: map[*kinds.Kind]made{}}
}

// ResolveCohort implements session.Translator. All readers are in one cohort.
func (g *Generator) ResolveCohort(*snapshot.Snapshot, *node.Proxy) cohort.Key { return cohort.Key{} }

// NeedsReassign implements session.Translator.
func (g *Generator) NeedsReassign(*snapshot.Snapshot, *node.Proxy, cohort.Key, uint64) bool {
	return false
}

// Get implements session.Translator. It returns all objects of the kind of a type URL.
func (g *Generator) Get(s *snapshot.Snapshot, _ cohort.Key, typeURL string, _ *envoy.Names) (envoy.Union, error) {
	return envoy.Union{Shared: g.Set(s, typeURL)}, nil
}

// Set returns the objects of the kind of a type URL. It returns the same pointer for equal content as long as the Set
// is in use.
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

// kindOf returns the Istio kind for <group>/<version>/<Kind>, or nil.
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

// resource encodes one object. An unknown time of creation is the year 1, as in istiod, because clients would read a
// missing time as 1970.
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
	m.Metadata.Version = envoy.NewResource(name, m).Version // clients may assume that objects with equal versions are equal
	return envoy.NewResource(name, m)
}
