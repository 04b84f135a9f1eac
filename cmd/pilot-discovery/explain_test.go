package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag/explain"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// codesOf returns the codes of findings in the sources of the tree, each with a place that has it: texts that a field,
// a variable or a constant named for a code is set to, and those that are given for a parameter of that name.
func codesOf(t *testing.T, root string) map[string]string {
	t.Helper()
	codes := map[string]string{}
	set := gotoken.NewFileSet()
	c := collector{
		set: set, codes: codes, shape: regexp.MustCompile(`^[A-Z][A-Za-z0-9]{3,}$`),
		constants: map[string]ast.Expr{}, exported: map[string]bool{},
	}
	for _, top := range []string{"api", "citadel", "galley", "injector", "pilot", "registry"} {
		packages := map[string][]*ast.File{}
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(path, filepath.Join("pilot", "agent"))) {
				return fs.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], f)
			return err
		})
		must.Succeed(t, err)
		for _, files := range packages {
			c.takes = map[string][]int{}
			for _, f := range files {
				ast.Inspect(f, c.functions)
			}
			for _, f := range files {
				ast.Inspect(f, c.texts)
			}
		}
	}
	for name := range c.exported {
		c.found(c.constants[name])
	}
	return codes
}

type collector struct {
	set   *gotoken.FileSet
	takes map[string][]int // of functions, which parameters are codes
	codes map[string]string
	shape *regexp.Regexp

	constants map[string]ast.Expr // values of exported constants, by name
	exported  map[string]bool     // names of other packages' constants that are used as codes
}

func (c *collector) functions(n ast.Node) bool {
	parameters := func(name string, f *ast.FuncType) {
		i := 0
		for _, p := range f.Params.List {
			for _, n := range p.Names {
				if n.Name == "code" {
					c.takes[name] = append(c.takes[name], i)
				}
				i++
			}
		}
	}
	switch n := n.(type) {
	case *ast.FuncDecl:
		parameters(n.Name.Name, n.Type)
	case *ast.AssignStmt:
		for i, r := range n.Rhs {
			if f, ok := r.(*ast.FuncLit); ok {
				if name, ok := n.Lhs[i].(*ast.Ident); ok {
					parameters(name.Name, f.Type)
				}
			}
		}
	}
	return true
}

func (c *collector) texts(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if name, ok := n.Key.(*ast.Ident); ok && name.Name == "Code" {
			c.found(n.Value)
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) && isCode(name) {
				c.found(n.Values[i])
			} else if i < len(n.Values) && name.IsExported() {
				c.constants[name.Name] = n.Values[i]
			}
		}
	case *ast.AssignStmt:
		for i, l := range n.Lhs {
			if len(n.Rhs) == len(n.Lhs) && isCode(l) {
				c.found(n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		for _, i := range c.takes[name] {
			if i < len(n.Args) {
				c.found(n.Args[i])
			}
		}
	}
	return true
}

func isCode(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		rest, found := strings.CutPrefix(e.Name, "code")
		return found && (rest == "" || rest[0] >= 'A' && rest[0] <= 'Z')
	case *ast.SelectorExpr:
		return e.Sel.Name == "Code"
	}
	return false
}

func (c *collector) found(e ast.Expr) {
	if s, ok := e.(*ast.SelectorExpr); ok && s.Sel.IsExported() {
		c.exported[s.Sel.Name] = true
		return
	}
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != gotoken.STRING {
		return
	}
	if text, err := strconv.Unquote(l.Value); err == nil && c.shape.MatchString(text) {
		c.codes[text] = c.set.Position(l.Pos()).String()
	}
}

// Every code that the tree gives to a finding is explained, and nothing else is.
func TestCodesAreExplained(t *testing.T) {
	codes := codesOf(t, filepath.Join("..", ".."))
	if len(codes) < 100 || codes["IST0101"] == "" || codes["NoEndpoints"] == "" || codes["Doubtful"] == "" {
		t.Fatalf("the codes of the tree are not found: %v", slices.Sorted(maps.Keys(codes)))
	}
	explained := map[string]bool{}
	for _, e := range explain.All() {
		explained[e.Code] = true
		if codes[e.Code] == "" {
			t.Errorf("%s is explained, and nothing has it", e.Code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if !explained[code] {
			t.Errorf("%s: %s is not in api/diag/explain/findings.md", codes[code], code)
		}
	}
}

// Each example in YAML has the finding that it is an example of.
func TestExamplesHaveTheirFinding(t *testing.T) {
	examples := 0
	for _, e := range explain.All() {
		if e.YAML == "" {
			continue
		}
		examples++
		t.Run(e.Code, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, os.WriteFile(filepath.Join(dir, "example.yaml"), []byte(e.YAML), 0o600))
			var out, said strings.Builder
			code := run(t.Context(), []string{"analyze", "--use-kube=false", dir, "-o", "json"}, nil, &out, &said)
			var report struct{ Findings []struct{ Code string } }
			if err := json.Unmarshal([]byte(out.String()), &report); code != 0 && code != cli.Found || err != nil {
				t.Fatalf("%d %v %s", code, err, said.String())
			}
			if !slices.ContainsFunc(report.Findings, func(f struct{ Code string }) bool { return f.Code == e.Code }) {
				t.Errorf("it has %s", fmt.Sprint(report.Findings))
			}
		})
	}
	if examples < 50 {
		t.Errorf("only %d examples", examples)
	}
}
