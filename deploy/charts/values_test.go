package charts

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The charts accept the values that migrate names as without effect, and the notes of the charts name them.
func TestValuesWithoutEffect(t *testing.T) {
	objects := []string{"ambient", "waypoint", "_internal_defaults_do_not_set", "agentgateway", "certificates"}
	for _, h := range helms(t) {
		for _, name := range []string{"istiod", "base", "gateway"} {
			args := []string{"install", name, chart(t, name), "-n", "istio-system", "--dry-run=client", "--set", "profile=a"}
			var rows []string
			for _, v := range settings.Values() {
				of, value, _ := strings.Cut(v.Name, ":")
				idle := v.Effect == settings.Harmless || v.Effect == settings.Without
				if of != name || !idle || value == "ztunnel" { // Istio's chart has the key ztunnel for another chart
					continue
				}
				set := value + "=a"
				for _, object := range objects {
					if value == object || strings.HasSuffix(value, "."+object) {
						set = value + ".a=b"
					}
				}
				switch value {
				case "global.platform", "platform":
					set = value + "=gke"
				case "istiodRemote.enabledLocalInjectorIstiod", "global.proxy.enableCoreDump", "unprivilegedPort", "global.proxy.forceApplyIptables":
					set = value + "=true"
				}
				rows, args = append(rows, value), append(args, "--set", set)
			}
			if h.Name == "helm3" { // Helm 3 needs a cluster even for a dry run
				continue
			}
			out, err := h.Run(t.Context(), args...)
			must.Succeed(t, err)
			_, notes, _ := strings.Cut(out, "\nNOTES:\n")
			said := strings.FieldsFunc(notes, func(r rune) bool { return strings.ContainsRune(" ,:\n", r) })
			for _, value := range rows {
				found := false
				for _, word := range said {
					found = found || strings.TrimSuffix(word, ".") == value
				}
				if !found {
					t.Errorf("%s: the notes of %s say nothing of %s:\n%s", h.Name, name, value, notes)
				}
			}
		}
	}
}

// TestGlobalNames checks that the charts share the file with the names that global may have, and that it has the names
// of their schemas and those of values.txt, and no other.
func TestGlobalNames(t *testing.T) {
	known := map[string]bool{}
	for _, s := range settings.Values() {
		if _, path, _ := strings.Cut(s.Name, ":"); strings.HasPrefix(path, "global.") {
			known[strings.Split(path, ".")[1]] = true
		}
	}
	var shared [2]string
	for _, name := range []string{"base", "istiod", "gateway"} {
		var schema struct {
			Properties struct {
				Global struct{ Properties map[string]any }
			}
		}
		must.Succeed(t, json.Unmarshal(file(t, name, "values.schema.json"), &schema))
		for of := range schema.Properties.Global.Properties {
			known[of] = true
		}
		for i, part := range []string{"_global.tpl", "_stable.tpl"} {
			if i == 1 && name == "gateway" {
				continue // which has no policy of stable objects
			}
			text := string(file(t, name, "templates", part))
			if shared[i] == "" {
				shared[i] = text
			}
			if text != shared[i] {
				t.Errorf("%s of %s differs from the file of base", part, name)
			}
		}
	}
	_, list, _ := strings.Cut(shared[0], "$known := list")
	list, _, _ = strings.Cut(list, "}}")
	var got []string
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(list, -1) {
		got = append(got, m[1])
	}
	if want := slices.Sorted(maps.Keys(known)); !slices.Equal(got, want) {
		t.Errorf("_global.tpl has %v, want %v", got, want)
	}
}

// TestResourceScope checks that the objects of the cluster and those of the namespace are all objects of a chart, and
// that a release of one scope has objects of that scope alone.
func TestResourceScope(t *testing.T) {
	for _, h := range helms(t) {
		for name, more := range map[string]string{
			"istiod": "alerts.enabled=true,global.networkPolicy.enabled=true,experimental.stableValidationPolicy=true,revisionTags={stable}",
			"base":   "global.externalIstiod=true,experimental.stableValidationPolicy=true",
		} {
			rendered := func(scope string) []string {
				var list []string
				out := template(t, h, name, chart(t, name), "--set", more+",global.resourceScope="+scope)
				for doc := range strings.SplitSeq("\n"+out, "\n---\n") {
					var o struct {
						Kind     string
						Metadata struct{ Name, Namespace string }
					}
					must.Succeed(t, yaml.Unmarshal([]byte(doc), &o))
					if o.Kind == "" {
						continue
					}
					list = append(list, o.Kind+" "+o.Metadata.Name)
					if (o.Metadata.Namespace != "") == (scope == "cluster") && scope != "all" {
						t.Errorf("%s: %s of scope %s has %s %s", h.Name, name, scope, o.Kind, o.Metadata.Name)
					}
				}
				slices.Sort(list)
				return list
			}
			all, cluster, namespace := rendered("all"), rendered("cluster"), rendered("namespace")
			both := slices.Sorted(slices.Values(slices.Concat(cluster, namespace)))
			if len(cluster) == 0 || len(namespace) == 0 || !slices.Equal(all, both) {
				t.Errorf("%s: %s has %v, of the cluster %v, of the namespace %v", h.Name, name, all, cluster, namespace)
			}
		}
	}
}

func file(t *testing.T, name string, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{chart(t, name)}, path...)...))
	must.Succeed(t, err)
	return text
}
