package settings

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"istio.io/api/annotation"
	"istio.io/api/label"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestTable(t *testing.T) {
	for name, list := range map[string][]Setting{
		"environment": Environment(), "agent": Agent(), "metadata": Metadata(), "values": Values(),
	} {
		seen := map[string]bool{}
		for _, s := range list {
			if seen[s.Name] || s.Effect == 0 || (s.Why == "") != (s.Effect == Works) {
				t.Errorf("%s: %+v: it is there twice, or has no reason", name, s)
			}
			seen[s.Name] = true
		}
		if len(list) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
}

func TestIsDefault(t *testing.T) {
	for _, c := range []struct {
		text, otherwise string
		want            bool
	}{
		{"", "true", true}, {"True", "true", true}, {"0", "false", true}, {"false", "true", false}, {"60s", "1m", true},
		{"61s", "1m", false}, {"1", "1.0", true}, {"a", "b", false},
	} {
		if got := (&Setting{Default: c.otherwise}).IsDefault(c.text); got != c.want {
			t.Errorf("%q of default %q: %v", c.text, c.otherwise, got)
		}
	}
}

// TestMetadata checks that the table has each annotation and label of Istio's API, and no other, and that those with an
// effect are read: a program names their constant in api/names, or a chart has their name.
func TestMetadata(t *testing.T) {
	var istio []string
	for _, i := range annotation.AllResourceAnnotations() {
		istio = append(istio, "annotation:"+i.Name)
	}
	for _, i := range label.AllResourceLabels() {
		istio = append(istio, "label:"+i.Name)
	}
	var table []string
	for _, s := range Metadata() {
		table = append(table, s.Name)
		if !slices.Contains(istio, s.Name) {
			t.Errorf("Istio has no %s", s.Name)
		}
	}
	for _, name := range istio {
		if !slices.Contains(table, name) {
			t.Errorf("metadata.txt has no row for %s: make it work, or write the reason why it has no effect", name)
		}
	}
	read := readKeys(t)
	for _, s := range Metadata() {
		if _, key, _ := strings.Cut(s.Name, ":"); s.Effect == Works && !read[key] {
			t.Errorf("%s has an effect by the table, and nothing reads it", s.Name)
		}
	}
}

// readKeys returns the keys of labels and annotations that programs or charts of this tree read.
func readKeys(t *testing.T) map[string]bool {
	t.Helper()
	root := filepath.Join("..", "..")
	constants, used := namedKeys(t, filepath.Join(root, "api", "names"))
	selector := regexp.MustCompile(`\bnames\.(\w+)`)
	key := regexp.MustCompile(`[a-z][a-z0-9.-]*\.io/[A-Za-z][A-Za-z0-9._-]*`)
	read := map[string]bool{}
	for _, name := range used {
		read[constants[name]] = true
	}
	for _, top := range []string{"api", "charts", "citadel", "cmd", "galley", "injector", "pilot", "registry"} {
		must.Succeed(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "crds"):
				return fs.SkipDir
			case d.IsDir() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			switch filepath.Ext(path) {
			case ".go":
				text, err := os.ReadFile(path)
				for _, m := range selector.FindAllSubmatch(text, -1) {
					read[constants[string(m[1])]] = true
				}
				return err
			case ".yaml", ".tpl":
				text, err := os.ReadFile(path)
				for _, k := range key.FindAll(text, -1) {
					read[string(k)] = true
				}
				return err
			}
			return nil
		}))
	}
	return read
}

// namedKeys returns the texts of the constants of a package, and the constants that its own functions use.
func namedKeys(t *testing.T, dir string) (constants map[string]string, used []string) {
	t.Helper()
	constants = map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must.Succeed(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		must.Succeed(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if !ok || d.Tok != token.CONST || len(v.Values) != 1 {
						continue
					}
					if text, err := strconv.Unquote(fmt.Sprint(literal(v.Values[0]))); err == nil {
						constants[v.Names[0].Name] = text
					}
				}
			case *ast.FuncDecl:
				ast.Inspect(d, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						used = append(used, id.Name)
					}
					return true
				})
			}
		}
	}
	return constants, used
}

func literal(x ast.Expr) string {
	if l, ok := x.(*ast.BasicLit); ok {
		return l.Value
	}
	return ""
}
