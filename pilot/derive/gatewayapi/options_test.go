package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestListenerOptions: the options of a listener restrict its TLS, together with what the Gateway demands of clients. A
// listener with an option of Istio that is not known takes no connections, and its status and a finding say so.
func TestListenerOptions(t *testing.T) {
	recorded, err := txtar.ParseFile("testdata/istiod/10-listenerset.txtar")
	must.Succeed(t, err)
	secret := strings.Split("\n"+string(recorded.Files[0].Data), "\n---\n")[1] // gw/cert
	const ciphers, mode = "gateway.istio.io/tls-cipher-suites", "gateway.istio.io/tls-terminate-mode"
	const valid, fallback = "AllowValidOnly", "AllowInsecureFallback"
	for _, c := range []struct {
		options  string
		clients  string // the mode of spec.tls.frontend; empty: nothing is demanded of clients
		want     string // of the server's settings; empty: the listener takes no connections
		severity string // of the finding about an option
	}{
		{ciphers + ": ECDHE-RSA-AES256-GCM-SHA384", "", "SIMPLE ECDHE-RSA-AES256-GCM-SHA384", ""},
		{ciphers + `: "AES128-SHA, AES256-SHA"`, "", "SIMPLE AES128-SHA,AES256-SHA", ""},
		{ciphers + `: "AES128-SHA,none"`, "", "SIMPLE AES128-SHA", "warning"},
		{ciphers + ": none", "", "", "error"},
		{ciphers + `: ""`, "", "", "error"},
		{"gateway.istio.io/cipher-suites: AES128-SHA", "", "", "error"},
		{"gateway.istio.io/tls-min-version: TLSV1_3", "", "", "error"},
		{"security.istio.io/anything: x", "", "", "error"},
		{"example.com/anything: x", "", "SIMPLE", "warning"},
		{mode + ": mutual", "", "", "error"},
		{mode + ": MUTUAL", "", "MUTUAL", ""},
		{mode + ": SIMPLE", "", "SIMPLE", ""},
		{mode + ": OPTIONAL_MUTUAL", "", "OPTIONAL_MUTUAL", ""},
		{mode + ": ISTIO_SIMPLE", "", "SIMPLE builtin://", ""},
		{mode + ": ISTIO_MUTUAL", "", "ISTIO_MUTUAL", ""},
		{"", valid, "MUTUAL configmap://gw/ca", ""},
		{"", fallback, "OPTIONAL_MUTUAL configmap://gw/ca untrusted", ""},
		{mode + ": MUTUAL", fallback, "MUTUAL configmap://gw/ca", "info"},
		{mode + ": OPTIONAL_MUTUAL", fallback, "OPTIONAL_MUTUAL configmap://gw/ca", "info"},
		{mode + ": OPTIONAL_MUTUAL", valid, "MUTUAL configmap://gw/ca", ""},
		{mode + ": ISTIO_SIMPLE", valid, "MUTUAL builtin:// configmap://gw/ca", ""},
	} {
		world, stage := objects{}, newStage()
		text := secret + `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca, namespace: gw}
data: {ca.crt: x}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec:
  gatewayClassName: istio
  listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}], options: {` + c.options + `}}}]
`
		if c.clients != "" {
			text += `  tls: {frontend: {default: {validation: {mode: ` + c.clients +
				`, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}}}`
		}
		world.put(t, text)
		out := stage.Run(t, world, mesh.Default())
		got := ""
		for _, d := range out.Objects {
			if d.Object.Kind != kinds.Gateway {
				continue
			}
			s := d.Object.Spec.(*networkingv1.Gateway).Servers[0].Tls
			words := []string{s.Mode.String(), strings.Join(s.CipherSuites, ","),
				strings.TrimPrefix(s.CredentialName, "kubernetes-gateway://gw/cert"), s.CaCertCredentialName}
			if s.GetInsecureSkipVerify().GetValue() {
				words = append(words, "untrusted")
			}
			got = strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
		}
		if got != c.want {
			t.Errorf("{%s} with %q: %q, want %q; findings %v", c.options, c.clients, got, c.want, out.Findings)
		}
		refused := strings.Contains(fmt.Sprint(conditionsOf(statusOf(out, kinds.KubeGateway, "edge"))), "Accepted=False UnsupportedValue")
		if refused != (c.want == "") {
			t.Errorf("{%s}: the status is %v", c.options, conditionsOf(statusOf(out, kinds.KubeGateway, "edge")))
		}
		severity := ""
		for _, f := range out.Findings {
			if strings.HasPrefix(f.Field, "spec.listeners[0].tls.options[") {
				severity = f.Severity.String()
			}
		}
		if severity != c.severity {
			t.Errorf("{%s} with %q: the finding about the option is of severity %q, want %q: %v", c.options, c.clients, severity, c.severity,
				out.Findings)
		}
	}
}
