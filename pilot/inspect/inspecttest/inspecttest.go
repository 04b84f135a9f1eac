package inspecttest

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
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

var record = flag.String("record", "", "a folder with what the real istiod sent, CASE/NODE/TYPE.json: what Compare reads is "+
	"written from it")

// files returns the recordings by case. It fails if there are fewer than least.
func files(t *testing.T, least int) map[string]string {
	t.Helper()
	all, err := filepath.Glob("testdata/istiod/*.txtar")
	if err != nil || len(all) < least {
		t.Fatalf("%d recordings, %v", len(all), err)
	}
	byCase := map[string]string{}
	for _, file := range all {
		byCase[strings.TrimSuffix(filepath.Base(file), ".txtar")] = file
	}
	return byCase
}

// Each runs a test for each recording, with its files by name. It fails if there are fewer than least.
func Each(t *testing.T, least int, test func(t *testing.T, name string, parts map[string][]byte)) {
	t.Helper()
	for name, file := range files(t, least) {
		t.Run(name, func(t *testing.T) { test(t, name, parts(archive(t, file))) })
	}
}

// Nodes returns the nodes that are recorded, by the names of their pods.
func Nodes(t *testing.T) map[string]*corev3.Node {
	t.Helper()
	all := map[string]*corev3.Node{}
	for name, text := range parts(archive(t, "testdata/istiod/world/nodes")) {
		all[name] = &corev3.Node{}
		if err := protojson.Unmarshal(text, all[name]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Read returns the world of all cases with more objects and a mesh configuration, both YAML. mesh is nil for the
// default one.
func Read(t *testing.T, objects, mesh []byte) *inspect.Inspection {
	t.Helper()
	o := ingest.Options{Logger: slog.New(slog.DiscardHandler), ConfigDir: t.TempDir(), Namespace: "istio-system",
		Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(), AlphaGatewayAPI: true}
	write := func(path string, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	world, err := os.ReadFile("testdata/istiod/world/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(o.ConfigDir, "world.yaml"), world)
	write(filepath.Join(o.ConfigDir, "objects.yaml"), objects)
	if mesh != nil {
		o.MeshConfig = filepath.Join(t.TempDir(), "mesh.yaml")
		write(o.MeshConfig, mesh)
	}
	i, err := inspect.Read(t.Context(), o, catalog.Features())
	if err != nil {
		t.Fatal(err)
	}
	if i.Refusal != nil {
		t.Fatal(i.Refusal)
	}
	return i
}

// Sent returns what a node is sent of a type as JSON, by name. types has messages that no Go package has, or is nil.
func Sent(t *testing.T, i *inspect.Inspection, n *corev3.Node, typeURL string, types *protoregistry.Types) map[string]any {
	t.Helper()
	all, err := i.Resources(n)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]any{}
	for _, r := range all[typeURL] {
		var a anypb.Any
		if err := proto.Unmarshal(r.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		b, err := protojson.MarshalOptions{Resolver: resolver{protoregistry.GlobalTypes, types}}.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}
		byName[r.Name] = fromJSON(t, b)
	}
	return byName
}

// Compare compares what nodes observe with what the recordings have under the names of the nodes. observe returns as
// text what a proxy observes in the listeners and the configurations of filters that it is sent. The flag -record
// writes the recordings.
func Compare(t *testing.T, least int, types *protoregistry.Types, observe func(listeners, filters map[string]any) string) {
	t.Helper()
	nodes := Nodes(t)
	if *record != "" {
		for name, file := range files(t, least) {
			a := archive(t, file)
			all := parts(a)
			for node := range nodes {
				all[node] = []byte(observe(recorded(t, name, node, "lds"), recorded(t, name, node, "ecds")))
			}
			a.Files = nil
			for _, part := range append([]string{"objects.yaml", "mesh.yaml"}, slices.Sorted(maps.Keys(nodes))...) {
				if len(all[part]) > 0 {
					a.Files = append(a.Files, txtar.File{Name: part, Data: all[part]})
				}
			}
			if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	Each(t, least, func(t *testing.T, _ string, parts map[string][]byte) {
		here := Read(t, parts["objects.yaml"], parts["mesh.yaml"])
		for name, n := range nodes {
			got := observe(Sent(t, here, n, envoy.ListenerType, types), Sent(t, here, n, envoy.ExtensionType, types))
			if d := cmp.Diff(string(parts[name]), got); d != "" {
				t.Errorf("%s (-istiod +here):\n%s", name, d)
			}
		}
	})
}

// Places is values with the places that have them.
type Places map[string][]string

// Add adds a place to the places of a value.
func (p Places) Add(value, at string) {
	if !slices.Contains(p[value], at) {
		p[value] = append(p[value], at)
	}
}

// String returns each value, with its places in lines below it. A place without a name has none.
func (p Places) String() string {
	var lines []string
	for value, at := range p {
		slices.Sort(at)
		if lines = append(lines, value); at[0] != "" {
			lines[len(lines)-1] += "  " + strings.Join(at, "\n  ") + "\n"
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Line returns a value as JSON in one line, with the end of the line.
func Line(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // JSON that was decoded
	return b.String()
}

func archive(t *testing.T, path string) *txtar.Archive {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// parts returns the files of an archive by name.
func parts(a *txtar.Archive) map[string][]byte {
	all := map[string][]byte{}
	for _, f := range a.Files {
		all[f.Name] = f.Data
	}
	return all
}

// recorded returns what the real istiod sent a node, by name; nothing if it sent nothing of the type.
func recorded(t *testing.T, name, node, typ string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(*record, name, node, typ+".json"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	all, _ := fromJSON(t, b).(map[string]any)
	return all
}

func fromJSON(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// resolver resolves types that this program does not link as empty messages.
type resolver struct {
	*protoregistry.Types
	more *protoregistry.Types // nil if there are no more
}

func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	for _, types := range []*protoregistry.Types{r.more, r.Types} {
		if t, err := types.FindMessageByURL(url); err == nil {
			return t, nil
		}
	}
	return (&emptypb.Empty{}).ProtoReflect().Type(), nil
}
