package house

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestTree(t *testing.T) {
	found, err := Check(os.DirFS("../.."))
	must.Succeed(t, err)
	for _, v := range found {
		t.Error(v)
	}
}

// TestTools checks that the modules of the tools and of the control plane require the same versions, so that each is
// compiled once.
func TestTools(t *testing.T) {
	ours := map[string]string{}
	for _, m := range modules(t, "../../go.mod") {
		ours[m[0]] = m[1]
	}
	shared := 0
	for _, m := range modules(t, "../tools/go.mod") {
		if want, ok := ours[m[0]]; ok && want != m[1] {
			t.Errorf("deploy/tools/go.mod has %s at %s, go.mod at %s: make both the same", m[0], m[1], want)
		} else if ok {
			shared++
		}
	}
	if shared == 0 {
		t.Error("the two modules share nothing")
	}
}

// TestDependencies checks that docs/dependencies.md has a row for each direct dependency, and for no other module, and
// that the row says that the version in go.mod was looked at, and when.
func TestDependencies(t *testing.T) {
	text, err := os.ReadFile("../../docs/dependencies.md")
	must.Succeed(t, err)
	lookedAt := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*`) \\| .* \\| ([^|]*) \\|$").FindAllStringSubmatch(string(text), -1) {
		for _, path := range strings.Split(m[1], ", ") {
			lookedAt[strings.Trim(path, "`")] = m[2]
		}
	}
	text, err = os.ReadFile("../../go.mod")
	must.Succeed(t, err)
	direct, pseudo := 0, regexp.MustCompile(`[-.](\d{8})\d{6}-[0-9a-f]{12}$`)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)$`).FindAllStringSubmatch(string(text), -1) {
		version := m[2]
		if day := pseudo.FindStringSubmatch(version); day != nil {
			version = day[1]
		}
		direct++
		if at, ok := lookedAt[m[1]]; !ok {
			t.Errorf("docs/dependencies.md has no row for %s: say why it is needed and what it costs", m[1])
		} else if versions, month, ok := strings.Cut(at, ", "); !ok || !slices.Contains(strings.Split(versions, " and "), version) ||
			!regexp.MustCompile(`^20\d\d-[01]\d$`).MatchString(month) {
			t.Errorf("docs/dependencies.md: %s is at %s, and what was looked at is %q: look at what is new, and write \"%s, YEAR-MONTH\"",
				m[1], m[2], at, version)
		}
		delete(lookedAt, m[1])
	}
	for path := range lookedAt {
		t.Errorf("docs/dependencies.md names %s, which is no direct dependency in go.mod", path)
	}
	if direct == 0 {
		t.Error("go.mod has no direct dependency")
	}
}

// modules returns the path and version of each module that a go.mod requires or replaces.
func modules(t *testing.T, name string) [][]string {
	t.Helper()
	text, err := os.ReadFile(name)
	must.Succeed(t, err)
	var all [][]string
	for _, m := range regexp.MustCompile(`(?m)^\t(?:\S+ => )?(\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1:])
	}
	return all
}

// TestRandomTestsHaveSeeds checks that a test with random input begins with a seed that can be set, as rapid's do: a
// constant one, or the one of deploy/histories. The call that draws is in the test itself, where `make soak` finds it.
func TestRandomTestsHaveSeeds(t *testing.T) {
	unseeded := regexp.MustCompile(
		`\brand\.(Int|Int32|Int64|IntN|N|Uint32|Uint64|Float64|Perm|Shuffle)\(|NewPCG\([^)]*time\.|\bseed\b.*=.*time\.Now`)
	for text, want := range map[string]bool{
		"rand.Perm(20)": true, "rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))": true, "seed := time.Now().UnixNano()": true,
		"rand.New(rand.NewPCG(1, 2))": false, "r.Perm(20)": false,
	} {
		if unseeded.MatchString(text) != want {
			t.Errorf("%s is taken for unseeded: %v", text, !want)
		}
	}
	draws := regexp.MustCompile(`rapid\.(Check|MakeCheck)\(|histories\.Seed\(`)
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "deploy/house/"):
			return nil
		}
		text, err := os.ReadFile("../../" + name)
		if found := unseeded.Find(text); found != nil {
			t.Errorf("%s: %s has no seed that can be set: take that of deploy/histories", name, found)
		}
		for i, f := range strings.Split(string(text), "\nfunc ") {
			if found := draws.FindString(f); found != "" && i > 0 && !strings.HasPrefix(f, "Test") {
				t.Errorf("%s: %s is not in a test itself, where make soak finds it, but in func %.30s", name, found, f)
			}
		}
		return err
	})
	must.Succeed(t, err)
}

