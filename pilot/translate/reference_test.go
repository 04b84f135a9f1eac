package translate_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// byType is what a proxy is sent: type, name, the resource as JSON.
type byType map[string]map[string]any

// TestReference compares, leaf by leaf, what is translated with what the real istiod sent proxies of every kind. Only
// the leaves that intended and pending name may differ, and all of those do.
//
// testdata/reference holds the nodes, the world that all cases start from, and a folder for each case: the objects that
// it adds, its mesh configuration, what its proxies have as PROXY_CONFIG, what else differs in their nodes and the
// variables of the server if it has them, and a file for each type that was sent. In such a file, what proxies have in
// common stands once, under their names. 00-none is what the world alone gives. Other cases list what differs from
// that, and the names of what is gone as "(removed)".
//
// The files of a case are recordings. They cannot be generated here: they change only with the istiod that they were
// taken from.
func TestReference(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	base := recorded(t, "00-none")
	ran, values := map[string]bool{}, map[string]any{} // values are the resources by type and version
	for _, c := range referenceCases(t) {
		ran[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			s := c.world(t).apply(c.objects...)
			tr := newTranslator(1 << 20)
			over := recorded(t, c.name)
			unread := maps.Clone(over)
			var differing []leaf
			for who, p := range referenceNodes(t, c) {
				delete(unread, who)
				compared := 0
				for typ, resources := range sent(t, tr, s, p) {
					a, b := map[string]string{}, map[string]string{}
					want := overlay(base[who][typ], over[who][typ])
					for k, r := range resources {
						got := values[typ+r.Version]
						if got == nil {
							got = asJSON(t, r)
							values[typ+r.Version] = got
						}
						if reflect.DeepEqual(got, want[k]) {
							delete(want, k)
							compared++
							continue
						}
						flatten(who+"/"+typ+"/"+k, got, b)
					}
					for k, v := range want {
						flatten(who+"/"+typ+"/"+k, v, a)
					}
					for path := range union(a, b) {
						if a[path] != b[path] {
							differing = append(differing, leaf{path, a[path], b[path]})
						}
					}
					compared += len(a)
				}
				if compared == 0 {
					t.Errorf("nothing was compared for %s", who)
				}
			}
			if len(unread) > 0 {
				t.Errorf("recordings of proxies that nobody knows: %v", slices.Collect(maps.Keys(unread)))
			}
			for _, d := range slices.Concat(intended, pending) {
				if d.in == c.name {
					differing = d.excuse(t, differing)
				}
			}
			report(t, differing)
		})
	}
	for _, d := range slices.Concat(intended, pending) {
		if !ran[d.in] {
			t.Errorf("%s: there is no such case", d.in)
		}
	}
}

// leaf is one that differs: where it is, what istiod sent, and what is sent here.
type leaf struct{ path, want, got string }

func report(t *testing.T, leaves []leaf) {
	t.Helper()
	slices.SortFunc(leaves, func(a, b leaf) int { return cmp.Compare(a.path, b.path) })
	for _, l := range leaves {
		t.Errorf("%s\n\twant %s\n\tgot  %s", l.path, l.want, l.got)
	}
}

// excuse returns the leaves that the difference does not cover. It fails unless the others are as many as it says.
func (d difference) excuse(t *testing.T, leaves []leaf) []leaf {
	t.Helper()
	where := regexp.MustCompile("^" + d.where)
	var covered, rest []leaf
	for _, l := range leaves {
		if where.MatchString(l.path) {
			covered = append(covered, l)
		} else {
			rest = append(rest, l)
		}
	}
	switch {
	case len(covered) == 0:
		t.Errorf("nothing differs at %s (%s): delete the entry", d.where, d.reason)
	case len(covered) < d.leaves:
		t.Errorf("%d leaves differ at %s (%s): lower the number from %d", len(covered), d.where, d.reason, d.leaves)
	case len(covered) > d.leaves:
		t.Errorf("%d leaves differ at %s (%s), not %d:", len(covered), d.where, d.reason, d.leaves)
		report(t, covered)
	}
	return rest
}

// referenceCase is one of the cases in testdata/reference, with the objects of the world that all start from.
type referenceCase struct {
	name    string
	mesh    *mesh.Config
	objects []kinds.Change

	proxyConfig []byte               // what each proxy has in its PROXY_CONFIG, as YAML
	nodes       map[string]nodeEdits // changes of nodes, by the names of proxies
	variables   map[string]string    // variables of the server
}

// nodeEdits is what a case changes in a node.
type nodeEdits struct {
	ID       string         `json:"id"` // empty if it stays
	Metadata map[string]any `json:"metadata"`
}

// world returns a world with the mesh configuration and the variables of a case, and no objects.
func (c referenceCase) world(t tb) *world {
	on := func(variable string) bool { return c.variables[variable] == "true" }
	return newWorldOf(t, snapshot.Options{
		Mesh: c.mesh,
		Settings: snapshot.Settings{
			HTTP3: on(http3.Variable), ScopedGateways: on(names.ScopeGatewaysVariable), PersistentSessions: on(names.SessionsVariable),
		},
	})
}

// readVariables returns the variables of a case, which may have no others.
func readVariables(t *testing.T, text string) map[string]string {
	t.Helper()
	known := []string{http3.Variable, names.ScopeGatewaysVariable, names.SessionsVariable, compliance.Variable}
	variables := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if variables[name] = value; !slices.Contains(known, name) || name != compliance.Variable && value != "true" {
			t.Fatalf("unknown variable: %s", line)
		}
	}
	return variables
}

