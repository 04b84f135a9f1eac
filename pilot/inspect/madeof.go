package inspect

import (
	"fmt"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// madeOf returns the place of the rule of a Gateway API route from which a rule of a derived VirtualService was made.
// Several routes may be merged into one VirtualService: the name of its rule is NAMESPACE.NAME.PLACE of the route's.
func (i *Inspection) madeOf(origin kinds.Key, vs *networkingv1alpha3.VirtualService, rule string) string {
	var at int
	if _, err := fmt.Sscanf(rule, "spec.http[%d]", &at); err == nil && at < len(vs.GetHttp()) {
		name := vs.GetHttp()[at].GetName()
		first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
		if first > 0 && first < last {
			route := kinds.Key{Kind: origin.Kind, Cluster: origin.Cluster, Namespace: name[:first], Name: name[first+1 : last]}
			if i.world.Object(route) != nil {
				return i.Where(route, "spec.rules["+name[last+1:]+"]")
			}
		}
	}
	return i.Where(origin, "")
}
