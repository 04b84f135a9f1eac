package gatewayapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/inspecttest"
)

// TestIstiod compares, leaf by leaf, what proxies are sent and what statuses say with what the real istiod sent and
// wrote. Only the leaves that differences name may differ, and all of those do.
//
// A recording has what of each node's resources is not as without the objects of its case, and the statuses without
// times and generations.
func TestIstiod(t *testing.T) {
	nodes, ran := inspecttest.Nodes(t), map[string]bool{}
	inspecttest.Each(t, 10, func(t *testing.T, name string, parts map[string][]byte) {
		ran[name] = true
		here := inspecttest.Read(t, parts["objects.yaml"], nil)
		want, got := map[string]string{}, map[string]string{}
		for file, text := range parts {
			node, typ, is := strings.Cut(strings.TrimSuffix(file, ".yaml"), "/")
			if !is {
				continue
			}
			recorded := decode(t, text)
			sent := inspecttest.Sent(t, here, nodes[node], types[typ], nil)
			for resource, v := range recorded {
				if resource == "(removed)" {
					for _, gone := range v.([]any) {
						want[file+"/"+gone.(string)] = "removed"
						if sent[gone.(string)] == nil {
							got[file+"/"+gone.(string)] = "removed"
						}
					}
					continue
				}
				at := file + "/" + resource
				flatten(at, v, want)
				flatten(at, only(sent[resource], v), got)
			}
			for resource, v := range sent {
				if typ != "cds" && strings.Contains(resource, "0.0.0.0_") && recorded[resource] == nil && !strings.HasPrefix(node, "client") {
					flatten(file+"/"+resource, v, got)
				}
			}
		}
		flatten("status", decode(t, parts["status.yaml"]), want)
		flatten("status", statuses(t, here), got)
		var differing []leaf
		for path := range joined(want, got) {
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
	out["virtualHosts"] = slices.DeleteFunc(slices.Clone(r["virtualHosts"].([]any)), func(h any) bool {
		return !names[h.(map[string]any)["name"]]
	})
	return out
}

var types = map[string]string{"cds": envoy.ClusterType, "lds": envoy.ListenerType, "rds": envoy.RouteType}

func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var v map[string]any
	must.Succeed(t, yaml.Unmarshal(text, &v))
	return v
}

// statuses returns the statuses by object, without times and generations, as JSON has them.
func statuses(t *testing.T, i *inspect.Inspection) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, s := range i.Statuses() {
		b, err := json.Marshal(s.Value)
		must.Succeed(t, err)
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

// joined returns both maps as one.
func joined(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
