package trace

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Origin identifies the part of an object that a decision comes from.
type Origin struct {
	Path  string // as in metadata: /apis/networking.istio.io/v1/namespaces/a/virtual-service/web; empty if there is no object
	Field string // spec.rules[0]

	Filter string // name of a filter whose configuration does not name the object that added it

	// Routes, Host and Place identify a route: the names of its route configuration and virtual host, and its place there.
	Routes, Host string
	Place        int
	Route        *routev3.Route // the route itself; nil for everything else

	Chain *listenerv3.FilterChain // the filter chain; nil for everything else
}

// Clusters returns the clusters to which the connections of a filter chain are forwarded.
func (o Origin) Clusters() []string {
	for _, f := range o.Chain.GetFilters() {
		if t := (&tcpv3.TcpProxy{}); f.GetTypedConfig().MessageIs(t) && f.GetTypedConfig().UnmarshalTo(t) == nil {
			return lists.Map(clustersOf(t), func(c choice) string { return c.name })
		}
	}
	return nil
}

func configOf(m *corev3.Metadata) string {
	return m.GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
}

// policyName is the form of a policy's name: ns[a]-policy[web]-rule[0].
var policyName = regexp.MustCompile(`^(.*-)?ns\[(.*)\]-policy\[(.*)\]-rule\[(\d+)\](-deny-.*)?$`)

// PolicyOrigin returns the rule of an object from which a policy of a filter was made.
func PolicyOrigin(name string) Origin {
	part := policyName.FindStringSubmatch(name)
	if part == nil {
		return Origin{}
	}
	return Origin{Path: "/apis/security.istio.io/v1/namespaces/" + part[2] + "/authorization-policy/" + part[3],
		Field: "spec.rules[" + part[4] + "]"}
}

// object returns the object in the path of an origin: AuthorizationPolicy a/p.
func (o Origin) object() string {
	part := strings.Split(o.Path, "/") // /apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME
	if len(part) != 8 {
		return ""
	}
	kind := ""
	for word := range strings.SplitSeq(part[6], "-") {
		kind += strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):]
	}
	return kind + " " + part[5] + "/" + part[7]
}
