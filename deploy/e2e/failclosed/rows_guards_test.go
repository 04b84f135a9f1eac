package failclosed

import (
	"path/filepath"
	"strings"
)

// caRows are the files of a certificate authority in ROOT_CA_DIR.
func caRows() (rows []row) {
	broken := func() []fault {
		return []fault{
			{name: "a link that leads nowhere", spoil: dangling, start: refused, running: kept},
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
			r.errors[i].said = "ca-crl.pem|CA in |" + filepath.Base(r.file)
		}
		rows = append(rows, r)
	}
	return rows
}

// injectionRows are the files in --injectDir.
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
			input: "the templates of injection", file: "inject/config", args: args, good: good, open: open, files: map[string]string{"inject/values": "{}\n"}, errors: []fault{
				{name: "unreadable", spoil: unreadable, said: "config", start: refused, running: kept},
				{name: "a link that leads nowhere", spoil: dangling, said: "config", start: refused, running: kept},
				{name: "a syntax error", content: good + "{", said: "config|inject", start: refused, running: kept},
				{name: "a template that cannot be parsed", content: strings.ReplaceAll(template, "IMAGE", "{{ nope }}"), said: "nope", waits: "injection templates that can be", start: refused, running: kept},
			},
		},
	}
}
