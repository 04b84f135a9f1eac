package failclosed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// policy refuses all requests.
const policy = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: input, namespace: a}
spec: {}
`

// fileRows are the errors of a file of any content.
func fileRows() []row {
	return []row{{
		input: "a file of the config directory", good: policy, errors: []fault{
			{name: "a link that leads nowhere", spoil: dangling, said: "input.yaml", start: refused, running: kept},
			{name: "unreadable", spoil: unreadable, said: "permission denied", start: refused, running: kept},
			{name: "a link that leads out of the directory", spoil: leadsOut, said: "input.yaml", start: refused, running: kept},
			{name: "a volume without ..data", spoil: noData, said: "input.yaml", start: refused, running: kept},
			{name: "too large", content: strings.Repeat("# comment\n", 17<<20/10) + "---\n" + policy, said: "input.yaml", start: refused,
				running: kept},
			{name: "cut off within the kind", content: policy[:len("apiVersion: security.istio.io/v1\nki")], said: "input.yaml", start: refused,
				running: kept},
			{name: "not UTF-8", content: strings.Replace(policy, "spec", "\xff\xfe: x\nspec", 1), said: "input.yaml", start: refused, running: kept},
			{name: "a syntax error", content: strings.Replace(policy, "{}", "{", 1), said: "input.yaml", start: refused, running: kept},
		},
	}}
}

func unreadable(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	must.Succeed(t, err)
	next := file + ".next"
	must.Succeed(t, os.WriteFile(next, append(content, "# another\n"...), 0))
	must.Succeed(t, os.Rename(next, file))
}

func dangling(t *testing.T, file string) {
	t.Helper()
	link(t, "nowhere", file)
}

// link replaces a file by a link in one step, so that a server never sees the file missing.
func link(t *testing.T, target, file string) {
	t.Helper()
	next := file + ".next"
	must.Succeed(t, os.Symlink(target, next))
	must.Succeed(t, os.Rename(next, file))
}

// noData makes the folder of the file a volume of a ConfigMap without content: each file is a link into ..data.
func noData(t *testing.T, file string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(file))
	must.Succeed(t, err)
	for _, e := range list {
		name := filepath.Join(filepath.Dir(file), e.Name())
		link(t, filepath.Join("..data", e.Name()), name)
	}
}

func leadsOut(t *testing.T, file string) {
	t.Helper()
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	content, err := os.ReadFile(file)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(outside, content, 0o644)) //nolint:gosec // The server reads it, perhaps as another user.
	link(t, outside, file)
}
