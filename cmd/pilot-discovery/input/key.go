package input

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
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

// ParseKey returns the key of an object that is written as KIND/NAME.NAMESPACE, or KIND/NAME for a kind without
// namespaces. The kind may have its group after a dot, and be plural or one of kubectl's short names. names returns the
// names of the objects of a kind, for suggestions in errors; it may be nil.
func ParseKey(text string, names func(*kinds.Kind) []string) (k kinds.Key, err error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || name == "" {
		return k, errors.New("write KIND/NAME.NAMESPACE, for example VirtualService/reviews.shop")
	}
	var known []string
	for _, x := range kinds.All() {
		known = append(known, x.Name)
		if name, group, _ := strings.Cut(kind, "."); (group == "" || group == x.Group) &&
			(strings.EqualFold(name, x.Name) || strings.EqualFold(name, x.Plural) || shortNames()[strings.ToLower(name)] == x.Name) {
			k.Kind = cmp.Or(k.Kind, x)
		}
	}
	if k.Kind == nil {
		return k, fmt.Errorf("there is no such kind%s", diag.NearNames(kind, known))
	}
	k.Name = name
	if !k.Kind.Cluster {
		if k.Name, k.Namespace, err = cli.SplitName(name); err != nil {
			near := ""
			if names != nil {
				near = diag.NearNames(name, names(k.Kind))
			}
			return k, fmt.Errorf("write KIND/NAME.NAMESPACE%s", near)
		}
	}
	return k, nil
}