func referenceCases(t *testing.T) []referenceCase {
	t.Helper()
	readReference.Do(func() { allReferenceCases = readReferenceCases(t) })
	if allReferenceCases == nil {
		t.Fatal("the cases were not read")
	}
	return allReferenceCases
}

// The tests share the cases, which none of them changes.
var (
	readReference     sync.Once
	allReferenceCases []referenceCase
)

func readReferenceCases(t *testing.T) []referenceCase {
	t.Helper()
	world := objects(t, "world.yaml", read(t, "testdata", "reference", "world.yaml"))
	dirs, err := filepath.Glob(filepath.Join("testdata", "reference", "cases", "*"))
	if err != nil || len(dirs) != 99 {
		t.Fatalf("%d cases, %v", len(dirs), err)
	}
	var cases []referenceCase
	for _, dir := range dirs {
		c := referenceCase{name: filepath.Base(dir), mesh: mesh.Default()}
		if b, err := os.ReadFile(filepath.Join(dir, "mesh.yaml")); err == nil {
			var found any
			if c.mesh, found = mesh.Parse("mesh.yaml", b); c.mesh == nil {
				t.Fatal(found)
			}
		}
		if b, err := os.ReadFile(filepath.Join(dir, "proxyconfig.yaml")); err == nil {
			c.proxyConfig = b
		}
		if b, err := os.ReadFile(filepath.Join(dir, "variables")); err == nil {
			c.variables = readVariables(t, string(b))
			c.mesh.Compliance, err = compliance.Parse(c.variables[compliance.Variable])
			must.Succeed(t, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "nodes.yaml")); err == nil {
			must.Succeed(t, yaml.UnmarshalStrict(b, &c.nodes))
		}
		added := objects(t, c.name, read(t, dir, "objects.yaml"))
		for _, o := range added {
			o.Object.Created = time.Unix(1, 0) // after the world, which says nothing of ages
		}
		c.objects = slices.Concat(world, added)
		c.objects = append(c.objects, derived(t, c)...)
		cases = append(cases, c)
	}
	return cases
}

// derived returns what stages derive of the objects of a case.
func derived(t testing.TB, c referenceCase) (out []kinds.Change) {
	world := map[kinds.Key]*kinds.Object{}
	for _, o := range c.objects {
		if o.Kind != kinds.Pod { // nothing asks for nodes
			world[o.Key] = o.Object
		}
	}
	for _, stage := range catalog.Stages(catalog.StageOptions{Domain: "cluster.local", Namespace: "istio-system", Limits: limits.Default()}) {
		for _, d := range derivetest.New(stage).Run(t, world, c.mesh).Objects {
			out = append(out, kinds.Change{Key: d.Object.Key, Object: d.Object})
		}
	}
	return out
}

// referenceNodes returns the proxies as they are in a case.
func referenceNodes(t *testing.T, c referenceCase) map[string]*node.Proxy {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "reference", "nodes", "*.json"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%d nodes, %v", len(files), err)
	}
	var config any
	must.Succeed(t, yaml.Unmarshal(c.proxyConfig, &config))
	nodes := map[string]*node.Proxy{}
	for _, file := range files {
		text, name := read(t, file), strings.TrimSuffix(filepath.Base(file), ".json")
		edits, edited := c.nodes[name]
		if edited || config != nil {
			var n map[string]any
			must.Succeed(t, json.Unmarshal(text, &n))
			if edits.ID != "" {
				n["id"] = edits.ID
			}
			metadata := n["metadata"].(map[string]any)
			if config != nil {
				metadata["PROXY_CONFIG"] = config
			}
			maps.Copy(metadata, edits.Metadata)
			text, err = json.Marshal(n)
			must.Succeed(t, err)
		}
		nodes[name] = proxy(t, text)
	}
	for name := range c.nodes {
		if nodes[name] == nil {
			t.Fatalf("%s changes %s, which is no node", c.name, name)
		}
	}
	return nodes
}

// recorded reads what the real istiod sent each node in a case.
func recorded(t *testing.T, name string) map[string]byType {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "reference", "cases", name, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: nothing is recorded, %v", name, err)
	}
	all := map[string]byType{}
	for _, file := range files {
		var shared byType // by the names of the nodes
		d := json.NewDecoder(bytes.NewReader(read(t, file)))
		d.UseNumber()
		if err := d.Decode(&shared); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		typ := strings.TrimSuffix(filepath.Base(file), ".json")
		for nodes, resources := range shared {
			for _, who := range strings.Fields(nodes) {
				if all[who] == nil {
					all[who] = byType{}
				}
				if all[who][typ] == nil {
					all[who][typ] = map[string]any{}
				}
				for name, r := range resources {
					if more, ok := r.([]any); ok { // the names of what is gone
						gone, _ := all[who][typ][name].([]any)
						r = slices.Concat(gone, more)
					}
					all[who][typ][name] = r
				}
			}
		}
	}
	return all
}

// overlay returns base with the changes of a case.
func overlay(base, over map[string]any) map[string]any {
	m := union(base, over)
	gone, _ := m["(removed)"].([]any)
	for _, name := range gone {
		delete(m, name.(string))
	}
	delete(m, "(removed)")
	return m
}

// union returns both maps as one. Where both have a key, the value is that of b.
func union[V any](a, b map[string]V) map[string]V {
	m := make(map[string]V, len(a)+len(b))
	maps.Copy(m, a)
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
