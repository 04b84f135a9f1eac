package house

import (
	"bytes"
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestWalks checks that each function that CONTRIBUTING.md names after a package, as in `pilot/xds` `conn.take`,
// exists.
func TestWalks(t *testing.T) {
	pkgs, err := parse(os.DirFS("../.."))
	must.Succeed(t, err)
	functions := map[string]bool{} // by PACKAGE TYPE.NAME, or PACKAGE NAME
	for _, p := range pkgs {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					functions[p.dir+" "+receiver(fn)+fn.Name.Name] = true
				}
			}
		}
	}
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	must.Succeed(t, err)
	_, text, _ = bytes.Cut(text, []byte("## From a watch to a write\n"))
	text, _, _ = bytes.Cut(text, []byte("\n## "))
	steps, code := 0, regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(text)) {
		if !regexp.MustCompile(`^\d+\. `).MatchString(line) {
			continue
		}
		steps++
		dir, found := "", 0
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			if slices.ContainsFunc(pkgs, func(p *pkg) bool { return p.dir == m[1] }) {
				dir = m[1]
			} else if found++; !functions[dir+" "+m[1]] {
				t.Errorf("%q has no function %s: %s", dir, m[1], line)
			}
		}
		if found == 0 {
			t.Errorf("no function is named: %s", line)
		}
	}
	if steps != 24 {
		t.Errorf("there are %d steps, and two ways of twelve each", steps)
	}
}

// TestAlertsQuoteTheLog checks that each log message that an alert quotes is one.
func TestAlertsQuoteTheLog(t *testing.T) {
	pkgs, err := parse(os.DirFS("../.."))
	must.Succeed(t, err)
	alerts, err := os.ReadFile("../../charts/istiod/templates/prometheusrule.yaml")
	must.Succeed(t, err)
	quotes := regexp.MustCompile(`log says\s+"([^"]+)"`).FindAllStringSubmatch(string(alerts), -1)
	if len(quotes) == 0 {
		t.Error("no alert quotes the log")
	}
	for _, quote := range quotes {
		found := false
		for _, p := range pkgs {
			for _, f := range p.files {
				ast.Inspect(f.ast, func(n ast.Node) bool {
					text, ok := n.(*ast.BasicLit)
					found = found || ok && strings.HasPrefix(text.Value, `"`+quote[1])
					return !found
				})
			}
		}
		if !found {
			t.Errorf("no log message begins with %q", quote[1])
		}
	}
}

// receiver returns the type of a method with a dot, or an empty string for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if i, ok := t.(*ast.IndexExpr); ok {
		t = i.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "."
	}
	return ""
}
