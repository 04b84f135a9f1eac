package migrate

import (
	"cmp"

	"go.yaml.in/yaml/v3"
)

// oldGateways returns the names below gateways by which the old charts of gateways have their values, by the chart.
func oldGateways() map[string]string {
	return map[string]string{"istio-ingress": "istio-ingressgateway", "istio-egress": "istio-egressgateway"}
}

// renew turns values of an old chart of gateways into values of the chart gateway. The old charts name their objects
// after the gateway, and the chart gateway after the release.
func (r *release) renew() {
	gateway := oldGateways()[r.chart]
	if gateway == "" {
		return
	}
	o, to := &operator{file: r.file, profile: r.root}, mapping(r.root)
	each(r.root, func(key, n *yaml.Node) {
		switch key.Value {
		case "gateways":
			each(n, func(key, n *yaml.Node) {
				if key.Value == gateway {
					o.settings(n, "gateways."+gateway, to, ofAllGateways())
				} else if !empty(n) {
					o.add(key, false, "gateways."+key.Value+" has no effect here: it is for another chart", "remove it")
				}
			})
		case "global", "revision":
			put(to, key, n)
		case "meshConfig":
			o.add(key, false, "meshConfig has no effect here: the control plane has the mesh configuration", "remove it")
		default:
			if !empty(n) {
				o.add(key, true, key.Value+" has no place in the chart", "leave it out, after you have seen what it did")
			}
		}
	})
	if get(to, "name") == nil {
		putAt(to, "name", &yaml.Node{}, &yaml.Node{Kind: yaml.ScalarNode, Value: gateway})
	}
	keepSelector(to, gateway)
	r.name = cmp.Or(r.name, scalar(to, "name"))
	r.chart, r.root, r.points = "gateway", to, append(r.points, o.points...)
}
