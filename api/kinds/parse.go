package kinds

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// shortNames returns kubectl's short names of kinds.
func shortNames() map[string]string {
	return map[string]string{
		"vs": "VirtualService", "dr": "DestinationRule", "gw": "Gateway", "se": "ServiceEntry", "we": "WorkloadEntry",
		"wg": "WorkloadGroup", "pc": "ProxyConfig",
		"ap": "AuthorizationPolicy", "pa": "PeerAuthentication", "ra": "RequestAuthentication", "telemetry": "Telemetry",
		"svc": "Service", "po": "Pod", "ns": "Namespace",
		"no": "Node", "cm": "ConfigMap", "sa": "ServiceAccount", "ing": "Ingress",
	}
}

var errFormat = errors.New("write KIND/NAME.NAMESPACE, for example VirtualService/reviews.shop")

// Parse returns the keys that KIND/NAME.NAMESPACE may name, or KIND/NAME for a kind without namespaces: one for each
// group that has the kind. KIND is the name, the plural or kubectl's short name of a kind, in any case. Its group may
// follow after a dot: Gateway.networking.istio.io. If the namespace is missing or invalid, Parse returns keys without
// names beside the error.
func Parse(text string) (keys []Key, err error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || kind == "" || name == "" {
		return nil, errFormat
	}
	word, group, grouped := strings.Cut(kind, ".")
	short := shortNames()[strings.ToLower(word)]
	var known []string
	for _, k := range All() {
		known = append(known, k.Name)
		if !strings.EqualFold(word, k.Name) && !strings.EqualFold(word, k.Plural) && short != k.Name || grouped && group != k.Group {
			continue
		}
		key := Key{Kind: k, Name: name}
		if !k.Cluster {
			i := strings.LastIndexByte(name, '.') // the name of a Pod may contain dots
			if i <= 0 || len(validation.IsDNS1123Label(name[i+1:])) > 0 {
				key, err = Key{Kind: k}, errFormat
			} else {
				key.Name, key.Namespace = name[:i], name[i+1:]
			}
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no such kind%s", diag.NearNames(word, known))
	}
	return keys, err
}
