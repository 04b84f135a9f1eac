package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the tree's root.
const Module = "github.com/istiod-lite/istiod-lite"

// Violation is one violation of a rule.
type Violation struct {
	Rule string // one of Rules
	At   string // file:line, or the folder of the package
	Text string
}

func (v Violation) String() string { return v.At + ": " + v.Rule + ": " + v.Text }

// file is one parsed source file.
type file struct {
	path string // slash-separated, relative to the root
	dir  string
	ast  *ast.File
	fset *token.FileSet
}

func (f *file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// pkg holds the non-test files of one folder.
type pkg struct {
	dir   string
	files []*file
}

type report func(rule, at, format string, args ...any)

// Rules returns the names of all rules.
func Rules() []string {
	return []string{"imports", "order", "layers", "features", "pure", "clock", "client-go", "name", "doc", "init", "state", "environment",
		"goroutine", "length", "tests", "folders", "columns", "links", "functions", "keys", "words", "exceptions",
		"guarantees", "decisions"}
}

// Check applies every rule to the tree.
func Check(tree fs.FS) ([]Violation, error) {
	pkgs, err := parse(tree)
	if err != nil {
		return nil, err
	}
	var found []Violation
	add := func(rule, at, format string, args ...any) {
		found = append(found, Violation{rule, at, fmt.Sprintf(format, args...)})
	}
	for _, p := range pkgs {
		checkName(p, add)
		checkDoc(p, add)
		checkState(p, add)
		for _, f := range p.files {
			checkImports(f, add)
			checkCalls(f, add)
			checkDecls(f, add)
			checkKeys(f, add)
		}
	}
	checkFunctions(pkgs, maxFunctions, add)
	tests, err := testsOf(tree)
	if err != nil {
		return nil, err
	}
	if err := checkDocuments(tree, pkgs, tests, add); err != nil {
		return nil, err
	}
	if err := checkGuarantees(tree, tests, add); err != nil {
		return nil, fmt.Errorf("read the guarantees: %w", err)
	}
	if err := checkDecisions(tree, add); err != nil {
		return nil, fmt.Errorf("read the decisions: %w", err)
	}
	x, err := readExceptions(tree, add)
	if err != nil {
		return nil, err
	}
	if err := checkColumns(tree, x, add); err != nil {
		return nil, fmt.Errorf("read the lines of code: %w", err)
	}
	if err := checkWords(tree, pkgs, x, add); err != nil {
		return nil, fmt.Errorf("read the documents: %w", err)
	}
	x.checkUsed(add)
	if err := checkLinks(tree, add); err != nil {
		return nil, fmt.Errorf("read the documents: %w", err)
	}
	slices.SortFunc(found, func(a, b Violation) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Text, b.Text)) })
	return found, nil
}

// parse parses every Go file of the tree, except tests, test data and hidden folders. The root folder has no package.
func parse(tree fs.FS) ([]*pkg, error) {
	byDir := map[string]*pkg{}
	err := walk(tree, ".go", func(name string) error {
		if strings.HasSuffix(name, "_test.go") || path.Dir(name) == "." {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
		}
		byDir[dir].files = append(byDir[dir].files, &file{path: name, dir: dir, ast: parsed, fset: fset})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the source tree: %w", err)
	}
	pkgs := make([]*pkg, 0, len(byDir))
	for _, p := range byDir {
		pkgs = append(pkgs, p)
	}
	slices.SortFunc(pkgs, func(a, b *pkg) int { return cmp.Compare(a.dir, b.dir) })
	return pkgs, nil
}

// walk calls do for every file of the tree with the extension, except in test data and hidden folders.
func walk(tree fs.FS, ext string, do func(name string) error) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ext:
			return nil
		}
		return do(name)
	})
}

// within reports whether folder dir is root or below it.
func within(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

// withinAny reports whether folder dir is one of roots or below one.
func withinAny(dir string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return within(dir, root) })
}

func importPath(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value) // the parser has already refused a malformed path
	return p
}
