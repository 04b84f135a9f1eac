package translate_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// typeURLs are the types of what references.config returns.
var typeURLs = map[string]string{
	clusters: envoy.ClusterType, listeners: envoy.ListenerType, assignments: envoy.EndpointType, routings: envoy.RouteType,
	extensions: envoy.ExtensionType,
}

// addAll adds all that proxies are sent to what an Envoy is asked about.
func addAll(t testing.TB, all *envoytest.Resources, from string, refs *references, tr *translate.Translator, s *snapshot.Snapshot,
	proxies map[string]*node.Proxy) {
	t.Helper()
	for _, who := range slices.Sorted(maps.Keys(proxies)) {
		for name, r := range refs.config(t, tr, s, proxies[who]) {
			typ, _, _ := strings.Cut(name, " ")
			if r != nil && typeURLs[typ+" "] != "" {
				all.Add(t, from+": "+who, typeURLs[typ+" "], r)
			}
		}
	}
}

// TestEnvoysTakeTheReference asks a real Envoy about all that the proxies of every world of the reference are sent.
func TestEnvoysTakeTheReference(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	histories.NoRace(t)
	t.Parallel()
	all, refs := &envoytest.Resources{}, &references{seen: map[string][]string{}}
	for _, c := range referenceCases(t) {
		w := c.world(t)
		w.keys = jwks.AcceptsNone
		s := w.apply(c.objects...)
		addAll(t, all, c.name, refs, newTranslator(1<<20), s, referenceNodes(t, c))
	}
	if all.Len() < 1000 {
		t.Fatalf("only %d resources", all.Len())
	}
	// These EnvoyFilters show what patches do, in filters that no Envoy has.
	patched := regexp.MustCompile("^(28-patched-network-filters|40-patched-lists): ")
	refused := map[string]bool{}
	for _, r := range all.Refused(t) {
		if refused[patched.FindString(r.From)] = true; !patched.MatchString(r.From) {
			t.Errorf("Envoy refuses %s: %s", r.From, r.Reason)
		}
	}
	if len(refused) < 2 {
		t.Errorf("an Envoy takes cases that are said to be refused: %v are", refused)
	}
}

// TestEnvoysTakeWhatIsAccepted changes objects of every kind at random, gives those that validation accepts to a mesh,
// and asks a real Envoy about all that proxies are sent then. EnvoyFilters are left out: what they patch is up to them.
func TestEnvoysTakeWhatIsAccepted(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	f := newFieldTest(t)
	f.world.keys = jwks.AcceptsNone
	seeds := seedObjects(t)
	all := &envoytest.Resources{}
	f.translator.Prepare(f.world.apply())
	addAll(t, all, "without an object", f.references, f.translator, f.world.apply(), f.proxies)
	var accepted, drawn int
	rapid.Check(t, func(rt *rapid.T) {
		g := &mutation{rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))}
		for range 4 {
			var changes []kinds.Change
			from := ""
			for range 1 + g.IntN(3) {
				kind := seeds.kinds[g.IntN(len(seeds.kinds))]
				spec := proto.Clone(seeds.specs[kind][g.IntN(len(seeds.specs[kind]))])
				for range 1 + g.IntN(3) {
					g.change(spec.ProtoReflect(), 0)
				}
				meta := validation.Metadata{Namespace: "a", Name: fmt.Sprint("x", len(changes))}
				drawn++
				o := validation.Message(limits.Default(), kind, meta, spec).Object
				if o == nil || slices.ContainsFunc(changes, func(c kinds.Change) bool { return c.Key == o.Key }) {
					continue
				}
				accepted++
				changes = append(changes, kinds.Change{Key: o.Key, Object: o})
				from += fmt.Sprintf("\n  %s %s", o.Key, protojson.MarshalOptions{}.Format(o.Spec.(proto.Message)))
			}
			if changes == nil {
				continue
			}
			s := f.world.apply(changes...)
			f.translator.Prepare(s)
			addAll(t, all, from, f.references, f.translator, s, f.proxies)
			for i := range changes {
				changes[i].Object = f.original[changes[i].Key]
			}
			f.translator.Prepare(f.world.apply(changes...))
		}
	})
	t.Logf("%d of %d objects were accepted; %d resources", accepted, drawn, all.Len())
	if accepted < drawn/5 {
		t.Errorf("only %d of %d objects were accepted", accepted, drawn)
	}
	all.Check(t)
}

// seeds are the objects that random ones are made from, by kind.
type seeds struct {
	kinds []*kinds.Kind
	specs map[*kinds.Kind][]proto.Message
}

func seedObjects(t testing.TB) seeds {
	all := seeds{specs: map[*kinds.Kind][]proto.Message{}}
	var files []string
	for _, pattern := range []string{"testdata/fields/*.yaml", "testdata/reference/cases/*/objects.yaml"} {
		found, err := filepath.Glob(pattern)
		must.Succeed(t, err)
		files = append(files, found...)
	}
	for _, file := range files {
		if filepath.Base(file) == "MeshConfig.yaml" {
			continue
		}
		for _, c := range objects(t, file, read(t, file)) {
			if c.Kind.Istio && c.Kind != kinds.EnvoyFilter && c.Kind != kinds.WorkloadGroup && c.Kind != kinds.ProxyConfig {
				all.specs[c.Kind] = append(all.specs[c.Kind], c.Object.Spec.(proto.Message))
			}
		}
	}
	for _, k := range kinds.All() {
		if all.specs[k] != nil {
			all.kinds = append(all.kinds, k)
		}
	}
	return all
}
