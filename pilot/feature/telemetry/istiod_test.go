package telemetry_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
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
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

var record = flag.String("record", "", "a folder with what the real istiod sent: CASE/NODE/lds.json; the recordings are made anew from it")

// TestIstiod compares the access logs, the tracing and the metrics of every listener with what the real istiod sent.
// testdata/istiod has a world, nodes, and a recording for each case: the objects and the mesh configuration that it
// adds, and what nodes were sent, each value once with the places that have it. A recording can only be made from an
// istiod.
func TestIstiod(t *testing.T) {
	files, err := filepath.Glob("testdata/istiod/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	types := typesWithStats(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string][]byte{}
			for _, f := range a.Files {
				parts[f.Name] = f.Data
			}
			var here *inspect.Inspection
			if *record == "" {
				here = inspected(t, parts["objects.yaml"], parts["mesh.yaml"])
			}
			for node, n := range nodes(t) {
				if *record != "" {
					var listeners map[string]any
					b, err := os.ReadFile(filepath.Join(*record, name, node, "lds.json"))
					if err == nil {
						err = json.Unmarshal(b, &listeners)
					}
					if err != nil {
						t.Fatal(err)
					}
					parts[node] = []byte(observed(listeners))
					continue
				}
				if d := cmp.Diff(string(parts[node]), observed(sent(t, here, types, n))); d != "" {
					t.Errorf("%s (-istiod +here):\n%s", node, d)
				}
			}
			if *record != "" {
				a.Files = nil
				for _, part := range []string{"objects.yaml", "mesh.yaml", "client-0.b", "gateway-0.a", "web-0.a"} {
					if len(parts[part]) > 0 {
						a.Files = append(a.Files, txtar.File{Name: part, Data: parts[part]})
					}
				}
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// nodes returns the nodes that are recorded, by the names of their pods.
func nodes(t *testing.T) map[string]*corev3.Node {
	t.Helper()
	a, err := txtar.ParseFile("testdata/istiod/world/nodes")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*corev3.Node{}
	for _, f := range a.Files {
		all[f.Name] = &corev3.Node{}
		if err := protojson.Unmarshal(f.Data, all[f.Name]); err != nil {
			t.Fatal(err)
		}
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

// sent returns the listeners of a node, by name.
func sent(t *testing.T, i *inspect.Inspection, types resolver, n *corev3.Node) map[string]any {
	t.Helper()
	all, err := i.Resources(n)
	if err != nil {
		t.Fatal(err)
	}
	listeners := map[string]any{}
	for _, r := range all[envoy.ListenerType] {
		var a anypb.Any
		if err := proto.Unmarshal(r.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		b, err := protojson.MarshalOptions{Resolver: types}.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		listeners[r.Name] = v
	}
	return listeners
}

// observed returns what a proxy observes: each value, and the places that have it.
func observed(listeners map[string]any) string {
	places := map[string][]string{}
	var visit func(v any, at string)
	add := func(kind string, v any, at string) {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // JSON that was decoded
		value := kind + " " + b.String()
		if !slices.Contains(places[value], at) {
			places[value] = append(places[value], at)
		}
	}
	visit = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			name, _ := v["name"].(string)
			switch {
			case name == "istio.stats":
				add("stats", v["typedConfig"], at)
				return
			case name == "envoy.filters.network.tcp_proxy":
				at += "/tcp"
			case name == "envoy.filters.network.http_connection_manager":
				at += "/http"
			case name != "" && !strings.HasPrefix(name, "envoy."):
				at += "/" + name
			}
			for k, child := range v {
				switch k {
				case "accessLog", "tracing":
					add(k, child, at)
				case "useRequestIdForTraceSampling":
					if child == false { // istiod also says so where it is true, as it is by default
						add(k, child, at)
					}
				default:
					visit(child, at)
				}
			}
		case []any:
			for _, child := range v {
				visit(child, at)
			}
		}
	}
	for _, l := range listeners {
		visit(l, "")
	}
	var lines []string
	for value, at := range places {
		slices.Sort(at)
		lines = append(lines, value+"  "+strings.Join(at, "\n  ")+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// resolver resolves types that this program does not link as empty messages.
type resolver struct{ *protoregistry.Types }

func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	for _, types := range []*protoregistry.Types{r.Types, protoregistry.GlobalTypes} {
		if t, err := types.FindMessageByURL(url); err == nil {
			return t, nil
		}
	}
	return (&emptypb.Empty{}).ProtoReflect().Type(), nil
}

func (r resolver) FindExtensionByName(protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

// typesWithStats returns types with stats.PluginConfig, which is in no Go package. Its fields are those of
// https://istio.io/latest/docs/reference/config/proxy_extensions/stats/.
func typesWithStats(t *testing.T) resolver {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label, message string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
		if message != "" {
			f.TypeName = &message
		}
		return f
	}
	const (
		text, flag, message = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BOOL, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		one, many           = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	)
	entry := &descriptorpb.DescriptorProto{
		Name: proto.String("DimensionsEntry"), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
		Field: []*descriptorpb.FieldDescriptorProto{field("key", 1, text, one, ""), field("value", 2, text, one, "")},
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("stats.proto"), Package: proto.String("stats"), Syntax: proto.String("proto3"), Dependency: []string{"google/protobuf/duration.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("MetricConfig"), NestedType: []*descriptorpb.DescriptorProto{entry}, Field: []*descriptorpb.FieldDescriptorProto{
				field("dimensions", 1, message, many, ".stats.MetricConfig.DimensionsEntry"), field("name", 2, text, one, ""),
				field("tags_to_remove", 3, text, many, ""), field("drop", 5, flag, one, ""),
			}},
			{Name: proto.String("PluginConfig"), Field: []*descriptorpb.FieldDescriptorProto{
				field("disable_host_header_fallback", 6, flag, one, ""), field("tcp_reporting_duration", 7, message, one, ".google.protobuf.Duration"),
				field("metrics", 8, message, many, ".stats.MetricConfig"),
			}},
		},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	types := &protoregistry.Types{}
	for i := range file.Messages().Len() {
		if err := types.RegisterMessage(dynamicpb.NewMessageType(file.Messages().Get(i))); err != nil {
			t.Fatal(err)
		}
	}
	return resolver{types}
}
