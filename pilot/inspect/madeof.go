package inspect

import (
	"fmt"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// madeOf says which rule of a route of the Gateway API a rule of a VirtualService was made of that nobody has written.
// Several routes may have become one VirtualService. The name of its rule says which it was: NAMESPACE.NAME.PLACE.
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
