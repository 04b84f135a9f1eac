package injector_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
)

// TestRender: a template for Gateways makes objects, of which there are not many, and its errors say which it is.
func TestRender(t *testing.T) {
	const object = "{kind: Service, metadata: {name: {{ .DeploymentName }}, namespace: {{ .Namespace }}}, port: {{ (index .Ports 0).Port }}}\n"
	for template, want := range map[string]string{
		"# nothing\n---\n" + object + "---\n---\n" + object: "2",
		"[1]":                              "what template kube-gateway writes is no object",
		"a: {":                             "what template kube-gateway writes is no YAML",
		"{{ .Nobody }}":                    "template kube-gateway: ",
		"":                                 "the injection ConfigMap has no template kube-gateway",
		strings.Repeat(object+"---\n", 17): "template kube-gateway writes more than 16 objects",
		"{{ range until 60000 }}" + strings.Repeat("x", 100) + "{{ end }}": "template kube-gateway: the template writes more than",
	} {
		templates := map[string]string{"sidecar": "spec: {}"}
		if template != "" {
			templates[injector.GatewayTemplate] = template
		}
		config, err := json.Marshal(map[string]any{"policy": "enabled", "templates": templates})
		must.Succeed(t, err)
		c, findings := injector.Parse("test", injector.Texts{Config: string(config), Values: "{}"}, injector.Functions{})
		if len(findings) > 0 {
			t.Fatal(findings)
		}
		i := injector.New(
			injector.Options{World: injector.MeshOnly{Config: mesh.Default()}, Logger: slog.New(slog.DiscardHandler), Time: time.Minute})
		i.Set(c)
		g := injector.Gateway{Gateway: &gatewayv1.Gateway{}, DeploymentName: "front", Ports: make([]corev1.ServicePort, 1)}
		g.Namespace = "edge"
		made, err := i.Render(t.Context(), injector.GatewayTemplate, g)
		got := fmt.Sprint(len(made))
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%.60q: %s, want %s", template, got, want)
		}
	}
}
