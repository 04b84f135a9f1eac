package house

import "go/ast"

// maxFunctions is how many fields of structs may be functions, outside deploy. Functions that describe one thing should
// be an interface. The number only gets smaller.
const maxFunctions = 115

// checkFunctions counts the fields that are functions.
func checkFunctions(pkgs []*pkg, most int, add report) {
	n, first := 0, ""
	for _, p := range pkgs {
		if within(p.dir, "deploy") {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.ast, func(x ast.Node) bool {
				s, ok := x.(*ast.StructType)
				if !ok {
					return true
				}
				for _, field := range s.Fields.List {
					if _, ok := field.Type.(*ast.FuncType); ok {
						if n += max(1, len(field.Names)); n > most && first == "" {
							first = f.at(field)
						}
					}
				}
				return true
			})
		}
	}
	if n > most {
		add("functions", first, "%d fields of structs are functions, %d may be: make those that describe one thing an interface", n, most)
	}
}
