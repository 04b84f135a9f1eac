package pages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/served"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	worldFile    = "testdata/world.yaml"
	recordedFile = "testdata/istiod.txt"
	absentFile   = "testdata/absent.txt"
	meshFile     = "testdata/mesh.yaml"
)

// asked are the pages of istiod's /debug/list, of one proxy where they want one.
func asked() []string {
	return strings.Fields(`list adsz ambientz authorizationz cachez cachez?sizes=true clusterz configz connections endpointShardz endpointz
		inject instancesz krtz mcsz mesh networkz push_status pushcontext registryz resourcesz syncz telemetryz
		config_dump?proxyID=web-0.a ecdsz?proxyID=web-0.a edsz?proxyID=web-0.a ndsz?proxyID=web-0.a sidecarz?proxyID=web-0.a`)
}

// keyed are the places whose keys are names, not words of the format: page and path.
var keyed = []string{
	"adsz [].clients[].labels", ".labels", ".Labels", ".annotations", ".metadata_", ".LabelSelectors", ".ExportTo", ".exportTo", ".Addresses",
	".namespace_to_policies",
	".namespace_to_telemetries", ".watches", ".outputs", ".inputs", ".resources", ".destinationRules", ".servicesByHostname", ".Shards",
	".ServiceAccounts", ".table",
	"adsz .clients[].metadata", "cachez ", "cachez?sizes=true ", "endpointz ", "endpointz {}", "endpointShardz ", "endpointShardz {}",
	"instancesz ", "push_status ", "push_status {}",
}

// cut are the paths below which the keys belong to an object or a resource, and not to the page.
var cut = []string{".spec", ".Spec", ".outputs{}", ".inputs{}", ".sidecar", ".cluster", ".listener", ".routeConfig",
	"config_dump [].bootstrap", "edsz .configs[]", "ecdsz .configs[]", "adsz .clients[].metadata{}"}

func is(places []string, page, path string) bool {
	return slices.ContainsFunc(places, func(p string) bool {
		if of, rest, ok := strings.Cut(p, " "); ok {
			return of == page && rest == path
		}
		return strings.HasSuffix(path, p)
	})
}

// paths are the types of values by page and path.
type paths map[string]map[string]bool

// collect adds the keys of a page's answer.
func (p paths) collect(page string, text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("%s: %w: %.200s", page, err, text)
	}
	name, _, _ := strings.Cut(page, "?proxyID=")
	p.add(name, "", v)
	return nil
}

func (p paths) add(page, path string, v any) {
	kind := map[bool]string{true: "null"}[v == nil]
	switch v := v.(type) {
	case bool:
		kind = "bool"
	case string:
		kind = "string"
	case float64:
		kind = "number"
	case []any:
		kind = "array"
		for _, x := range v {
			p.add(page, path+"[]", x)
		}
	case map[string]any:
		kind = "object"
		if is(cut, page, path) {
			if at, ok := v["@type"]; ok {
				p.add(page, path+".@type", at)
			}
			break
		}
		for k, x := range v {
			if is(keyed, page, path) {
				p.add(page, path+"{}", x)
			} else {
				p.add(page, path+"."+k, x)
			}
		}
	}
	key := page + " " + path
	if path == "" {
		key = page + " ."
	}
	if p[key] == nil {
		p[key] = map[string]bool{}
	}
	p[key][kind] = true
}

// String returns a line for each path.
func (p paths) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s %s\n", key, strings.Join(slices.Sorted(maps.Keys(p[key])), "|"))
	}
	return b.String()
}

// lines returns the lines of a file that are no comments.
func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"),
		func(l string) bool { return l == "" || strings.HasPrefix(l, "#") })
}

// TestPages: this server's pages have the keys of istiod's pages, with the same types.
func TestPages(t *testing.T) {
	world, err := os.ReadFile(worldFile)
	must.Succeed(t, err)
	// What an API server gives an object.
	given := "metadata: {uid: 0f0e3a6e-8a39-4dd2-a3a5-1a52f3a0c001, generation: 1, creationTimestamp: \"2026-01-01T00:00:00Z\", name: "
	world = bytes.ReplaceAll(world, []byte("metadata: {name: "), []byte(given))
	s := served.Start(t, served.Options{Mesh: map[string]string{"world.yaml": string(world)}, Args: []string{"--meshConfig", meshFile}})
	connect(t, s.GRPC)
	connect(t, s.GRPC)
	ours := paths{}
	for _, page := range asked() {
		code, text := s.Fetch("/debug/" + page)
		if err := ours.collect(page, []byte(text)); err != nil || code != 200 {
			t.Errorf("%d %v", code, err)
		}
	}
	absent := map[string]string{}
	for _, l := range lines(t, absentFile) {
		key, why, ok := strings.Cut(l, "  ")
		if !ok {
			t.Fatalf("%s: %q gives no reason", absentFile, l)
		}
		absent[key] = strings.TrimSpace(why)
	}
	for _, l := range lines(t, recordedFile) {
		at := strings.LastIndexByte(l, ' ')
		key, kinds := l[:at], strings.Split(l[at+1:], "|")
		if within(absent, key) {
			continue
		}
		got := ours[key]
		if got == nil {
			t.Errorf("%s: istiod has it (%s)", key, strings.Join(kinds, "|"))
			continue
		}
		if !slices.ContainsFunc(kinds, func(k string) bool { return got[k] || k == "null" && len(kinds) == 1 }) && !got["null"] {
			t.Errorf("%s: istiod has %s here, we have %v", key, strings.Join(kinds, "|"), slices.Sorted(maps.Keys(got)))
		}
	}
	for key := range ours {
		if within(absent, key) {
			t.Errorf("%s: it is here: %s says that it is not", key, absentFile)
		}
	}
	if t.Failed() {
		t.Logf("ours:\n%s", ours)
	}
}

// within reports whether a path, or one above it, is absent.
func within(absent map[string]string, key string) bool {
	page, path, _ := strings.Cut(key, " ")
	for a := range absent {
		of, at, _ := strings.Cut(a, " ")
		if of == "*" && strings.HasSuffix(path, at) {
			return true
		}
		if rest, ok := strings.CutPrefix(path, at); ok && of == page && (rest == "" || strings.ContainsAny(rest[:1], ".[{")) {
			return true
		}
	}
	return false
}
