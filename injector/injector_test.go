package injector

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "write what injection makes of the pods of testdata")

// rig is an Injector of texts.
type rig struct {
	*Injector
	findings []diag.Diagnostic
}

// newRig makes an Injector of the files config, values and mesh, as far as they are there.
func newRig(t testing.TB, files map[string]string) *rig {
	t.Helper()
	m, findings := mesh.Parse("mesh", []byte(files["mesh"]))
	if m == nil {
		t.Fatal(findings)
	}
	r := &rig{}
	c, findings := Parse("ConfigMap a/b", Texts{files["config"], files["values"]},
		Functions{Env: func(name string) string { return "value of " + name }})
	r.findings = findings
	r.Injector = New(Options{World: MeshOnly{m}, Logger: slog.New(slog.DiscardHandler), Time: time.Minute})
	r.Set(c)
	return r
}

// base returns the files that others of testdata leave out.
func base(t testing.TB) map[string]string {
	t.Helper()
	a, err := txtar.ParseFile("testdata/base.txtar")
	must.Succeed(t, err)
	return sections(a)
}

func sections(a *txtar.Archive) map[string]string {
	m := map[string]string{}
	for _, f := range a.Files {
		m[f.Name] = string(f.Data)
	}
	return m
}

func toJSONText(t testing.TB, text string) []byte {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(t, err)
	return j
}

// inject injects a pod, checks that the patch makes the result, and returns the result as YAML, or why there is none.
func (r *rig) inject(t testing.TB, q Request) string {
	t.Helper()
	got, err := r.Inject(context.Background(), q)
	switch {
	case err != nil:
		return "refused: " + err.Error() + "\n"
	case got.Skipped != "":
		return "skipped: " + got.Skipped + "\n"
	}
	p, err := jsonpatch.DecodePatch(got.Patch)
	must.Succeed(t, err)
	applied, err := p.Apply(q.Pod)
	if err != nil {
		t.Fatalf("%v: %s", err, got.Patch)
	}
	pod, err := json.Marshal(got.Pod)
	must.Succeed(t, err)
	if !sameJSON(t, applied, pod) {
		t.Errorf("the patch makes %s, want %s", applied, pod)
	}
	text, err := yaml.JSONToYAML(pod)
	if err != nil { // it takes no control characters
		text = pod
	}
	for _, w := range got.Warnings {
		text = append(text, "# warning: "+w+"\n"...)
	}
	return string(text)
}

func sameJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatalf("no JSON: %s or %s", a, b)
	}
	return reflect.DeepEqual(x, y)
}

// TestGoldens injects the pods of testdata. A file has config, values and mesh, and for each pod a file NAME.pod with
// what becomes of it as NAME.want; base.txtar has what others leave out.
func TestGoldens(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) < 2 {
		t.Fatal(err, paths)
	}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		must.Succeed(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			files := base(t)
			for name, text := range sections(a) {
				files[name] = text
			}
			r := newRig(t, files)
			for _, f := range r.findings {
				t.Error(f)
			}
			for i := range a.Files {
				f := &a.Files[i]
				name, isPod := strings.CutSuffix(f.Name, ".pod")
				if !isPod {
					continue
				}
				q := Request{Pod: toJSONText(t, string(f.Data)), Namespace: "shop",
					Cluster: strings.TrimSpace(files["cluster"]), Network: strings.TrimSpace(files["network"])}
				got, want := r.inject(t, q), &a.Files[i+1]
				if want.Name != name+".want" {
					t.Fatalf("%s is not followed by %s.want", f.Name, name)
				}
				if got != string(want.Data) && !*update {
					t.Errorf("%s: got\n%s\nwant\n%s", name, got, want.Data)
				}
				want.Data = []byte(got)
				again(t, r, q)
			}
			if *update {
				must.Succeed(t, os.WriteFile(path, txtar.Format(a), 0o600))
			}
		})
	}
}

// again injects what came out once more, which must change nothing.
func again(t *testing.T, r *rig, q Request) {
	t.Helper()
	first, err := r.Inject(t.Context(), q)
	if err != nil || first.Skipped != "" {
		return
	}
	r.written.Purge()
	if anew, err := r.Inject(t.Context(), q); err != nil || string(anew.Patch) != string(first.Patch) {
		t.Errorf("what the templates wrote is read as %s the second time: %v", anew.Patch, err)
	}
	if q.Pod, err = json.Marshal(first.Pod); err != nil {
		t.Fatal(err)
	}
	second, err := r.Inject(t.Context(), q)
	if err != nil {
		t.Fatalf("injected once more: %v", err)
	}
	if string(second.Patch) != "[]" {
		t.Errorf("injected once more, the pod changes: %s", second.Patch)
	}
}

