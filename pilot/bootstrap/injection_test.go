package bootstrap

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// templatesMap returns a ConfigMap whose template names an image.
func templatesMap(image string) string {
	return `
apiVersion: v1
kind: ConfigMap
metadata: {name: istio-sidecar-injector, namespace: istio-system}
data:
  values: '{}'
  config: |
` + indented(templateConfig(image))
}

func templateConfig(image string) string {
	return `policy: enabled
templates:
  sidecar: |
    spec:
      {{ if .NativeSidecars }}initContainers{{ else }}containers{{ end }}:
      - name: istio-proxy
        image: ` + image + "\n"
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
}

// TestInjectionIsNotReadyWithBrokenTemplates as long as there is no version of them that can be used.
func TestInjectionIsNotReadyWithBrokenTemplates(t *testing.T) {
	inMap := func(o *Options, text string) string {
		write(t, filepath.Join(o.ConfigDir, "templates.yaml"), text)
		return filepath.Join(o.ConfigDir, "templates.yaml")
	}
	for name, begin := range map[string]func(*Options) (mend func()){
		"template": func(o *Options) func() {
			path := inMap(o, templatesMap("{{ nope }}"))
			return func() { write(t, path, templatesMap("one")) }
		},
		"YAML": func(o *Options) func() {
			path := inMap(o, strings.Replace(templatesMap("one"), "policy: enabled", "policy: [", 1))
			return func() { write(t, path, templatesMap("one")) }
		},
		"values": func(o *Options) func() {
			path := inMap(o, strings.Replace(templatesMap("one"), "'{}'", "'['", 1))
			return func() { write(t, path, templatesMap("one")) }
		},
		"files that cannot be read": func(o *Options) func() {
			o.Injection.Dir = t.TempDir()
			inMap(o, templatesMap("two"))
			config := filepath.Join(o.Injection.Dir, "config")
			must.Succeed(t, os.Symlink("..data/config", config))
			return func() {
				write(t, filepath.Join(o.Injection.Dir, "values"), "{}")
				write(t, config, templateConfig("one"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			o.HTTPS = ""
			mend := begin(&o)
			s, err := New(o)
			must.Succeed(t, err)
			run(t, s)
			eventually(t, "the reason", func() bool {
				return len(s.awaited()) == 1 && strings.Contains(s.awaited()[0], "injection templates that can be")
			})
			if code, text := fetch(t, s.Addresses().HTTP, "/ready"); code != http.StatusServiceUnavailable ||
				!strings.Contains(text, "injection templates") {
				t.Errorf("%d %s", code, text)
			}
			if len(s.injection.Findings()) == 0 {
				t.Error("no finding")
			}
			mend()
			eventually(t, "ready", s.ready.Load)
			if text := s.templates()["sidecar"]; !strings.Contains(text, "one") {
				t.Errorf("templates %s", text)
			}
		})
	}
}

// TestInjection has the templates come from the configuration, or from files, which count before it, and change while
// the server runs. A broken version is a finding, and the one before stays in force.
func TestInjection(t *testing.T) {
	o := testOptions(t)
	o.HTTPS, o.Injection.Dir, o.Injection.NativeSidecars = "", t.TempDir(), "auto"
	path := filepath.Join(o.ConfigDir, "templates.yaml")
	write(t, path, templatesMap("one"))
	s := started(t, o)
	base := "http://" + s.Addresses().HTTP
	injected := func() string {
		code, r := ask(t, http.DefaultClient, base+"/inject/cluster/east",
			reviewOf(`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"app"}]}}`))
		if code != http.StatusOK || r.Response == nil || !r.Response.Allowed {
			t.Fatalf("%d, %+v", code, r.Response)
		}
		return string(r.Response.Patch)
	}
	image := func(name string) func() bool {
		return func() bool { return strings.Contains(injected(), `"image":"`+name+`"`) }
	}
	eventually(t, "the first template", image("one"))
	if !strings.Contains(injected(), "/spec/initContainers") || !strings.Contains(injected(), "east") {
		t.Errorf("got %s", injected())
	}
	write(t, path, templatesMap("two"))
	eventually(t, "another template", image("two"))
	write(t, path, templatesMap("{{ nope }}"))
	eventually(t, "a finding", func() bool {
		for _, d := range s.findings() {
			if strings.Contains(d.String(),
				"templates.yaml:2:1: error: ConfigMap istio-system/istio-sidecar-injector: data.config: templates.sidecar: line 4 of the template") {
				return true
			}
		}
		return false
	})
	if !image("two")() {
		t.Errorf("the last good template is not in force: %s", injected())
	}
	write(t, filepath.Join(o.ConfigDir, "node.yaml"),
		"apiVersion: v1\nkind: Node\nmetadata: {name: node}\nstatus: {nodeInfo: {kubeletVersion: v1.32.9}}\n")
	eventually(t, "a node without native sidecars", func() bool { return !strings.Contains(injected(), "/spec/initContainers") })

	write(t, filepath.Join(o.Injection.Dir, "values"), "{}")
	write(t, filepath.Join(o.Injection.Dir, "config"), templateConfig("three"))
	eventually(t, "the template of files", image("three"))
	must.Succeed(t, os.Remove(filepath.Join(o.Injection.Dir, "config")))
	write(t, path, templatesMap("four"))
	resp, err := http.Get(base + "/debug/inject")
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	var pages map[string]string
	if err := json.Unmarshal(text, &pages); err != nil || !strings.Contains(pages["sidecar"], "three") {
		t.Errorf("/debug/inject: %s, %v", text, err)
	}
}

// What a webhook's answer holds is the patch in base64, as API servers take it.
func TestInjectionPatchIsEncodedOnce(t *testing.T) {
	o := testOptions(t)
	o.HTTPS = ""
	write(t, filepath.Join(o.ConfigDir, "templates.yaml"), templatesMap("one"))
	s := started(t, o)
	resp, err := http.Post("http://"+s.Addresses().HTTP+"/inject", "application/json",
		strings.NewReader(reviewOf(`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"app"}]}}`)))
	must.Succeed(t, err)
	defer resp.Body.Close()
	var raw struct{ Response struct{ Patch string } }
	must.Succeed(t, json.NewDecoder(resp.Body).Decode(&raw))
	text, err := base64.StdEncoding.DecodeString(raw.Response.Patch)
	must.Succeed(t, err)
	if _, err := jsonpatch.DecodePatch(text); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

// TestProxyConfigs: over the configuration of the mesh count the ProxyConfigs of the root namespace and of the pod's
// own, its annotation, and the ProxyConfig that selects it. They count as soon as they are written.
func TestProxyConfigs(t *testing.T) {
	o := testOptions(t)
	o.HTTPS, o.Injection.NativeSidecars = "", "false"
	write(t, filepath.Join(o.ConfigDir, "templates.yaml"), templatesMap("'{{ .ProxyConfig.Concurrency.GetValue }} "+
		"{{ .ProxyConfig.Image.GetImageType }} {{ range $k, $v := .ProxyConfig.ProxyMetadata }}{{ $k }}={{ $v }} {{ end }}.'"))
	object := func(file, namespace, spec string) {
		t.Helper()
		write(t, filepath.Join(o.ConfigDir, file+".yaml"),
			"apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {name: "+file+", namespace: "+namespace+"}\nspec: "+spec+"\n")
	}
	s := started(t, o)
	injected := func(meta, want string) {
		t.Helper()
		eventually(t, want, func() bool {
			_, r := ask(t, http.DefaultClient, "http://"+s.Addresses().HTTP+"/inject",
				reviewOf(`{"metadata":{"name":"a","namespace":"shop",`+meta+`},"spec":{"containers":[{"name":"app"}]}}`))
			text, err := json.Marshal(want)
			must.Succeed(t, err)
			return r.Response != nil && strings.Contains(string(r.Response.Patch), `"image":`+string(text))
		})
	}
	const picked = `"labels":{"app":"picked"}`
	const annotated = `"annotations":{"proxy.istio.io/config":"{concurrency: 8, proxyMetadata: {A: annotation, Z: z}}"}`
	injected(picked, `0  .`)
	injected(annotated, `8  A=annotation Z=z .`)
	object("root", "istio-system", "{concurrency: 5, environmentVariables: {A: root, R: root}}")
	object("root-picked", "istio-system", "{selector: {matchLabels: {app: picked}}, environmentVariables: {NOWHERE: x}}")
	object("elsewhere", "other", "{environmentVariables: {NOWHERE: x}}")
	injected(picked, `5  A=root R=root .`)
	object("namespace", "shop", "{environmentVariables: {A: shop, M: shop}, image: {imageType: debug}}")
	object("workload", "shop", "{selector: {matchLabels: {app: picked}}, concurrency: 0, environmentVariables: {A: picked}}")
	injected(picked, `0 debug A=picked M=shop R=root .`)
	injected(picked+","+annotated, `0 debug A=picked M=shop R=root Z=z .`)
	injected(annotated, `8 debug A=annotation M=shop R=root Z=z .`)
	must.Succeed(t, os.Remove(filepath.Join(o.ConfigDir, "namespace.yaml")))
	injected(picked, `0  A=picked R=root .`)
}
