package ingress_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	ingressv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

var update = flag.Bool("update", false, "write the goldens anew")

// world is objects by their keys.
type world map[kinds.Key]*kinds.Object

func decode(t testing.TB, name string, text []byte) world {
	t.Helper()
	w, decoded := world{}, validation.Decode(limits.Default(), name, text)
	if decoded.Broken != nil {
		t.Fatal(decoded.Broken)
	}
	for _, d := range decoded.Documents {
		if d.Object == nil {
			t.Fatal(d.Findings)
		}
		w[d.Key] = d.Object
	}
	return w
}

// fromServers returns the objects as those of an API server are, which are cut down to what is read of them.
func (w world) fromServers() world {
	out := maps.Clone(w)
	for key, o := range w {
		if p, ok := o.Spec.(*corev1.Pod); ok {
			slim := *o
			slim.Spec = kube.PodFactsOf(p, o.Labels)
			out[key] = &slim
		}
	}
	return out
}

func stage() *derivetest.Driver {
	stages := catalog.Stages(catalog.StageOptions{Domain: "cluster.local", Namespace: "istio-system", Limits: limits.Default()})
	return derivetest.New(stages[0])
}

// text returns what is derived as goldens have it.
func text(t testing.TB, d derive.Part) (derived, findings, statuses string) {
	t.Helper()
	var a, b, c strings.Builder
	for _, o := range d.Objects {
		spec, err := protojson.Marshal(o.Object.Spec.(proto.Message))
		must.Succeed(t, err)
		out, err := yaml.JSONToYAML(spec)
		must.Succeed(t, err)
		age := ""
		if created := o.Object.Created; !created.IsZero() {
			age = " since " + created.UTC().Format(time.DateOnly)
		}
		fmt.Fprintf(&a, "# %s of %s%s\n%s", o.Object, o.Origin, age, out)
	}
	for _, f := range d.Findings {
		f.File, f.Line, f.Column = "", 0, 0
		fmt.Fprintln(&b, f)
	}
	for _, s := range d.Statuses {
		value, err := json.Marshal(s.Value)
		must.Succeed(t, err)
		fmt.Fprintf(&c, "%s %s\n", s.Of, value)
	}
	return a.String(), b.String(), c.String()
}

// TestGoldens shows what the stage makes of Ingresses: testdata/*.txtar have objects and a mesh configuration, and the
// derived objects, findings and statuses.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d goldens, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			must.Succeed(t, err)
			parts := map[string]string{}
			for _, f := range a.Files {
				parts[f.Name] = string(f.Data)
			}
			m := mesh.Default()
			if parts["mesh.yaml"] != "" {
				var found any
				if m, found = mesh.Parse("mesh.yaml", []byte(parts["mesh.yaml"])); m == nil {
					t.Fatal(found)
				}
			}
			w := decode(t, "objects.yaml", []byte(parts["objects.yaml"]))
			got := map[string]string{}
			got["derived.yaml"], got["findings"], got["statuses"] = text(t, stage().Run(t, w, m))
			_, _, fromServers := text(t, stage().Run(t, w.fromServers(), m))
			if fromServers != got["statuses"] {
				t.Errorf("with objects of an API server: %s", fromServers)
			}
			if *update {
				a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { _, is := got[f.Name]; return is })
				for _, name := range []string{"derived.yaml", "findings", "statuses"} {
					a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(got[name])})
				}
				must.Succeed(t, os.WriteFile(file, txtar.Format(a), 0o644))
				return
			}
			for name, text := range got {
				if d := cmp.Diff(parts[name], text); d != "" {
					t.Errorf("%s (-want +got):\n%s", name, d)
				}
			}
		})
	}
}

const services = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {ports: [{name: http, port: 80}, {name: more, port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: a}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: ours}
spec: {controller: istio.io/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: theirs}
spec: {controller: example.com/other}
`

// TestEveryFieldActs changes each field of an Ingress that has all of them. Then what is derived, or a finding,
// differs.
func TestEveryFieldActs(t *testing.T) {
	const whole = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: all, namespace: a}
spec:
  ingressClassName: ours
  defaultBackend: {service: {name: api, port: {name: http}}}
  tls: [{hosts: [one.example.com], secretName: one}]
  rules:
  - host: one.example.com
    http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`
	w := decode(t, "objects.yaml", []byte(services+"---\n"+whole))
	key := kinds.Key{Kind: kinds.Ingress, Namespace: "a", Name: "all"}
	original := w[key]
	show := func(s *ingressv1.Ingress) string {
		o := *original
		o.Spec = s
		w[key] = &o
		a, b, c := text(t, stage().Run(t, w, mesh.Default()))
		return a + b + c
	}
	base, count := show(original.Spec.(*ingressv1.Ingress)), 0
	var visit func(path string, v reflect.Value, root *ingressv1.Ingress)
	check := func(path string, root *ingressv1.Ingress) {
		count++
		// An API server refuses a backend that is both a Service and a resource, and a port with a name and a number.
		refused := strings.HasSuffix(path, "Backend.Resource") || path == "spec.DefaultBackend.Service.Port.Number"
		if !refused && show(root) == base {
			t.Errorf("%s has no effect, and no finding names it", path)
		}
	}
	visit = func(path string, v reflect.Value, root *ingressv1.Ingress) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				visit(path+"."+v.Type().Field(i).Name, v.Field(i), root)
			}
			return
		case reflect.Slice:
			if v.Len() > 0 {
				visit(path+"[0]", v.Index(0), root)
			}
		case reflect.Pointer:
			if !v.IsNil() {
				visit(path, v.Elem(), root)
			}
		}
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch v.Kind() {
		case reflect.String:
			if old.String() == "Prefix" {
				v.SetString("Exact")
			} else {
				v.SetString("theirs")
			}
		case reflect.Int32:
			v.SetInt(81)
		case reflect.Slice:
			v.SetZero()
		case reflect.Pointer:
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			} else {
				v.SetZero()
			}
		default:
			t.Fatalf("%s: a %s", path, v.Kind())
		}
		check(path, root)
		v.Set(old)
	}
	root := original.Spec.(*ingressv1.Ingress).DeepCopy()
	visit("spec", reflect.ValueOf(&root.Spec).Elem(), root)
	if count < 15 {
		t.Errorf("%d fields were changed", count)
	}
}