// A pod's template cannot cost more than its bounds: of time, and of what it writes.
func TestTemplatesAreBounded(t *testing.T) {
	pod := []byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"app"}]}}`)
	for name, c := range map[string]struct{ template, want string }{
		"writes without end": {`{{ range until 60000 }}{{ repeat 60000 "x" }}{{ end }}`, "more than 1048576 bytes"},
		"runs without end": {`{{ define "x" }}{{ template "x" . }}{{ template "x" . }}{{ end }}{{ template "x" . }}`,
			"exceeded maximum template depth"},
		"takes too long": {`{{ range 100000000000 }}{{ "" }}{{ end }}`, "takes too long"},
		"a long list":    {`{{ until 1000000000 }}`, "too many"},
		"a long text":    {`{{ repeat 1000000000 "x" }}`, "too long"},
		"long lines":     {`{{ nindent 1000000000 "x" }}`, "no number of spaces"},
		"renders itself": {`{{ render "{{ render . . }}" "{{ render . . }}" }}`, "render one another"},
		"numbers":        {`{{ untilStep 0 9223372036854775807 1 }}`, "too many"},
		"a long list of it": {`spec: {containers: [{name: a, env: [{{ range until 3000 }}{name: x},{{ end }}]}]}`,
			"spec.containers[0].env has more than"},
		"the network": {`{{ getHostByName "localhost" }}`, "not resolved"},
		"no YAML":     {`a: [`, "no YAML"},
		"no pod":      {`spec: {containers: 3}`, "no pod"},
		"a panic":     {`{{ index .Values "a" "b" "c" }}`, "error calling index"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.Marshal(map[string]any{"policy": "enabled", "templates": map[string]string{"sidecar": c.template}})
			must.Succeed(t, err)
			r := newRig(t, map[string]string{"config": string(text), "values": "{}"})
			if r.Config() == nil {
				t.Fatal(r.findings)
			}
			if name == "takes too long" {
				r.o.Time = time.Millisecond
			}
			if got := r.inject(t, Request{Pod: pod}); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A pod whose lists would take too long to merge is refused, with the list named.
func TestLongListsAreRefused(t *testing.T) {
	r := newRig(t, base(t))
	pod := func(n int) []byte {
		env := strings.TrimSuffix(strings.Repeat(`{"name":"x","value":"y"},`, n), ",")
		return []byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"app","env":[` + env + `]}]}}`)
	}
	const tooMany = "refused: spec.containers[0].env has more than"
	if got := r.inject(t, Request{Pod: pod(listEntries + 1)}); !strings.HasPrefix(got, tooMany) {
		t.Errorf("got %.200s, want %s", got, tooMany)
	}
	if got := r.inject(t, Request{Pod: pod(listEntries)}); strings.HasPrefix(got, "refused") {
		t.Errorf("got %.200s", got)
	}
}

