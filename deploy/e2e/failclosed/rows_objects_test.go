package failclosed

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/jwks"
)

// object returns an object of namespace a by the name input. spec is in YAML's flow style.
func object(group, kind, spec string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: input, namespace: a}\nspec: %s\n", group, kind, spec)
}

const (
	security   = "security.istio.io/v1"
	networking = "networking.istio.io/v1"
)

// objectRows are the kinds that authenticate, encrypt, hide or refuse, in the config directory.
func objectRows() []row {
	keys := strings.ReplaceAll(jwks.Nobody, "'", "''")
	rule := fmt.Sprintf("{issuer: i, jwks: '%s'}", keys)
	return []row{
		{
			input: "AuthorizationPolicy", good: policy, errors: []fault{
				{name: "a wrong value", content: object(security, "AuthorizationPolicy", "{action: ALOW}"), said: "a/input: spec.action", start: refused, running: kept},
				{
					name: "an unknown field", content: object(security, "AuthorizationPolicy", "{rule: [{}]}"),
					said: "a/input: spec.rule", start: refused, running: kept,
				},
				{
					name: "a rule that cannot be read", said: "ipBlocks",
					content: object(security, "AuthorizationPolicy", `{rules: [{from: [{source: {ipBlocks: ["10.0.0.0/99"]}}]}]}`), start: refused, running: kept,
				},
			},
		},
		{
			input: "PeerAuthentication", good: object(security, "PeerAuthentication", "{mtls: {mode: STRICT}}"), errors: []fault{
				{name: "a wrong value", content: object(security, "PeerAuthentication", "{mtls: {mode: STRIKT}}"), said: "STRIKT", start: refused, running: kept},
				{
					name: "an unknown field", content: object(security, "PeerAuthentication", "{mtls: {mode: STRICT}, port: {}}"),
					said: "a/input: spec.port", start: refused, running: kept,
				},
			},
		},
		{
			input: "RequestAuthentication", good: object(security, "RequestAuthentication", "{jwtRules: ["+rule+"]}"), errors: []fault{
				{
					name: "a wrong rule beside a good one", content: object(security, "RequestAuthentication", "{jwtRules: ["+rule+", {jwks: x}]}"),
					said: `a/input: spec.jwtRules\[1\]`, start: refused, running: kept,
				},
			},
		},
	}
}

// meshRows are the ways by which a server gets its mesh configuration.
func meshRows() []row {
	const good = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"
	config := func(text string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n  mesh: |\n    " + text
	}
	return []row{
		{
			input: "the mesh configuration, by --meshConfig", file: "config/mesh.yaml", good: good, open: "{}\n",
			args: func(dir string) []string { return []string{"--meshConfig", filepath.Join(dir, "config", "mesh.yaml")} },
			errors: []fault{
				{name: "a link that leads nowhere", spoil: dangling, said: "mesh.yaml", start: refused, running: kept, silent: true},
				{name: "an unknown field", content: good + "unheardOf: 1\n", said: "unheardOf", start: rest, running: rest},
			},
		},
		{
			input: "the mesh configuration, by a ConfigMap in the config directory", good: config(good), open: config("{}\n"), errors: []fault{
				{name: "a syntax error after the text", content: config(good) + "  other: {\n", said: "input.yaml", start: refused, running: kept},
				{name: "an unknown field", content: config(good + "    unheardOf: 1\n"), said: "unheardOf", start: rest, running: rest},
			},
		},
	}
}

func allRows() []row {
	rows := append(fileRows(), objectRows()...)
	return append(rows, meshRows()...)
}