// Each rule finds its planted violation.
func TestPlantedViolations(t *testing.T) {
	const m = `"` + Module + `/`
	src := func(body string) string { return "package p\n" + body }
	const guarantees = "// Package p is one.\n//\n// # Guarantees\n//\n"
	plants := []struct{ rule, file, text string }{
		{"imports", "api/names/a.go", src(`import _ ` + m + `registry"`)},
		{"imports", "registry/kube/a.go", src(`import _ ` + m + `pilot/snapshot"`)},
		{"imports", "registry/kube/a.go", src(`import _ ` + m + `galley/validation"`)},
		{"imports", "citadel/ca/a.go", src(`import _ ` + m + `registry"`)},
		{"imports", "galley/webhook/a.go", src(`import _ ` + m + `pilot/config"`)},
		{"imports", "galley/validation/a.go", src(`import _ ` + m + `galley/webhook"`)},
		{"imports", "pilot/xds/a.go", src(`import _ ` + m + `galley/validation"`)},
		{"imports", "pilot/debug/a.go", src(`import _ ` + m + `citadel/ca"`)},
		{"imports", "pilot/bootstrap/a.go", src(`import _ ` + m + `cmd/logs"`)},
		{"imports", "pilot/agent/sds/a.go", src(`import _ ` + m + `pilot/xds"`)},
		{"imports", "cmd/pilot-discovery/a.go", src(`import _ ` + m + `deploy/e2e"`)},
		{"imports", "cmd/load/a.go", src(`import _ ` + m + `pilot/xds"`)},
		{"imports", "tools/a.go", src(`import _ ` + m + `api/kinds"`)},
		{"order", "pilot/snapshot/a.go", src(`import _ ` + m + `pilot/scope"`)},
		{"order", "pilot/config/file/a.go", src(`import _ ` + m + `pilot/snapshot"`)},
		{"order", "pilot/translate/a.go", src(`import _ ` + m + `pilot/catalog"`)},
		{"order", "pilot/debug/a.go", src(`import _ ` + m + `pilot/bootstrap"`)},
		{"imports", "pilot/ingest/a.go", src(`import _ ` + m + `galley/webhook"`)},
		{"order", "pilot/inspect/a.go", src(`import _ ` + m + `pilot/bootstrap"`)},
		{"order", "pilot/facts/dns/a.go", src(`import _ ` + m + `pilot/snapshot"`)},
		{"order", "pilot/snapshot/a.go", src(`import _ ` + m + `pilot/ingest"`)},
		{"order", "pilot/ingest/a.go", src(`import _ ` + m + `pilot/envoy"`)},
		{"order", "pilot/ingest/a.go", src(`import _ ` + m + `pilot/xds"`)},
		{"order", "pilot/envoy/a.go", src(`import _ ` + m + `pilot/feature"`)},
		{"order", "pilot/attic/a.go", src(`import _ ` + m + `api/kinds"`)},
		{"layers", "pilot/xds/wire/a.go", src(`import _ ` + m + `pilot/xds/session"`)},
		{"layers", "pilot/translate/eds/a.go", src(`import _ ` + m + `pilot/translate/cds"`)},
		{"engine", "pilot/translate/engine/a.go", src(`import _ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"`)},
		{"layers", "pilot/xds/diff/a.go", src(`import _ ` + m + `pilot/xds/wire"`)},
		{"layers", "pilot/xds/session/a.go", src(`import _ ` + m + `pilot/xds"`)},
		{"layers", "pilot/xds/api/a.go", src(`import _ ` + m + `pilot/xds/session"`)},
		{"layers", "pilot/xds/attic/a.go", src(`import _ ` + m + `pilot/xds/wire"`)},
		{"layers", "pilot/xds/a.go", src(`import _ ` + m + `pilot/xds/attic"`)},
		{"imports", "pilot/xds/session/a.go", src(`import _ ` + m + `pilot/xds/xdstest"`)},
		{"imports", "pilot/feature/mtls/a.go", src(`import _ ` + m + `pilot/feature/featuretest"`)},
		{"imports", "pilot/xds/a.go", src(`import _ "google.golang.org/grpc/xds"`)},
		{"clock", "pilot/xds/session/a.go", src("import \"time\"\nvar _ = time.Now()")},
		{"features", "pilot/feature/authz/a.go", src(`import _ ` + m + `pilot/feature/mtls"`)},
		{"features", "pilot/feature/a.go", src(`import _ ` + m + `pilot/feature/mtls"`)},
		{"features", "pilot/translate/a.go", src(`import _ ` + m + `pilot/feature/mtls"`)},
		{"features", "pilot/scope/a.go", src(`import _ ` + m + `pilot/feature/destinationrule"`)},
		{"features", "cmd/pilot-discovery/a.go", src(`import _ ` + m + `pilot/feature/mtls"`)},
		{"features", "pilot/inspect/a.go", src(`import _ ` + m + `pilot/feature/mtls"`)},
		{"features", "pilot/ingest/a.go", src(`import _ ` + m + `pilot/derive/ingress"`)},
		{"pure", "pilot/translate/a.go", src(`import _ "k8s.io/client-go/kubernetes"`)},
		{"pure", "pilot/translate/a.go", src(`import _ "google.golang.org/grpc/codes"`)},
		{"pure", "pilot/feature/authz/a.go", src(`import _ "net/http"`)},
		{"pure", "pilot/feature/authz/a.go", src(`import _ "os"`)},
		{"pure", "pilot/feature/authz/a.go", src(`import _ "log"`)},
		{"pure", "pilot/snapshot/a.go", src(`import _ "log/slog"`)},
		{"clock", "pilot/translate/a.go", src("import \"time\"\nvar _ = time.Now()")},
		{"clock", "pilot/feature/authz/a.go", src("import \"time\"\nfunc f() { time.Sleep(1) }")},
		{"clock", "pilot/cohort/a.go", src("import clock \"time\"\nfunc f() { <-clock.After(1) }")},
		{"clock", "pilot/translate/a.go", src("import \"time\"\nvar now = time.Now")},
		{"client-go", "registry/kube/a.go", src(`import _ "k8s.io/client-go/informers"`)},
		{"name", "api/util/a.go", src("")},
		{"name", "pilot/feature/common/a.go", src("")},
		{"name", "registry/helpers/a.go", src("")},
		{"name", "pilot/model/a.go", src("")},
		{"doc", "api/other/a.go", src("")},
		{"doc", "api/other/doc.go", src("")},
		{"init", "pilot/xds/a.go", src("func init() {}")},
		{"state", "pilot/xds/a.go", src("var n int\nfunc f() { n++ }")},
		{"state", "pilot/xds/a.go", src("var n struct{ i []int }\nfunc f() { n.i[0] = 1 }")},
		{"state", "pilot/xds/a.go", src("import \"sync\"\nvar mu sync.Mutex")},
		{"state", "pilot/xds/a.go", src("import \"sync/atomic\"\nvar p atomic.Pointer[int]")},
		{"state", "pilot/xds/a.go", src("var cache = map[string]int{}")},
		{"state", "pilot/xds/a.go", src("var cache = make(map[string]int)")},
		{"environment", "pilot/xds/a.go", src("import \"os\"\nvar _ = os.Getenv(\"HOME\")")},
		{"environment", "pilot/xds/a.go", src("import _ \"flag\"")},
		{"goroutine", "pilot/xds/a.go", src("func f() { go f() }")},
		{"keys", "pilot/xds/a.go", src("const label = \"sidecar.istio.io/inject\"")},
		{"keys", "cmd/check/a.go", src("func f(l map[string]string) string { return l[`topology.kubernetes.io/zone`] }")},
		{"tests", "ARCHITECTURE.md", "- It holds: `pilot/xds` TestA.\n"},
		{"tests", "docs/security/a.md", "- It holds: `pilot/xds` TestA, TestB.\n"},
		{"tests", "docs/security/a.md", "- It holds: `api/kinds` TestA.\n"},
		{"tests", "docs/security/a.md", "| `pilot/xds` TestA |\n| TestA |\n"},
		{"promises", "SECURITY.md", "## What is promised\n\n| promise | tests |\n|---|---|\n| It holds. | `pilot/xds` |\n"},
		{"promises", "SECURITY.md", "## What is promised\n\nIt holds: `pilot/xds` TestA.\n"},
		{"tests", "docs/a.md", "It holds: `pilot/xds` FuzzB.\n"},
		{"tests", "pilot/debug/doc.go", guarantees + "//   - It holds: [TestA].\npackage p\n"},
		{"tests", "pilot/debug/doc.go", "// Package p is one. See [pilot/xds.TestB].\npackage p\n"},
		{"guarantees", "pilot/debug/doc.go", guarantees + "//   - It holds.\n//   - And this: [pilot/xds.TestA].\npackage p\n"},
		{"guarantees", "pilot/debug/doc.go",
			guarantees + "//   - This: [pilot/xds.TestA].\n//   - It holds,\n//     whatever comes.\npackage p\n"},
		{"folders", "ARCHITECTURE.md", "| `pilot/attic` | nothing |\n| `pilot/debug` | pages |\n"},
		{"folders", "ARCHITECTURE.md", "| `pilot/xds` | streams |\n"},
		{"length", "ARCHITECTURE.md", strings.Repeat("\n", maxMap+1)},
		{"decisions", "docs/decisions/title.md", decision("accepted")},
		{"decisions", "docs/decisions/0002-title.md", decision("accepted")},
		{"decisions", "docs/decisions/0001-other.md", decision("accepted")},
		{"decisions", "docs/decisions/0001-title.md", decision("proposed")},
		{"decisions", "docs/decisions/0001-title.md", decision("superseded by [0002](0002-b.md)")},
		{"decisions", "docs/decisions/0001-title.md", decision("accepted") + strings.Repeat("\n", maxDecision)},
		{"decisions", "docs/decisions/0001-title.md", decision("accepted") + "## More\n"},
		{"columns", "ARCHITECTURE.md", strings.Repeat("é", maxColumns+1)},
		{"columns", "pilot/xds/a.go", src("// " + strings.Repeat("a ", maxColumns/2))},
		{"columns", "pilot/xds/a.go", src("var _ = " + strings.Repeat("1", maxCodeColumns))},
		{"columns", "pilot/xds/b_test.go", src("\t// " + strings.Repeat("a ", maxColumns/2))},
		{"links", "docs/a.md", "## One\n\n[there](nowhere.md)\n"},
		{"links", "docs/a.md", "## One\n\n```\n# Two\n```\n[two](#two)\n"},
		{"links", "docs/a.md", "## One\n\n[two](../docs/a.md#one-1)\n"},
		{"words", "pilot/xds/a.go", src("// Nobody reads it.\n")},
		{"words", "docs/a.md", "Nobody reads it.\n"},
		{"exceptions", exceptionsFile, "words | docs/a.md | text\n"},
		{"exceptions", exceptionsFile, "words | docs/a.md | text | reason\n"},
		{"exceptions", exceptionsFile, strings.Repeat("words | docs/a.md | text | reason\n", maxExceptions+1)},
		{"functions", "pilot/xds/a.go", src("type a struct{ " + strings.Repeat("f, ", maxFunctions) + "f func() }")},
		{"length", "pilot/xds/a.go", src(strings.Repeat("\n", maxLines+1))},
	}
	covered := map[string]bool{}
	for _, p := range plants {
		found, err := Check(fstest.MapFS{
			"pilot/debug/doc.go":           {Data: []byte("// Package p is one.\npackage p\n")},
			"pilot/xds/a_test.go":          {Data: []byte(src("func TestA(t *testing.T) {}"))},
			"api/kinds/kind_test.go":       {Data: []byte(src("func TestKind(t *testing.T) {}"))},
			"docs/decisions/0001-title.md": {Data: []byte(decision("accepted"))},
			"DECISIONS.md":                 {Data: []byte("- [0001](docs/decisions/0001-title.md) Title\n")},
			p.file:                         {Data: []byte(p.text)},
		})
		if err != nil {
			t.Fatalf("%s: %v", p.file, err)
		}
		if !slices.ContainsFunc(found, func(v Violation) bool {
			return v.Rule == p.rule && strings.HasPrefix(v.At, strings.TrimSuffix(p.file, "/a.go"))
		}) &&
			!slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == p.rule && strings.HasPrefix(p.file, v.At) }) {
			t.Errorf("%s in %s is not caught:\n%s\nfound: %v", p.rule, p.file, p.text, found)
		}
		covered[p.rule] = true
	}
	for _, rule := range Rules() {
		if !covered[rule] {
			t.Errorf("no violation of rule %s is planted", rule)
		}
	}
}

