package house

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// order returns the order of the packages of pilot. Each may import the packages before it.
func order() []string {
	return []string{"authorize", "config", "facts", "snapshot", "derive", "ingest", "scope", "envoy", "feature", "cohort", "translate",
		"catalog", "pushes", "xds", "replicas", "archive", "progress", "debug", "ui", "leader", "controllers", "status", "trust",
		"untaint", "exports", "external", "autoregistration",
		"inspect", "ctrlz", "tracing", "metrics", "ports", "components", "bootstrap"}
}

// forTests reports whether a package holds helpers of tests.
func forTests(dir string) bool { return strings.HasSuffix(dir, "test") }

// pure reports whether equal input must always produce equal output in a package.
func pure(dir string) bool {
	return !forTests(dir) && withinAny(dir, "pilot/snapshot", "pilot/derive", "pilot/scope", "pilot/cohort", "pilot/envoy", "pilot/feature",
		"pilot/translate", "pilot/catalog", "pilot/inspect/diff", "pilot/inspect/trace")
}

// checkImports checks imports between packages.
func checkImports(f *file, add report) {
	for _, spec := range f.ast.Imports {
		target := importPath(spec)
		if ours, ok := strings.CutPrefix(target, Module+"/"); ok {
			checkOurs(f, spec, ours, add)
			continue
		}
		if pure(f.dir) && withinAny(target, "k8s.io/client-go", "google.golang.org/grpc", "net/http", "os", "log") {
			add("pure", f.at(spec), "%s must not know %s", f.dir, target)
		}
		if !within(f.dir, "deploy") && (within(target, "google.golang.org/grpc/xds") ||
			within(target, "google.golang.org/grpc/credentials/xds")) {
			add("imports", f.at(spec), "only tests import %s, which is as large as the server", target)
		}
		if within(f.dir, "pilot/translate/engine") && within(target, "github.com/envoyproxy") {
			add("engine", f.at(spec), "%s must not know what resources are", f.dir)
		}
		if within(f.dir, "registry/kube") && within(target, "k8s.io/client-go") {
			add("client-go", f.at(spec), "%s takes changes from any source and must not know one", f.dir)
		}
		// helpers of tests may have the flag -update
		if target == "flag" && !withinAny(f.dir, "cmd", "deploy") && localName(f, "testing") == "" {
			add("environment", f.at(spec), "only cmd reads flags")
		}
	}
}

func checkOurs(f *file, spec *ast.ImportSpec, target string, add report) {
	top, _, _ := strings.Cut(f.dir, "/")
	if forTests(target) && !forTests(f.dir) {
		add("imports", f.at(spec), "only tests import %s", target)
	}
	if name := feature(target); name != "" && name != feature(f.dir) && !within(f.dir, "pilot/catalog") {
		add("features", f.at(spec), "only pilot/catalog imports %s", target)
	}
	allowed := true
	switch top {
	case "api":
		allowed = within(target, "api")
	case "registry", "citadel", "injector":
		allowed = withinAny(target, "api", top)
	case "galley":
		allowed = withinAny(target, "api", "galley")
		if within(f.dir, "galley/validation") {
			allowed = withinAny(target, "api", "galley/validation")
		}
	case "pilot":
		checkPilot(f, spec, target, add)
	case "cmd":
		allowed = !within(target, "deploy")
		if within(f.dir, "cmd/load") { // it measures any control plane, and must share nothing with this one
			allowed = withinAny(target, "api", "cmd/load")
		}
	case "deploy":
	default:
		add("imports", f.at(spec), "%s is no folder of this tree", top)
	}
	if !allowed {
		add("imports", f.at(spec), "%s must not import %s", f.dir, target)
	}
}

func checkPilot(f *file, spec *ast.ImportSpec, target string, add report) {
	from := second(f.dir)
	if forTests(f.dir) {
		return
	}
	if from == "agent" {
		if !withinAny(target, "api", "pilot/agent") {
			add("imports", f.at(spec), "the agent imports only api, not %s", target)
		}
		return
	}
	rank := slices.Index(order(), from)
	if rank < 0 {
		add("order", f.at(spec), "pilot/%s is not in the order of pilot's packages", from)
		return
	}
	switch {
	case withinAny(target, "api", "registry"):
	case within(target, "galley/validation") && from == "config":
	case withinAny(target, "galley/validation", "galley/analysis") && from == "ingest":
	case withinAny(target, "citadel", "galley", "injector") && from == "bootstrap":
	case !within(target, "pilot"):
		add("imports", f.at(spec), "%s must not import %s", f.dir, target)
	case second(target) != from:
		if to := slices.Index(order(), second(target)); to < 0 || to > rank {
			add("order", f.at(spec), "%s comes before %s and must not import it", f.dir, target)
		}
	case layers()[from] != nil:
		checkLayers(f, spec, target, add)
	}
}

