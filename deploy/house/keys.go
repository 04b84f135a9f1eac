package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
)

// key matches the key of a label or annotation, or another qualified name of Kubernetes or Istio. It matches no API
// version.
var key = regexp.MustCompile(`^([a-z0-9-]+\.)*(istio|k8s|kubernetes)\.io/[a-z][A-Za-z0-9._-]*$`)

var apiVersion = regexp.MustCompile(`/v[0-9]+((alpha|beta)[0-9]+)?$`)

// checkKeys reports keys of labels and annotations outside api/names.
func checkKeys(f *file, add report) {
	if withinAny(f.dir, "api/names", "deploy") || forTests(f.dir) {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			if err == nil && key.MatchString(text) && !apiVersion.MatchString(text) {
				add("keys", f.at(l), "%s is written in api/names, and named here", text)
			}
		}
		return true
	})
}
