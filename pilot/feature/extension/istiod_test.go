package extension_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

var record = flag.String("record", "", "a folder with what the real istiod sent: CASE/NODE/lds.json and ecds.json; the recordings are made anew from it")

// TestIstiod compares the filters of every chain, the filters of extensions and what proxies subscribe to for them with
// what the real istiod sent. testdata/istiod has a world, nodes, and a recording for each case: its objects, the mesh
// configuration, and what nodes were sent, each value once with the places that have it. A recording can only be made
// from an istiod.
func TestIstiod(t *testing.T) {
	files, err := filepath.Glob("testdata/istiod/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			parts := archive(t, file)
			var here *inspect.Inspection
			if *record == "" {
				here = inspected(t, parts["objects.yaml"], parts["mesh.yaml"])
			}
			for node, text := range archive(t, "testdata/istiod/world/nodes") {
				if *record != "" {
					parts[node] = []byte(observed(recorded(t, name, node, "lds"), recorded(t, name, node, "ecds")))
					continue
				}
				n := &corev3.Node{}
				if err := protojson.Unmarshal(text, n); err != nil {
					t.Fatal(err)
				}
				all, err := here.Resources(n)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(string(parts[node]), observed(values(t, all[envoy.ListenerType]), values(t, all[envoy.ExtensionType]))); d != "" {
					t.Errorf("%s (-istiod +here):\n%s", node, d)
				}
			}
			if *record != "" {
				a := &txtar.Archive{Comment: comment(t, file)}
				for _, part := range []string{"objects.yaml", "mesh.yaml", "client-0.b", "gateway-0.a", "web-0.a"} {
					a.Files = append(a.Files, txtar.File{Name: part, Data: parts[part]})
				}
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// archive returns the files of an archive by name.
func archive(t *testing.T, path string) map[string][]byte {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	for _, f := range a.Files {
		parts[f.Name] = f.Data
	}
	return parts
}

func comment(t *testing.T, path string) []byte {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return a.Comment
}

// recorded returns what the real istiod sent a node, by name.
func recorded(t *testing.T, name, node, typ string) map[string]any {
	t.Helper()
	var all map[string]any
	b, err := os.ReadFile(filepath.Join(*record, name, node, typ+".json"))
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// inspected returns the world of all cases with objects and a mesh configuration.
func inspected(t *testing.T, objects, mesh []byte) *inspect.Inspection {
	t.Helper()
	o := ingest.Options{
		Logger: slog.New(slog.DiscardHandler), ConfigDir: t.TempDir(), MeshConfig: filepath.Join(t.TempDir(), "mesh.yaml"), Namespace: "istio-system",
		Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(),
	}
	world, err := os.ReadFile("testdata/istiod/world/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{filepath.Join(o.ConfigDir, "world.yaml"): world, filepath.Join(o.ConfigDir, "objects.yaml"): objects, o.MeshConfig: mesh} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i, err := inspect.Read(t.Context(), o, catalog.Features())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// values returns resources as JSON, by name.
func values(t *testing.T, all []*envoy.Resource) map[string]any {
	t.Helper()
	byName := map[string]any{}
	for _, r := range all {
		var a anypb.Any
		if err := proto.Unmarshal(r.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		b, err := protojson.MarshalOptions{Resolver: resolver{protoregistry.GlobalTypes}}.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		byName[r.Name] = v
	}
	return byName
}

// observed returns what a proxy observes: each list of filters with the chains that have it, each filter of an
// extension, and each configuration that the proxy subscribes to.
func observed(listeners, configs map[string]any) string {
	places := map[string][]string{}
	add := func(value, at string) {
		if !slices.Contains(places[value], at) {
			places[value] = append(places[value], at)
		}
	}
	var filters func(list any) []string
	filters = func(list any) []string {
		var names []string
		all, _ := list.([]any)
		for _, f := range all {
			filter := f.(map[string]any)
			name := filter["name"].(string)
			names = append(names, strings.TrimPrefix(name, prefix))
			if strings.HasPrefix(name, prefix) {
				add("filter "+text(filter), "")
			}
			if config, ok := filter["typedConfig"].(map[string]any); ok {
				for _, inner := range filters(config["httpFilters"]) {
					names = append(names, "  "+inner)
				}
			}
		}
		return names
	}
	for name, l := range listeners {
		listener := l.(map[string]any)
		chains, _ := listener["filterChains"].([]any)
		for _, c := range append(chains, listener["defaultFilterChain"]) {
			if chain, ok := c.(map[string]any); ok {
				called, _ := chain["name"].(string)
				match, _ := chain["filterChainMatch"].(map[string]any)
				add("chain\n    "+strings.Join(filters(chain["filters"]), "\n    ")+"\n", strings.TrimSpace(name+" "+called+" "+text(match)))
			}
		}
	}
	for _, c := range configs {
		add("config "+versionOf.ReplaceAllString(text(c), `$1"?"`), "")
	}
	var lines []string
	for value, at := range places {
		slices.Sort(at)
		if lines = append(lines, value); at[0] != "" {
			lines[len(lines)-1] += "  " + strings.Join(at, "\n  ") + "\n"
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// prefix begins the names of the filters of extensions.
const prefix = "extensions.istio.io/trafficextension/"

// versionOf matches the version of an object, which is any text.
var versionOf = regexp.MustCompile(`("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION":)"[^"]+"`)

// text returns a value as JSON in one line.
func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // JSON that was decoded
	return b.String()
}

// resolver resolves types that this program does not link as empty messages.
type resolver struct{ *protoregistry.Types }

func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := r.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (&emptypb.Empty{}).ProtoReflect().Type(), nil
}