// second returns the folder below pilot, such as "xds" of "pilot/xds/wire".
func second(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// feature returns the feature or stage of a folder, such as "feature/mtls" of "pilot/feature/mtls", or an empty string.
func feature(dir string) string {
	parts := strings.SplitN(dir, "/", 4)
	if len(parts) < 3 || !withinAny(dir, "pilot/feature", "pilot/derive") {
		return ""
	}
	return parts[1] + "/" + parts[2]
}

// checkName reports package names without meaning.
func checkName(p *pkg, add report) {
	for part := range strings.SplitSeq(p.dir, "/") {
		switch part {
		case "util", "utils", "common", "helper", "helpers", "model", "models", "base", "misc":
			add("name", p.dir, "%q says nothing of what is in it", part)
		}
	}
}

// checkDoc reports packages without a doc.go that has the package comment.
func checkDoc(p *pkg, add report) {
	for _, f := range p.files {
		if path.Base(f.path) == "doc.go" && f.ast.Doc.Text() != "" {
			return
		}
	}
	add("doc", p.dir, "no doc.go that says what the package does")
}

// checkCalls reports clocks in pure packages, reads of the environment outside cmd, and goroutines outside api/safe.
func checkCalls(f *file, add report) {
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
	env := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv"}
	timeName, osName := localName(f, "time"), localName(f, "os")
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil { // a local variable, not the package
				break
			}
			if timeless(f.dir) && timeName != "" && x.Name == timeName && slices.Contains(clock, n.Sel.Name) {
				add("clock", f.at(n), "%s must not call time.%s", f.dir, n.Sel.Name)
			}
			if osName != "" && x.Name == osName && slices.Contains(env, n.Sel.Name) && !withinAny(f.dir, "cmd", "deploy") && !forTests(f.dir) {
				add("environment", f.at(n), "only cmd reads the environment")
			}
		case *ast.GoStmt:
			if !withinAny(f.dir, "api/safe", "deploy") {
				add("goroutine", f.at(n), "goroutines start through safe.Go")
			}
		}
		return true
	})
}

// localName returns the name of an imported package in file f, or an empty string.
func localName(f *file, target string) string {
	for _, spec := range f.ast.Imports {
		if importPath(spec) == target {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path.Base(target)
		}
	}
	return ""
}

// maxLines is the maximum length of a file. Generated files may be longer.
const maxLines = 600

func checkDecls(f *file, add report) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			add("init", f.at(fn), "nothing runs because it was imported")
		}
	}
	if lines := f.fset.File(f.ast.Pos()).LineCount(); lines > maxLines && !ast.IsGenerated(f.ast) {
		add("length", f.path, "%d lines; a file has at most %d", lines, maxLines)
	}
}

// checkState reports package-level variables that can change: variables that a function assigns to, and variables that
// hold locks, atomics, channels or empty maps.
func checkState(p *pkg, add report) {
	vars := map[string]bool{}
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, s := range g.Specs {
					spec := s.(*ast.ValueSpec)
					for _, name := range spec.Names {
						vars[name.Name] = name.Name != "_"
					}
					if mutable(spec) {
						add("state", f.at(spec), "%s is mutable state of the package", spec.Names[0].Name)
					}
				}
			}
		}
	}
	for _, f := range p.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var targets []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					targets = n.Lhs
				}
			case *ast.IncDecStmt:
				targets = []ast.Expr{n.X}
			}
			for _, t := range targets {
				if name := root(t); name != nil && vars[name.Name] && topLevel(f, name) {
					add("state", f.at(t), "%s of the package is changed", name.Name)
				}
			}
			return true
		})
	}
}

// root returns the variable that an assignment to t changes, or nil.
func root(t ast.Expr) *ast.Ident {
	for {
		switch x := t.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.StarExpr:
			t = x.X
		case *ast.ParenExpr:
			t = x.X
		default:
			return nil
		}
	}
}

// topLevel reports whether a name in file f is a variable of the package. The parser resolves locals and the top-level
// names of the same file.
func topLevel(f *file, name *ast.Ident) bool {
	return name.Obj == nil || f.ast.Scope.Lookup(name.Name) == name.Obj
}

func mutable(spec *ast.ValueSpec) bool {
	fromSync := func(e ast.Expr) bool {
		if x, ok := e.(*ast.IndexExpr); ok {
			e = x.X
		}
		s, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, ok := s.X.(*ast.Ident)
		return ok && (x.Name == "sync" || x.Name == "atomic")
	}
	if spec.Type != nil {
		_, isChan := spec.Type.(*ast.ChanType)
		return isChan || fromSync(spec.Type)
	}
	return slices.ContainsFunc(spec.Values, func(v ast.Expr) bool {
		switch v := v.(type) {
		case *ast.CallExpr:
			fn, ok := v.Fun.(*ast.Ident)
			return ok && fn.Name == "make"
		case *ast.CompositeLit:
			_, isMap := v.Type.(*ast.MapType)
			return fromSync(v.Type) || isMap && len(v.Elts) == 0
		}
		return false
	})
}
