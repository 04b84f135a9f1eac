package featuretest

import (
	_ "embed"
	"flag"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

var update = flag.Bool("update", false, "write the goldens anew")

//go:embed world.yaml
var world []byte

// Run checks the goldens of a feature, and that a real Envoy accepts the resources. refused are prefixes of the errors
// that are expected, as "GOLDEN: PROXY: TYPE NAME".
func Run(t *testing.T, f *feature.Feature, refused ...string) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	others := slices.DeleteFunc(catalog.Features(), func(o *feature.Feature) bool { return o.Name == f.Name })
	if len(others) == len(catalog.Features()) {
		t.Fatalf("%s is not in the catalog", f.Name)
	}
	all := &envoytest.Resources{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := golden(t, a, others, all)
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(txtar.Format(a)), string(txtar.Format(got))); d != "" {
				t.Error(d)
			}
		})
	}
	for _, r := range all.Refused(t) {
		if !slices.ContainsFunc(refused, func(prefix string) bool { return strings.HasPrefix(r.From, prefix) }) {
			t.Errorf("Envoy refuses %s: %s", r.From, r.Reason)
		}
	}
}

// golden returns the golden that an archive should be. others are all features except the one under test.
func golden(t *testing.T, a *txtar.Archive, others []*feature.Feature, all *envoytest.Resources) *txtar.Archive {
	before := config{t, others, map[string][]byte{"base.yaml": world}, []byte("enableTracing: false\n"), compliance.None}
	after := config{t, catalog.Features(), map[string][]byte{}, nil, compliance.None}
	nodes := map[string]*corev3.Node{}
	got := &txtar.Archive{Comment: a.Comment}
	var shown []string
	for _, f := range a.Files {
		switch name := strings.TrimSuffix(f.Name, filepath.Ext(f.Name)); {
		case f.Name == "input.yaml":
			after.documents[f.Name], before.features = f.Data, after.features
		case f.Name == "input.mesh.yaml":
			after.mesh, before.features = f.Data, after.features
		case f.Name == "input.policy":
			policy, err := compliance.Parse(strings.TrimSpace(string(f.Data)))
			if err != nil {
				t.Fatal(err)
			}
			after.policy, after.features = policy, catalog.With(catalog.Options{Compliance: policy})
			before.features = catalog.Features()
		case f.Name == "mesh.yaml":
			before.mesh = f.Data
		case f.Name == "world.yaml":
			before.documents[f.Name] = f.Data
		case f.Name == "proxies":
			shown = strings.Fields(string(f.Data))
		case filepath.Ext(f.Name) == ".json":
			nodes[name] = &corev3.Node{}
			if err := protojson.Unmarshal(f.Data, nodes[name]); err != nil {
				t.Fatal(err)
			}
		case f.Name == "findings", f.Name == "changes":
			continue
		default:
			t.Fatalf("%s is no file of a golden", f.Name)
		}
		got.Files = append(got.Files, f)
	}
	maps.Copy(after.documents, before.documents)
	if after.mesh == nil {
		after.mesh = before.mesh
	}
	without, with := before.read(), after.read()
	for _, pod := range with.Pods() {
		name, namespace, _ := strings.Cut(pod, ".")
		nodes[pod] = with.PodNode(name, namespace)
	}
	if shown == nil {
		shown = slices.Sorted(maps.Keys(nodes))
	}
	differing := changes{}
	for _, proxy := range shown {
		if nodes[proxy] == nil {
			t.Fatalf("there is no proxy %s", proxy)
		}
		from := path.Base(t.Name()) + ": " + proxy
		differing.add(proxy, without.sent(nodes[proxy], nil, ""), with.sent(nodes[proxy], all, from))
	}
	old := without.findings()
	if found := slices.DeleteFunc(with.findings(), func(f string) bool { return slices.Contains(old, f) }); len(found) > 0 {
		got.Files = append(got.Files, txtar.File{Name: "findings", Data: []byte(strings.Join(found, ""))})
	}
	got.Files = append(got.Files, txtar.File{Name: "changes", Data: []byte(differing.String())})
	return got
}

// config is a configuration to translate.
type config struct {
	t         *testing.T
	features  []*feature.Feature
	documents map[string][]byte // YAML by file name
	mesh      []byte            // the mesh configuration
	policy    compliance.Policy
}

// translation is a config that was read.
type translation struct {
	*inspect.Inspection
	t         *testing.T
	positions *strings.Replacer // removes the folders of file names
}

func (c config) read() translation {
	c.t.Helper()
	o := ingest.Options{
		Logger: slog.New(slog.DiscardHandler), ConfigDir: c.t.TempDir(), MeshConfig: filepath.Join(c.t.TempDir(), "mesh.yaml"),
		Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(), Compliance: c.policy,
	}
	for name, text := range c.documents {
		if err := os.WriteFile(filepath.Join(o.ConfigDir, name), text, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.WriteFile(o.MeshConfig, c.mesh, 0o600); err != nil {
		c.t.Fatal(err)
	}
	i, err := inspect.Read(c.t.Context(), o, c.features)
	if err != nil {
		c.t.Fatal(err)
	}
	if i.Refusal != nil {
		c.t.Fatal(i.Refusal)
	}
	return translation{i, c.t, strings.NewReplacer(o.ConfigDir+"/", "", filepath.Dir(o.MeshConfig)+"/", "")}
}

// findings returns the findings, one a line.
func (r translation) findings() []string {
	var list []string
	for _, d := range r.Findings {
		list = append(list, r.positions.Replace(d.String())+"\n")
	}
	return list
}

// sent returns all resources of a proxy, by type and name. If asked is not nil, it adds them for validation by a real
// Envoy. It fails if a resource violates the constraints of Envoy's API.
func (r translation) sent(n *corev3.Node, asked *envoytest.Resources, from string) map[string]any {
	r.t.Helper()
	all, err := r.Resources(n)
	if err != nil {
		r.t.Fatal(err)
	}
	values := map[string]any{}
	for typeURL, resources := range all {
		for _, resource := range resources {
			m := Message(r.t, resource)
			if asked != nil {
				asked.Add(r.t, from, typeURL, resource)
			}
			if v, ok := m.(interface{ ValidateAll() error }); ok {
				if err := v.ValidateAll(); err != nil {
					r.t.Errorf("Envoy would reject %s: %v", resource.Name, err)
				}
			}
			values[envoy.ShortType(typeURL)+" "+resource.Name] = Value(r.t, m)
		}
	}
	return values
}
