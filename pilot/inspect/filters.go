package inspect

import (
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// objects names the objects of what a proxy is sent.
type objects struct {
	*Inspection
	of *node.Proxy
}

// NameOf returns the name of the object of an origin: AuthorizationPolicy a/p.
func (x objects) NameOf(from trace.Origin) string {
	if from.Path == "" && from.Filter != "" {
		return strings.Join(lists.Map(x.filterOf(x.of, from.Filter), kinds.Key.String), " or ")
	}
	k := x.key(from)
	if k.Kind == nil {
		return ""
	}
	if o := x.world.Origin(k); o != nil {
		k = o.Key
	}
	return k.String()
}

// filterOf returns the keys of the objects that add filters of that name to a proxy.
func (i *Inspection) filterOf(p *node.Proxy, filter string) (keys []kinds.Key) {
	adds := func(o *kinds.Object) bool {
		spec, ok := o.Spec.(*networkingv1alpha3.EnvoyFilter)
		if !ok {
			return names.ExtensionFilter(o.Namespace, names.Extension(o.Name, o.Kind == kinds.WasmPlugin)) == filter
		}
		return slices.ContainsFunc(spec.GetConfigPatches(), func(c *networkingv1alpha3.EnvoyFilter_EnvoyConfigObjectPatch) bool {
			return c.GetPatch().GetValue().GetFields()["name"].GetStringValue() == filter
		})
	}
	for _, kind := range []*kinds.Kind{kinds.WasmPlugin, kinds.TrafficExtension, kinds.EnvoyFilter} {
		for _, o := range lists.Filter(i.translator.Selected(i.Snapshot, p, kind), adds) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}
