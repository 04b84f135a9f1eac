package validation

import (
	"regexp"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// patched returns an empty message of the type that a patch is of, or nil where that type is not linked.
func patched(apply string) proto.Message {
	switch apply {
	case "CLUSTER":
		return &clusterv3.Cluster{}
	case "LISTENER":
		return &listenerv3.Listener{}
	case "FILTER_CHAIN":
		return &listenerv3.FilterChain{}
	case "NETWORK_FILTER":
		return &listenerv3.Filter{}
	case "LISTENER_FILTER":
		return &listenerv3.ListenerFilter{}
	case "HTTP_FILTER":
		return &hcmv3.HttpFilter{}
	case "ROUTE_CONFIGURATION":
		return &routev3.RouteConfiguration{}
	case "VIRTUAL_HOST":
		return &routev3.VirtualHost{}
	case "HTTP_ROUTE":
		return &routev3.Route{}
	case "EXTENSION_CONFIG":
		return &corev3.TypedExtensionConfig{}
	}
	return nil
}

// patch judges the value of a patch: it has the types of Envoy's API, and so have the messages of other types within
// it. A field that is unknown here may be known to a newer Envoy.
func (p fieldRef) patch(apply string) {
	if len(p.node.fields) == 0 {
		return
	}
	if m := patched(apply); m != nil {
		p.fits(m)
	}
	p.typed()
}

// typed judges the messages that name their type, at any depth.
func (p fieldRef) typed() {
	for _, item := range p.items() {
		item.typed()
	}
	p.each(func(name string, value fieldRef) {
		if !isTyped(name) {
			value.typed()
			return
		}
		if value.node.shape != mapping {
			value.bad("write a mapping with @type", "expected a message that names its type, found %s", value.node.describe())
			return
		}
		value.any()
	})
}

// isTyped reports whether a field of Envoy's API holds a message that names its type.
func isTyped(name string) bool { return name == "typed_config" || name == "typedConfig" }

// any judges a message that names its type.
func (p fieldRef) any() {
	name := p.at("@type")
	if name.absent() || name.node.shape != text {
		name.add(diag.Error, "MissingField", `add "@type"`, "the message does not name its type")
		return
	}
	full := name.text()[strings.LastIndexByte(name.text(), '/')+1:]
	if t, err := protoregistry.GlobalTypes.FindMessageByURL(name.text()); err == nil {
		p.fits(t.New().Interface())
	} else if !typeNames().MatchString(full) {
		name.bad("write type.googleapis.com/ and the name of a message of Envoy's API v3", "%q is no type of Envoy's API", name.text())
	}
	p.typed()
}

// typeNames matches the names of the messages that an Envoy may have: not all are linked here.
var typeNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(envoy(\.[a-z0-9_]+)+\.(v3|v3alpha|v2alpha|v1alpha)(\.[A-Z]\w*)+|(xds|udpa|google|istio|io\.istio|stats|opentelemetry|cel)(\.\w+)+)$`)
})

// fits judges the types of a value by a message, without the messages of other types within it.
func (p fieldRef) fits(m proto.Message) {
	var marks []mark
	n := untyped(p.node)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(n.appendJSON(nil, &marks), m); err != nil {
		_, why := protoMessage(err)
		p.bad("see Envoy's API of "+string(m.ProtoReflect().Descriptor().FullName()), "%s", why)
	}
}

// untyped returns a copy of a tree without the messages that name their type, and without its own.
func untyped(n *node) *node {
	out := *n
	out.fields = nil
	for _, f := range n.fields {
		if f.name == "@type" || isTyped(f.name) || strings.HasPrefix(f.name, "typed_") {
			continue
		}
		f.value = untyped(f.value)
		out.fields = append(out.fields, f)
	}
	out.items = nil
	for _, item := range n.items {
		out.items = append(out.items, untyped(item))
	}
	return &out
}