// decision returns the text of a decision with a status.
func decision(status string) string {
	return "# Title\n\nStatus: " + status + "\n\n## Context\n\n## Decision\n\n## Consequences\n\n## Test\n"
}

// The rules accept what they allow.
func TestAllowedImports(t *testing.T) {
	const m = `"` + Module + `/`
	doc := func(files fstest.MapFS, dirs ...string) fstest.MapFS {
		for _, d := range dirs {
			if files[d+"/doc.go"] != nil {
				continue
			}
			files[d+"/doc.go"] = &fstest.MapFile{Data: []byte("// Package p is one.\npackage p\n")}
		}
		return files
	}
	found, err := Check(doc(fstest.MapFS{
		"pilot/config/file/a.go": {Data: []byte("package p\nimport _ " + m + "galley/validation\"\nimport _ " + m + "pilot/config\"")},
		"pilot/ingest/a.go": {
			Data: []byte("package p\nimport _ " + m + "galley/analysis\"\nimport _ " + m + "pilot/snapshot\"\nimport _ " + m + "pilot/facts\""),
		},
		"pilot/feature/mtls/a.go": {
			Data: []byte("package p\nimport \"time\"\nimport _ " + m +
				"pilot/envoy\"\nconst d = time.Second\nvar table = map[string]int{\"a\": 1}\nfunc f() { table := 1; table++; _ = table }"),
		},
		"pilot/feature/featuretest/a.go": {Data: []byte("package p\nimport \"os\"\nimport _ " + m + "pilot/catalog\"\nvar _ = os.Args")},
		"pilot/catalog/a.go":             {Data: []byte("package p\nimport _ " + m + "pilot/feature/mtls\"")},
		"pilot/feature/mtls/a_test.go":   {Data: []byte("package p\nimport _ \"os\"\nfunc init() {}")},
		"pilot/bootstrap/a.go": {
			Data: []byte("package p\nimport _ " + m + "citadel/ca\"\nimport _ " + m + "pilot/xds\"\nimport \"time\"\nvar _ = time.Now()"),
		},
		"api/safe/a.go":       {Data: []byte("package p\nfunc f() { go f() }")},
		"pilot/xds/a_test.go": {Data: []byte("package p\nfunc TestA(t *testing.T) {}")},
		"ARCHITECTURE.md": {
			Data: []byte("`pilot/config`, `pilot/ingest`, `pilot/feature`, `pilot/catalog`, `pilot/bootstrap`, `pilot/xds`, `api/safe`\n" +
				strings.Repeat("é", maxColumns) + strings.Repeat("\n", maxMap-1)),
		},
		"docs/security/a.md":           {Data: []byte("- It holds (`pilot/xds` TestA/sub).\n- And: `pilot/xds`\n  TestA.\n")},
		"docs/decisions/0001-title.md": {Data: []byte(decision("superseded by [0002](0002-title.md)"))},
		"docs/decisions/0002-title.md": {Data: []byte(decision("accepted"))},
		"DECISIONS.md": {
			Data: []byte("- [0001](docs/decisions/0001-title.md) Title, superseded by 0002\n" +
				"- [0002](docs/decisions/0002-title.md) Title\n"),
		},
		"pilot/ingest/doc.go": {
			Data: []byte("// Package p is one.\n//\n//   - it has lists\n//\n// # Guarantees\n//\n" +
				"//   - It holds, and it holds\n//     [pilot/xds.TestA/sub]. More.\npackage p\n"),
		},
		"docs/a.md": {
			Data: []byte("## One `x.y`, [two](../pilot)\n## Two\n## Two\n" +
				"[a](#one-xy-two) [b](../docs/a.md#two-1) [c](../pilot/xds) [d](https://example.com/#x)\n```\n[e](f)\n```\n"),
		},
		"pilot/xds/a.go":              {Data: []byte("package p\nimport _ " + m + "pilot/xds/session\"\nimport _ " + m + "pilot/xds/wire\"")},
		"pilot/xds/session/a.go":      {Data: []byte("package p\nimport _ " + m + "pilot/xds/wire\"\nimport _ " + m + "pilot/xds/diff\"")},
		"pilot/xds/session/a_test.go": {Data: []byte("package p\nimport _ " + m + "pilot/xds/xdstest\"")},
	}, "pilot/xds", "pilot/xds/session", "pilot/config/file", "pilot/ingest", "pilot/feature/mtls", "pilot/feature/featuretest",
		"pilot/catalog", "pilot/bootstrap", "api/safe"))
	must.Succeed(t, err)
	for _, v := range found {
		t.Error(v)
	}
}
