package traffic

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// extensionYAML returns a TrafficExtension for the server echo that appends a mark to a header of responses.
func extensionYAML(name, spec, mark string) string {
	return fmt.Sprintf(`apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: %s, namespace: a}
spec:
  selector: {matchLabels: {app: echo}}
  match: [{mode: SERVER, ports: [{number: 8080}]}]
  %s
  lua:
    inlineCode: |
      function envoy_on_response(h)
        h:headers():replace("x-order", (h:headers():get("x-order") or "") .. "%s")
      end
---
`, name, spec, mark)
}

// TestExtensions: Lua and a WebAssembly module change the answers of the selected server, in the order of phases and
// priorities: the first filter handles a response last. Another server answers as before. A missing module fails
// closed, or open if configured, and requests pass again once its object is deleted.
func TestExtensions(t *testing.T) {
	m := start(t, extensionMeshYAML, suite.MeshOptions{CA: true})
	get := func(address string) response {
		a, _ := m.do(request{from: "client", address: address})
		return a
	}
	file := filepath.Join(filepath.Dir(m.Dir), "mark.wasm")
	if err := os.WriteFile(file, suite.WasmModule(), 0o644); err != nil { //nolint:gosec // proxies read it
		t.Fatal(err)
	}
	wasm := fmt.Sprintf(`apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: module, namespace: a}
spec:
  selector: {matchLabels: {app: echo}}
  url: file://%s
  phase: STATS
  pluginConfig: {mark: 1}
  match: [{mode: SERVER}]
`, file)
	path := filepath.Join(m.Dir, "extensions.yaml")
	answers := func(order, wasm string) func() bool {
		return func() bool {
			a := get(extensionEchoService)
			return a.status == http.StatusOK && a.header.Get("X-Order") == order && a.header.Get("X-Wasm") == wasm
		}
	}
	suite.Eventually(t, "the server answers", answers("", ""))
	ordered := extensionYAML("none", "", "n") + extensionYAML("five", "priority: 5", "5") + extensionYAML("ten", "priority: 10", "t") +
		extensionYAML("authn", "phase: AUTHN", "a")
	suite.Write(t, path, ordered+wasm)
	suite.Eventually(t, "filters stand in their order", answers("n5ta", `{"mark":1}`))
	if a := get(plainService); a.status != http.StatusOK || a.header.Get("X-Order") != "" || a.header.Get("X-Wasm") != "" {
		t.Errorf("the other server answers %d with the headers %v", a.status, a.header)
	}

	// A script that does not load is left out, and everything else is in force.
	suite.Write(t, path, extensionYAML("more", "priority: -1", "m")+extensionYAML("broken", "priority: 20", `b" .. `)+ordered+wasm)
	suite.Eventually(t, "a broken script does no harm", answers("nm5ta", `{"mark":1}`))

	const name = "extensions.istio.io/trafficextension/a.module~istio-translated-wasmplugin"
	type dump struct {
		Configs []struct{ Name string }
	}
	if d := page[dump](m, "/debug/ecdsz?proxyID=echo.a"); len(d.Configs) != 1 || d.Configs[0].Name != name {
		t.Errorf("ecdsz of the server: %v", d)
	}
	suite.Eventually(t, "the proxy accepts the module", func() bool {
		for _, s := range page[[]struct {
			Proxy string `json:"proxy"`
			Sent  string `json:"extensionconfig_sent"`
			Acked string `json:"extensionconfig_acked"`
		}](m, "/debug/syncz?namespace=a") {
			if s.Proxy == "plain.a" && s.Sent != "" {
				t.Fatal("a proxy without a module was sent one")
			}
			if s.Proxy == "echo.a" {
				return s.Sent != "" && s.Acked == s.Sent
			}
		}
		return false
	})

	suite.Write(t, path, ordered+strings.Replace(wasm, "mark: 1", "mark: 2", 1))
	suite.Eventually(t, "a configuration changes", answers("n5ta", `{"mark":2}`))
	suite.Write(t, path, strings.NewReplacer(file, "/no/such.wasm", "name: module", "name: missing").Replace(wasm))
	suite.Eventually(t, "a module that is not there refuses requests",
		func() bool { return get(extensionEchoService).status == http.StatusForbidden })
	if a := get(plainService); a.status != http.StatusOK {
		t.Errorf("the other server answers %d", a.status)
	}
	suite.Write(t, path,
		strings.NewReplacer(file, "/no/such.wasm", "name: module", "name: open", "phase: STATS", "failStrategy: FAIL_OPEN").Replace(wasm))
	suite.Eventually(t, "a module that is not there, and may fail, lets requests in", answers("", ""))
	suite.Write(t, path, extensionYAML("ten", "priority: 10", "t"))
	suite.Eventually(t, "the rest goes on", answers("t", ""))
}
