package house

import (
	"go/ast"
	"slices"
	"strings"
)

// layers returns the order of the packages below some packages of pilot. Each may import the packages before it, and
// the package above may import all.
func layers() map[string][]string {
	return map[string][]string{
		"translate": {"engine", "gateway", "view", "hooks", "inbound", "eds", "cds", "rds", "lds", "sds", "nds", "ecds", "pcds", "grpc", "patch"},
		"xds":       {"api", "diff", "wire", "session"},
	}
}

// checkLayers checks that order.
func checkLayers(f *file, spec *ast.ImportSpec, target string, add report) {
	order := layers()[second(target)]
	layer := func(dir string) int {
		_, below, nested := strings.Cut(strings.TrimPrefix(dir, "pilot/"), "/")
		if !nested {
			return len(order)
		}
		name, _, _ := strings.Cut(below, "/")
		return slices.Index(order, name)
	}
	from, to := layer(f.dir), layer(target)
	if from < 0 || to < 0 || to > from {
		add("layers", f.at(spec), "%s comes before %s and must not import it", f.dir, target)
	}
}

// timeless reports whether the packages of a folder must not read a clock.
func timeless(dir string) bool {
	return pure(dir) || withinAny(dir, "pilot/xds/diff", "pilot/xds/wire", "pilot/xds/session")
}