// TestOneOfMany: where one Ingress of many changes, what is derived of the others is the same objects.
func TestOneOfMany(t *testing.T) {
	w := decode(t, "services.yaml", []byte(services))
	at := func(i int, path string) *kinds.Object {
		return slices.Collect(func(yield func(*kinds.Object) bool) {
			for _, o := range decode(t, "x.yaml", fmt.Appendf(nil, simple, i, i/2, path)) {
				yield(o)
			}
		})[0]
	}
	const n = 200
	for i := range n {
		o := at(i, "/a")
		w[o.Key] = o
	}
	s := stage()
	before := map[*kinds.Object]bool{}
	for _, d := range s.Run(t, w, mesh.Default()).Objects {
		before[d.Object] = true
	}
	if len(before) != n+n/2 {
		t.Fatalf("%d objects of %d Ingresses", len(before), n)
	}
	o := at(7, "/b")
	w[o.Key] = o
	var changed []string
	for _, d := range s.Run(t, w, mesh.Default()).Objects {
		if !before[d.Object] {
			changed = append(changed, d.Object.String())
		}
	}
	want := []string{"Gateway istio-system/i7-istio-autogenerated-k8s-ingress-a",
		"VirtualService a/h3-example-com-i6-istio-autogenerated-k8s-ingress"}
	if !slices.Equal(changed, want) {
		t.Errorf("new objects %v, want %v", changed, want)
	}
}

const simple = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i%d, namespace: a, annotations: {kubernetes.io/ingress.class: istio}}
spec: {rules: [{host: h%d.example.com, http: {paths: [{path: %s, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`

// TestHistories: whatever changes, the stage derives what a new one would.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, w := stage(), world{}
		pool := decode(t, "services.yaml", []byte(services))
		all := slices.SortedFunc(func(yield func(*kinds.Object) bool) {
			for _, o := range pool {
				yield(o)
			}
		}, func(a, b *kinds.Object) int { return strings.Compare(a.String(), b.String()) })
		m := mesh.Default()
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			switch rapid.IntRange(0, 3).Draw(r, "step") {
			case 0:
				o := rapid.SampledFrom(all).Draw(r, "object")
				if w[o.Key] != nil {
					delete(w, o.Key)
				} else {
					w[o.Key] = o
				}
			case 1:
				m, _ = mesh.Parse("mesh.yaml", []byte("ingressControllerMode: "+rapid.SampledFrom([]string{`"OFF"`, "STRICT",
					"DEFAULT"}).Draw(r, "mode")+"\ningressSelector: "+
					rapid.SampledFrom([]string{"w", "x"}).Draw(r, "selector")))
			default:
				text := fmt.Sprintf(simple, rapid.IntRange(0, 3).Draw(r, "ingress"), rapid.IntRange(0, 1).Draw(r, "host"),
					rapid.SampledFrom([]string{"/a", "/b"}).Draw(r, "path"))
				text = strings.ReplaceAll(text, "number: 80", rapid.SampledFrom([]string{"number: 80", "name: more"}).Draw(r, "port"))
				if rapid.Bool().Draw(r, "classed") {
					text = strings.NewReplacer(", annotations: {kubernetes.io/ingress.class: istio}", "", "spec: {", "spec: {ingressClassName: "+
						rapid.SampledFrom([]string{"ours", "theirs", "missing"}).Draw(r, "class")+", ").Replace(text)
				}
				for key, o := range decode(t, "x.yaml", []byte(text)) {
					o.Created = time.Unix(int64(rapid.IntRange(1, 2).Draw(r, "age")), 0)
					w[key] = o
				}
			}
			a1, a2, a3 := text(t, s.Run(t, w, m))
			b1, b2, b3 := text(t, stage().Run(t, w, m))
			if d := cmp.Diff(b1+b2+b3, a1+a2+a3); d != "" {
				r.Fatalf("-new stage +this one:\n%s", d)
			}
		}
	})
}
