package trace

import (
	"slices"
	"strings"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
)

// headerMutation changes headers of the request for later filters and proxies. The route stays the same. The changes of
// the route come after the filter's own.
func headerMutation(x *stream, f filter, m *headerv3.HeaderMutation) bool {
	route := &headerv3.HeaderMutationPerRoute{}
	x.override(f, route)
	for _, change := range slices.Concat(m.GetMutations().GetRequestMutations(), route.GetMutations().GetRequestMutations()) {
		switch c := change.GetAction().(type) {
		case *mutationv3.HeaderMutation_Remove:
			x.request.removeHeader(strings.ToLower(c.Remove))
		case *mutationv3.HeaderMutation_Append:
			x.request.addHeader(c.Append)
		default:
			x.depends("a change of HTTP filter %s is not evaluated", x.named(f))
		}
	}
	return true
}
