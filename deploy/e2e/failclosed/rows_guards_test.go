package failclosed

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
)

// caRows are the files of a certificate authority in ROOT_CA_DIR.
func caRows() (rows []row) {
	broken := func() []fault {
		return []fault{
			{name: "a link that leads nowhere", spoil: dangling, start: refused, running: kept},
			{name: "a volume without ..data", spoil: noData, start: refused, running: kept},
			{name: "unreadable", spoil: unreadable, start: refused, running: kept},
			{name: "no PEM", content: "nonsense\n", start: refused, running: kept},
			{name: "without content", content: "\n", start: refused, running: kept},
		}
	}
	for _, r := range []row{
		{input: "the list of revoked certificates in ROOT_CA_DIR", file: "ca/ca-crl.pem", errors: broken()},
		{input: "the certificate of the CA in ROOT_CA_DIR", file: "ca/ca-cert.pem", errors: broken()},
		{input: "the key of the CA in ROOT_CA_DIR", file: "ca/ca-key.pem", errors: broken()},
		{input: "the roots of the CA in ROOT_CA_DIR", file: "ca/root-cert.pem", errors: broken()},
	} {
		for i := range r.errors {
			r.errors[i].said = `CA in |\.pem`
		}
		rows = append(rows, r)
	}
	return rows
}

// caSecretRows are the Secrets of an API server with a certificate authority. api answers the requests of the server.
// It is nil for the document.
func caSecretRows(api *faults.Proxy) (rows []row) {
	answers := func(status int) func(*testing.T, string) {
		return func(*testing.T, string) {
			api.Set(faults.Rule{Match: faults.Match{Verbs: []string{"get"}, Resource: "secrets"}, Status: status})
		}
	}
	for _, name := range []string{"cacerts", "istio-ca-secret"} { // a server uses the second one if both exist
		secret := func(data string) string {
			if name == "cacerts" {
				data += ", istio-generated: ''"
			}
			return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", namespace: istio-system}\ntype: istio.io/ca-root\ndata: {" + data +
				"}\n"
		}
		rows = append(rows, row{
			input: "the Secret " + name + " of an API server", good: secret("ca-cert.pem: ROOT, ca-key.pem: KEY"), errors: []fault{
				{name: "no PEM", content: secret("ca-cert.pem: eA==, ca-key.pem: eA=="), said: name, start: refused, running: kept},
				{name: "without a key", content: secret("ca-cert.pem: '', ca-key.pem: ''"), said: name, start: refused, running: kept},
				{name: "403", spoil: answers(http.StatusForbidden), said: "a fault that a test asked for", start: refused, running: kept},
				{name: "500", spoil: answers(http.StatusInternalServerError), said: "a fault that a test asked for", start: refused, running: kept},
			},
		})
	}
	return rows
}

// mutualGateway verifies its clients with a Secret, which its proxies may read.
const mutualGateway = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: tls, namespace: a}
spec:
  selector: {app: gateway}
  servers: [{port: {number: 8443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: MUTUAL, credentialName: input}}]
---
`

// credential returns a Secret of a gateway.
func credential(data string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: input, namespace: a}\ndata: {tls.crt: ROOT, tls.key: KEY, " + data + "}\n"
}

// apiSecretRows are the roots for clients of a gateway, in an API server. api answers the requests of the server. It is
// nil for the document.
func apiSecretRows(api *faults.Proxy) []row {
	const rights = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gateway, namespace: a}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gateway, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gateway}
subjects: [{kind: ServiceAccount, name: gateway, namespace: a}]
---
`
	r := row{
		input: "the Secret of a Gateway that requires client certificates, of an API server", world: mutualGateway + rights,
		good: credential("ca.crt: ROOT, ca.crl: LIST"), open: credential("ca.crt: ROOT"),
	}
	for _, a := range answers() {
		if a.name != "403" && a.name != "500" {
			continue
		}
		rule := a.Rule
		rule.Match = faults.Match{Verbs: []string{"get", "list", "watch"}, Resource: "secrets", Namespace: "a"}
		r.errors = append(r.errors, fault{name: a.name, said: "secrets in namespace a|API server cannot be read", start: closed, running: kept,
			spoil: func(*testing.T, string) { api.Set(rule); api.CutWatches(rule.Match) }})
	}
	return []row{r}
}

