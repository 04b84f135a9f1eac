package house

import (
	"go/ast"
	"slices"
	"strings"
)

// layers is the order of the packages below one of pilot: each may import those before it, and the one above all.
func layers() map[string][]string {
	return map[string][]string{
		"translate": {"engine", "gateway", "view", "hooks", "inbound", "eds", "cds", "rds", "lds", "sds", "nds", "ecds", "pcds", "grpc", "patch"},
		"xds":       {"api", "diff", "wire", "session"},
	}
}

// checkLayers holds that order.
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

// timeless reports whether a folder's packages read no clock.
func timeless(dir string) bool {
	return pure(dir) || withinAny(dir, "pilot/xds/diff", "pilot/xds/wire", "pilot/xds/session")
}