// A template that writes to the values of the chart changes them for nobody else.
func TestValuesAreNotShared(t *testing.T) {
	text := `{"policy": "enabled", "templates": {"sidecar": "{{ if hasKey .Values \"seen\" }}{{ fail ` +
		`\"seen\" }}{{ end }}{{ $_ := set .Values \"seen\" true }}{{ $_ := set .Values.global \"seen\" true }}"}}`
	r := newRig(t, map[string]string{"config": text, "values": `{"global": {}}`})
	pod := []byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"app"}]}}`)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := r.inject(t, Request{Pod: pod}); strings.HasPrefix(got, "refused") {
				t.Error(got)
			}
		})
	}
	all.Wait()
}

// An annotation cannot ask for more templates, or for longer lists, than a pod may have.
func TestAnnotationsAreBounded(t *testing.T) {
	r := newRig(t, base(t))
	for annotation, want := range map[string]string{
		templatesAnnotation: strings.TrimSuffix(strings.Repeat("sidecar,", 40), ","),
		overridesAnnotation: `{"containers":[{"name":"istio-proxy","env":[` +
			strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, listEntries+1), ",") + `]}]}`,
	} {
		pod, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "p", "annotations": map[string]any{annotation: want}},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "app"}}}})
		must.Succeed(t, err)
		if got := r.inject(t, Request{Pod: pod}); !strings.HasPrefix(got, "refused: ") || !strings.Contains(got, "more than") {
			t.Errorf("%s: got %.200s", annotation, got)
		}
	}
}

// What is wrong with the ConfigMap is a finding that says where, and such a version is not used.
func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ config, values, want string }{
		"no YAML":   {"policy: [", "{}", "error: ConfigMap a/b: data.config: "},
		"no values": {"policy: enabled", "[", "error: ConfigMap a/b: data.values: "},
		"policy":    {"policy: sometimes", "{}", `data.config: policy: "sometimes" is no policy`},
		"unknown function": {"policy: enabled\ntemplates:\n  sidecar: |\n    a: b\n    {{ nope }}\n",
			"{}", `data.config: templates.sidecar: line 2 of the template: function "nope" not defined`},
		"unknown field": {"policy: enabled\ntemplate: x\nneverInjectSelectors: []\n", "{}",
			"warning: ConfigMap a/b: data.config: neverInjectSelectors: unknown field, ignored; did you mean neverInjectSelector?"},
		"selector": {"policy: enabled\ntemplate: x\nneverInjectSelector: [{matchExpressions: [{key: a, operator: Maybe}]}]", "{}",
			"warning: ConfigMap a/b: data.config: neverInjectSelector[0]: "},
		"default template": {"policy: enabled\ntemplates: {a: x}\ndefaultTemplates: [b]", "{}",
			`warning: ConfigMap a/b: data.config: defaultTemplates: there is no template "b": there are a`},
		"alias": {"policy: enabled\ntemplates: {sidecar: x}\naliases: {c: [b]}", "{}",
			`warning: ConfigMap a/b: data.config: aliases.c: there is no template "b"`},
		"type of a value": {"policy: enabled\ntemplate: x", "global: {hub: [1]}", "error: ConfigMap a/b: data.values: "},
	} {
		c2, findings := Parse("ConfigMap a/b", Texts{c.config, c.values}, Functions{})
		if len(findings) != 1 || !strings.Contains(findings[0].String(), c.want) {
			t.Errorf("%s: got %v, want %s", name, findings, c.want)
		}
		if wrong := len(findings) > 0 && findings[0].Severity == diag.Error; wrong != (c2 == nil) {
			t.Errorf("%s: the version is used: %v", name, c2 != nil)
		}
	}
}

// Whatever a pod is, it gets an answer, whose patch fits it.
func FuzzInject(f *testing.F) {
	r := newRig(f, base(f))
	paths, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		must.Succeed(f, err)
		for _, file := range a.Files {
			if strings.HasSuffix(file.Name, ".pod") {
				f.Add(toJSONText(f, string(file.Data)))
			}
		}
	}
	f.Fuzz(func(t *testing.T, pod []byte) {
		if bytes.Contains(pod, []byte(`\u0000`)) || !json.Valid(pod) {
			return
		}
		r.inject(t, Request{Pod: pod, Namespace: "shop"})
	})
}

// Pods that somebody made to cost much get an answer of bounded length: they are refused, or the patch is about what
// changes.
func TestHostilePods(t *testing.T) {
	r := newRig(t, base(t))
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	pod := func(meta, spec string) string {
		return `{"metadata":{"name":"p"` + meta + `},"spec":{"containers":[{"name":"app","resources":{}}]` + spec + `}}`
	}
	long := strings.Repeat("x", 1<<20)
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	for name, c := range map[string]struct{ pod, refused string }{
		"containers":      {`{"spec":{"containers":[` + many(`{"name":"c%d"},`, 10_000) + `]}}`, "spec.containers has more than"},
		"init containers": {pod("", `,"initContainers":[`+many(`{"name":"c%d"},`, 10_000)+`]`), "spec.initContainers has more than"},
		"env": {`{"spec":{"containers":[{"name":"app","env":[` + many(`{"name":"c%d"},`, 10_000) + `]}]}}`,
			"spec.containers[0].env has more than"},
		"annotations":     {pod(`,"annotations":{`+many(`"a%d":"b",`, 10_000)+`}`, ""), ""},
		"labels":          {pod(`,"labels":{`+many(`"a%d":"b",`, 10_000)+`}`, ""), ""},
		"long annotation": {pod(`,"annotations":{"a":"`+long+`"}`, ""), ""},
		"long ports": {pod(`,"annotations":{"traffic.sidecar.istio.io/excludeInboundPorts":"`+long+`"}`, ""),
			"the pod's annotation traffic"},
		"long config":      {pod(`,"annotations":{"proxy.istio.io/config":"`+long+`"}`, ""), "the pod's annotation proxy.istio.io/config"},
		"long overrides":   {pod(`,"annotations":{"proxy.istio.io/overrides":"`+long+`"}`, ""), "the pod's annotation proxy.istio.io/overrides"},
		"long templates":   {pod(`,"annotations":{"inject.istio.io/templates":"`+long+`"}`, ""), "there is no template"},
		"deep, unknown":    {pod("", `,"a":`+deep), ""},
		"deep annotation":  {pod(`,"annotations":{"proxy.istio.io/config":`+strconv.Quote(deep)+`}`, ""), ""},
		"too deep for all": {pod("", `,"a":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)), "read the pod"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Inject(t.Context(), Request{Pod: []byte(c.pod)})
			switch {
			case err != nil && (c.refused == "" || !strings.HasPrefix(err.Error(), c.refused) || len(err.Error()) > 4096):
				t.Errorf("%d bytes: %.300s, want %q", len(err.Error()), err, c.refused)
			case err == nil && c.refused != "":
				t.Errorf("it is not refused: %.300s", got.Patch)
			case err == nil && len(got.Patch)+len(strings.Join(got.Warnings, "")) > 16<<10:
				t.Errorf("a patch of %d bytes, and warnings %.300s", len(got.Patch), got.Warnings)
			}
		})
	}
}
