package translate_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// accepted is the intended differences from the real istiod, with their reasons. Each one has to excuse something.
var accepted = []struct{ where, reason string }{}

// byType is what a proxy is sent: type, name, the resource as JSON.
type byType map[string]map[string]any

// TestReference compares, leaf by leaf, what is translated with what the real istiod sent proxies of every kind.
// testdata/reference holds the world that all cases start from, what each case adds, and what was sent: all of it for
// 00-none, the differences from that for other cases.
func TestReference(t *testing.T) {
	dir := filepath.Join("testdata", "reference")
	nodes, err := filepath.Glob(filepath.Join(dir, "nodes", "*.json"))
	if err != nil || len(nodes) != 6 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	base := recorded(t, filepath.Join(dir, "00-none.json.gz"))
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil || len(files) == 0 {
		t.Fatal("no cases")
	}
	excused := make([]int, len(accepted))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		t.Run(name, func(t *testing.T) {
			m := mesh.Default()
			if b, err := os.ReadFile(filepath.Join(dir, name+".mesh.yaml")); err == nil {
				var found any
				if m, found = mesh.Parse("mesh.yaml", b); m == nil {
					t.Fatal(found)
				}
			}
			w := newWorld(t, m)
			s := w.apply(append(objects(t, "world.yaml", read(t, dir, "world.yaml")), objects(t, name+".yaml", read(t, dir, name+".yaml"))...)...)
			tr := newTranslator(1 << 20)
			over := recorded(t, file)
			for _, n := range nodes {
				who := strings.TrimSuffix(filepath.Base(n), ".json")
				got := sent(t, tr, s, proxy(t, read(t, n)))
				values := 0
				for typ, resources := range got {
					want := overlay(base[who][typ], over[who][typ])
					a, b := map[string]string{}, map[string]string{}
					for k, v := range want {
						flatten("/"+k, v, a)
					}
					for k, r := range resources {
						flatten("/"+k, asJSON(t, r), b)
					}
					values += len(a)
					for _, path := range slices.Sorted(maps.Keys(union(a, b))) {
						if a[path] == b[path] {
							continue
						}
						where := name + "/" + who + "/" + typ + path
						ok := false
						for i := range accepted {
							if regexp.MustCompile(accepted[i].where).MatchString(where) {
								excused[i]++
								ok = true
							}
						}
						if !ok {
							t.Errorf("%s\n\twant %s\n\tgot  %s", where, a[path], b[path])
						}
					}
				}
				if values == 0 {
					t.Errorf("nothing was compared for %s", who)
				}
			}
		})
	}
	for i, n := range excused {
		if n == 0 && !t.Failed() {
			t.Errorf("nothing differs any more by %q: %s", accepted[i].where, accepted[i].reason)
		}
	}
}

// recorded reads what the real istiod sent each node.
func recorded(t *testing.T, file string) map[string]byType {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]byType
	if err := json.NewDecoder(z).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// overlay returns base with the changes of a case.
func overlay(base, over map[string]any) map[string]any {
	m := maps.Clone(base)
	if m == nil {
		m = map[string]any{}
	}
	if gone, ok := over["(removed)"].([]any); ok {
		for _, name := range gone {
			delete(m, name.(string))
		}
	}
	for k, v := range over {
		if k != "(removed)" {
			m[k] = v
		}
	}
	return m
}

func union[V any](a, b map[string]V) map[string]V {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// flatten writes every leaf under its path. In lists whose order means nothing to Envoy the path has an element's
// identity, in others its position.
func flatten(path string, v any, out map[string]string) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		if len(v) == 0 {
			out[path] = "{}"
		}
		for k, x := range v {
			flatten(path+"/"+k, x, out)
		}
	case []any:
		used := map[string]bool{}
		for i, x := range v {
			key := identity(path[strings.LastIndexByte(path, '/')+1:], x)
			if key == "" {
				key = fmt.Sprint(i)
			}
			for used[key] {
				key += "'"
			}
			used[key] = true
			flatten(path+"["+key+"]", x, out)
		}
	default:
		b, _ := json.Marshal(v) // a scalar
		out[path] = string(b)
	}
}

// identity returns what identifies an element of a list without order; it is empty for any other list.
func identity(list string, x any) string {
	m, _ := x.(map[string]any)
	var id any
	switch list {
	case "domains", "serverNames", "applicationProtocols":
		id = x
	case "filterChains":
		id = []any{m["name"], m["filterChainMatch"]}
	case "lbEndpoints":
		e, _ := m["endpoint"].(map[string]any)
		id = e["address"]
	case "endpoints":
		id = []any{m["locality"], m["priority"]}
	case "virtualHosts":
		id = m["name"]
	default:
		return ""
	}
	b, _ := json.Marshal(id)
	return string(b)
}
