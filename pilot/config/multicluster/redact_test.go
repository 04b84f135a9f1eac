package multicluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestRedact(t *testing.T) {
	kubeconfig := `apiVersion: v1
kind: Config
clusters:
- cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: LS0tLS1CRUdJTi}
  name: east
contexts: [{name: ctx, context: {cluster: east, user: robot}}]
current-context: ctx
users:
- name: robot
  user:
    token: eyJhbGciOiJSUzI1NiJ9.payload
    password: 'pass phrase'
    exec: {command: aws-iam-authenticator, args: ["--secret=hunter2"]}
`
	asJSON, err := json.Marshal(
		map[string]any{"users": []any{map[string]any{"name": "robot", "user": map[string]any{"token": "eyJhbGciOiJSUzI1NiJ9.payload"}}}},
	)
	must.Succeed(t, err)
	for message, want := range map[string]string{
		"user robot: exec of aws-iam-authenticator is refused":           "user robot: exec of aws-iam-authenticator is refused",
		"dial https://10.0.0.1:6443: token eyJhbGciOiJSUzI1NiJ9.payload": "dial https://10.0.0.1:6443: token [redacted]",
		"cannot unmarshal !!str `eyJhbGc...` into a map":                 "cannot unmarshal !!str `[redacted]...` into a map",
		"[pass phrase] [--secret=hunter2]":                               "[[redacted] [redacted]] [[redacted]]",
		"certificate-authority-data LS0tLS1CRUdJTi: " +
			"LS0tLS1C, LS0tLS1CRUdJTi, insecure v1": "certificate-authority-data [redacted]: [redacted], [redacted], insecure v1",
	} {
		if got := redact(message, []byte(kubeconfig)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := redact("user robot has token eyJhbGciOiJSUzI1NiJ9.payload", asJSON); got != "user robot has token [redacted]" {
		t.Errorf("of JSON: %q", got)
	}
	if got := redact("found eyJhbGciOiJSUzI1NiJ9", []byte("eyJhbGciOiJSUzI1NiJ9 is no YAML")); strings.Contains(got, "eyJ") {
		t.Errorf("of no YAML: %q", got)
	}
}