// secretRows are the roots for clients of a gateway, in the config directory.
func secretRows() []row {
	secret := credential
	return []row{{
		input: "the Secret of a Gateway that requires client certificates", world: mutualGateway, good: secret("ca.crt: ROOT, ca.crl: LIST"),
		open: secret("ca.crt: ROOT"), errors: []fault{
			{name: "certificates that are no PEM", content: secret("ca.crt: BROKEN, ca.crl: LIST"), said: "ca.crt", start: closed, running: kept},
			{name: "a list of revoked certificates that is no PEM", content: secret("ca.crt: ROOT, ca.crl: BROKEN"), said: "ca.crl", start: closed,
				running: kept},
			{name: "a list of revoked certificates without content", content: secret("ca.crt: ROOT, ca.crl: ''"), said: "ca.crl", start: closed,
				running: kept},
			{name: "no base64", content: secret("ca.crt: ROOT, ca.crl: '%'"), said: "input", start: closed, running: kept},
			{name: "another name", content: strings.Replace(secret("ca.crt: ROOT"), "name: input", "name: inputs", 1), said: "a/input",
				start: closed, running: closed},
		},
	}}
}

// injectionRows are the files in --injectDir, and the settings in force for injected proxies.
func injectionRows() []row {
	const template = `policy: enabled
defaultTemplates: [sidecar]
templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
        image: IMAGE
`
	args := func(dir string) []string { return []string{"--injectDir", filepath.Join(dir, "inject")} }
	good, open := strings.ReplaceAll(template, "IMAGE", "proxy"), "policy: disabled\ntemplates: {}\n"
	return []row{
		{
			input: "the templates of injection", file: "inject/config", args: args, good: good, open: open,
			files: map[string]string{"inject/values": "{}\n"}, errors: []fault{
				{name: "a link that leads nowhere", spoil: dangling, said: "config", start: refused, running: kept},
				{name: "unreadable", spoil: unreadable, said: "config", start: refused, running: kept},
				{name: "a volume without ..data", spoil: noData, said: "config", start: refused, running: kept},
				{name: "a syntax error", content: good + "{", said: "config|inject", start: refused, running: kept},
				{name: "a template that cannot be parsed", content: strings.ReplaceAll(template, "IMAGE", "{{ nope }}"), said: "nope",
					waits: "injection templates that can be", start: refused, running: kept},
			},
		},
		{
			input: "the values of injection", file: "inject/values", args: args, good: "proxy: proxy\n", errors: []fault{
				{name: "a link that leads nowhere", spoil: dangling, said: "values", start: refused, running: kept},
				{name: "unreadable", spoil: unreadable, said: "values", start: refused, running: kept},
				{name: "a syntax error", content: "proxy: {\n", said: "values", waits: "injection templates that can be", start: refused,
					running: kept},
				{name: "a volume without ..data", spoil: noData, said: "config", start: refused, running: kept},
			},
			files: map[string]string{"inject/config": strings.ReplaceAll(template, "IMAGE", `"{{ .Values.proxy }}"`)},
		},
		{
			input: "ProxyConfig", args: args, good: object(networkingBeta, "ProxyConfig", "{concurrency: 2}"), errors: []fault{
				{name: "a wrong value", content: object(networkingBeta, "ProxyConfig", "{concurrency: -1}"), said: "a/input: spec.concurrency",
					start: rest, running: rest},
				{name: "an unknown field", content: object(networkingBeta, "ProxyConfig", "{concurrency: 2, unheardOf: 1}"),
					said: "a/input: spec.unheardOf", start: rest, running: rest},
			},
			files: map[string]string{"inject/config": strings.ReplaceAll(template, "IMAGE", "proxy"), "inject/values": "{}\n"},
		},
	}
}
