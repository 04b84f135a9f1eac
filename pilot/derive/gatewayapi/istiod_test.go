package gatewayapi_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// TestIstiod compares, leaf by leaf, what proxies are sent and what statuses say with what the real istiod sent and
// wrote. Only the leaves that differences name may differ, and all of those do.
//
// testdata/istiod has a world, nodes, and a recording for each case: the objects that it adds to the world, what of
// each node's resources is not as without them, and the statuses without times and generations. A recording can only be
// made from an istiod.
func TestIstiod(t *testing.T) {
	files, err := filepath.Glob("testdata/istiod/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	nodes := nodes(t)
	ran := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		ran[name] = true
		t.Run(name, func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string][]byte{}
			for _, f := range a.Files {
				parts[f.Name] = f.Data
			}
			here := inspected(t, parts["objects.yaml"])
			want, got := map[string]string{}, map[string]string{}
			for _, f := range a.Files {
				node, typ, is := strings.Cut(strings.TrimSuffix(f.Name, ".yaml"), "/")
				if !is {
					continue
				}
				recorded := decode(t, f.Data)
				sent := sent(t, here, nodes[node], typ)
				for resource, v := range recorded {
					if resource == "(removed)" {
						for _, gone := range v.([]any) {
							want[f.Name+"/"+gone.(string)] = "removed"
							if sent[gone.(string)] == nil {
								got[f.Name+"/"+gone.(string)] = "removed"
							}
						}
						continue
					}
					at := f.Name + "/" + resource
					flatten(at, v, want)
					flatten(at, only(sent[resource], v), got)
				}
				for resource, v := range sent {
					if typ != "cds" && strings.Contains(resource, "0.0.0.0_") && recorded[resource] == nil && !strings.HasPrefix(node, "client") {
						flatten(f.Name+"/"+resource, v, got)
					}
				}
			}
			flatten("status", decode(t, parts["status.yaml"]), want)
			flatten("status", statuses(t, here), got)
			var differing []leaf
			for path := range union(want, got) {
				if want[path] != got[path] {
					differing = append(differing, leaf{path, want[path], got[path]})
				}
			}
			slices.SortFunc(differing, func(a, b leaf) int { return strings.Compare(a.path, b.path) })
			for _, d := range differences {
				if d.in != name {
					continue
				}
				where := regexp.MustCompile("^(?:" + d.where + ")$")
				rest := slices.DeleteFunc(slices.Clone(differing), func(l leaf) bool { return where.MatchString(l.path) })
				if len(rest) == len(differing) {
					t.Errorf("nothing differs at %s (%s): delete the entry", d.where, d.reason)
				}
				differing = rest
			}
			if len(want) < 20 {
				t.Errorf("only %d leaves were compared", len(want))
			}
			for i, l := range differing {
				if i == 60 {
					t.Errorf("and %d more", len(differing)-i)
					break
				}
				t.Errorf("%s\n\tistiod %s\n\there   %s", l.path, l.want, l.got)
			}
		})
	}
	for _, d := range differences {
		if !ran[d.in] {
			t.Errorf("%s: there is no such case", d.in)
		}
	}
}

// leaf is one that differs: where it is, what istiod has, and what is here.
type leaf struct{ path, want, got string }

// only returns a route configuration with the virtual hosts that a recording has, if it has some, or others that are
// not in the recording of the world alone.
func only(v, recorded any) any {
	r, is := v.(map[string]any)
	if !is || r["virtualHosts"] == nil {
		return v
	}
	names := map[any]bool{}
	hosts, _ := recorded.(map[string]any)["virtualHosts"].([]any)
	for _, h := range hosts {
		names[h.(map[string]any)["name"]] = true
	}
	out := maps.Clone(r)
	out["virtualHosts"] = slices.DeleteFunc(slices.Clone(r["virtualHosts"].([]any)), func(h any) bool { return !names[h.(map[string]any)["name"]] })
	return out
}

// nodes returns the nodes that are recorded, by their names.
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

// inspected returns the world of all cases with objects.
func inspected(t *testing.T, objects []byte) *inspect.Inspection {
	t.Helper()
	o := ingest.Options{Logger: slog.New(slog.DiscardHandler), ConfigDir: t.TempDir(), Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default()}
	world, err := os.ReadFile("testdata/istiod/world/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"world.yaml": world, "objects.yaml": objects} {
		if err := os.WriteFile(filepath.Join(o.ConfigDir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
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

var types = map[string]string{"cds": envoy.ClusterType, "lds": envoy.ListenerType, "rds": envoy.RouteType}

// sent returns what a node is sent of a type, by name.
func sent(t *testing.T, i *inspect.Inspection, n *corev3.Node, typ string) map[string]any {
	t.Helper()
	all, err := i.Resources(n)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, r := range all[types[typ]] {
		text, err := json.Marshal(featuretest.Value(t, featuretest.Message(t, r)))
		if err != nil {
			t.Fatal(err)
		}
		v := decode(t, text)
		v["@type"] = types[typ]
		out[r.Name] = v
	}
	return out
}

func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// statuses returns the statuses by object, without times and generations, as JSON has them.
func statuses(t *testing.T, i *inspect.Inspection) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, s := range i.Statuses() {
		b, err := json.Marshal(s.Value)
		if err != nil {
			t.Fatal(err)
		}
		out[s.Of.Kind.Name+" "+s.Of.Namespace+"/"+s.Of.Name] = decode(t, b)
	}
	return out
}

// flatten writes the leaves of a value by their paths. Elements of lists are named by their place, or by what tells
// them apart.
func flatten(at string, v any, into map[string]string) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		if len(v) == 0 {
			into[at] = "{}"
		}
		for k, child := range v {
			if k != "lastTransitionTime" && k != "observedGeneration" {
				flatten(at+"."+k, child, into)
			}
		}
	case []any:
		if len(v) == 0 {
			into[at] = "[]"
		}
		for i, child := range v {
			flatten(at+"["+identity(i, child)+"]", child, into)
		}
	default:
		into[at] = fmt.Sprint(v)
	}
}

// identity returns what tells an element of a list apart: lists of statuses are sets.
func identity(i int, v any) string {
	m, is := v.(map[string]any)
	if !is {
		return fmt.Sprint(i)
	}
	if typ, is := m["type"].(string); is && m["status"] != nil {
		return typ
	}
	if name, is := m["name"].(string); is && (m["conditions"] != nil || m["domains"] != nil || m["stringMatch"] != nil) {
		return name // the order of virtual hosts, and of header matches, means nothing
	}
	if match, is := m["filterChainMatch"].(map[string]any); is && match["serverNames"] != nil {
		return fmt.Sprint(match["serverNames"])
	}
	for _, field := range []string{"parentRef", "ancestorRef"} {
		if ref, is := m[field].(map[string]any); is {
			return fmt.Sprint(ref["kind"], " ", ref["name"], " ", ref["sectionName"], " ", ref["port"])
		}
	}
	return fmt.Sprint(i)
}

func union(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}
