package validation

import (
	"cmp"
	"encoding/base64"
	"regexp"
	"strings"
	"sync"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	// The messages that patches use most often. Other messages are not linked, and only their names are checked.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// patched returns an empty message of the type that a patch has, or nil if that type is not linked.
func patched(apply string) proto.Message {
	switch apply {
	case "BOOTSTRAP":
		return &bootstrapv3.Bootstrap{}
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

// patch checks the value of a patch against the types of Envoy's API, including the typed messages within it. A field
// that is unknown here may be known to a newer Envoy.
func (p fieldRef) patch(apply string) {
	if len(p.node.fields) == 0 {
		return
	}
	p.scripts("")
	p.formats()
	if m := patched(apply); m != nil {
		p.fits(m)
		p.node = known(p.node, m.ProtoReflect().Descriptor())
	}
	p.typed()
}

// known returns a copy of a message without the fields that its type does not have, which are not checked.
func known(n *node, md protoreflect.MessageDescriptor) *node {
	if n.shape != mapping || md.FullName().Parent() == "google.protobuf" {
		return n
	}
	out := *n
	out.fields = nil
	for _, f := range n.fields {
		fd := md.Fields().ByJSONName(f.name)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(f.name))
		}
		switch {
		case fd == nil:
			continue
		case fd.Message() == nil || fd.IsMap():
		case fd.IsList():
			list := *f.value
			list.items = nil
			for _, item := range f.value.items {
				list.items = append(list.items, known(item, fd.Message()))
			}
			f.value = &list
		default:
			f.value = known(f.value, fd.Message())
		}
		out.fields = append(out.fields, f)
	}
	return &out
}

// typed checks the messages that name their type, at any depth.
func (p fieldRef) typed() {
	for _, item := range p.items() {
		item.typed()
	}
	p.each(func(name string, value fieldRef) {
		switch {
		case holdsTyped(name):
			value.each(func(_ string, value fieldRef) { value.anyOrNull() })
		case isTyped(name) || value.node.namesType():
			value.anyOrNull()
		default:
			value.typed()
		}
	})
}

// holdsTyped reports whether a field of Envoy's API is a map from names to messages that name their types.
func holdsTyped(name string) bool {
	switch name {
	case "typed_extension_protocol_options", "typedExtensionProtocolOptions", "typed_per_filter_config", "typedPerFilterConfig":
		return true
	}
	return false
}

// anyOrNull checks a message that has to name its type.
func (p fieldRef) anyOrNull() {
	if p.istioAccepts = p.istioAccepts || p.node.shape == null; p.node.shape != mapping {
		p.bad("write a mapping with @type", "expected a message that names its type, found %s", p.node.describe())
		return
	}
	p.any()
}

// scripts checks the Lua scripts in a value of Envoy's API, at any depth. holder is the type of the message that
// contains the value.
func (p fieldRef) scripts(holder string) {
	for _, item := range p.items() {
		item.scripts(holder)
	}
	if name := p.at("@type").text(); name != "" {
		holder = name
	}
	if strings.HasSuffix(holder, ".TypedStruct") {
		p.at("value").scripts(cmp.Or(p.at("type_url").text(), p.at("typeUrl").text()))
		return
	}
	p.each(func(name string, value fieldRef) {
		switch name {
		case "inline_code", "inlineCode", "inline_string", "inlineString":
			if runsLua(holder) {
				value.loads(value.text())
			}
		case "inline_bytes", "inlineBytes":
			if runsLua(holder) {
				// As protojson does: both alphabets, with padding or without.
				text := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(value.text()), "=")
				if script, err := base64.RawStdEncoding.DecodeString(text); err == nil {
					value.loads(string(script))
				}
			}
		default:
			value.scripts(holder)
		}
	})
}

// formats checks the texts of a value of Envoy's API in which Envoy replaces commands: formats of access logs, added
// headers, replies and filter state.
func (p fieldRef) formats() {
	if strings.HasSuffix(p.at("@type").text(), "/google.protobuf.Struct") { // data, whatever the names of its fields
		return
	}
	for _, item := range p.items() {
		item.formats()
	}
	place := substitution.Log
	if !p.at("formatters").empty() {
		place = substitution.Extended
	}
	otel := strings.HasSuffix(p.at("@type").text(), ".OpenTelemetryAccessLogConfig")
	p.each(func(name string, value fieldRef) {
		switch name {
		case "filter_metadata", "filterMetadata": // data too
		case "text_format", "textFormat", "json_format", "jsonFormat":
			value.texts(place)
		case "text_format_source", "textFormatSource":
			value.at("inline_string").texts(place)
			value.at("inlineString").texts(place)
		case "body", "attributes":
			if otel {
				value.texts(place)
			} else {
				value.formats()
			}
		default:
			if strings.HasSuffix(name, "_headers_to_add") || strings.HasSuffix(name, "HeadersToAdd") {
				for _, h := range value.items() {
					h.at("header").at("value").texts(substitution.Extended)
				}
				return
			}
			value.formats()
		}
	})
}

// texts checks all texts of a value, at any depth.
func (p fieldRef) texts(place substitution.Place) {
	if !p.absent() && p.node.shape == text {
		p.format(place)
	}
	for _, item := range p.items() {
		item.texts(place)
	}
	p.each(func(_ string, value fieldRef) { value.texts(place) })
}

// runsLua reports whether the scripts of a message of this type are Lua: the HTTP filter, a matcher of strings or a
// cluster specifier.
func runsLua(typeURL string) bool { return strings.Contains(typeURL, ".lua.v3.") }

// namesType reports whether a value is a message that names its type, in a field of whatever name.
func (n *node) namesType() bool { return strings.HasPrefix(n.str("@type"), "type.googleapis.com/") }

// isTyped reports whether a field of Envoy's API holds a message that names its type.
func isTyped(name string) bool { return name == "typed_config" || name == "typedConfig" }

// any checks a message that names its type.
func (p fieldRef) any() {
	name := p.at("@type")
	if name.absent() || name.node.shape != text {
		name.add(diag.Error, "MissingField", `add "@type"`, "the message does not name its type")
		return
	}
	full := name.text()[strings.LastIndexByte(name.text(), '/')+1:]
	if t, err := protoregistry.GlobalTypes.FindMessageByURL(name.text()); err == nil {
		p.fits(t.New().Interface())
		p.node = known(p.node, t.Descriptor())
	} else if !typeNames().MatchString(full) {
		name.bad("write type.googleapis.com/ and the name of a message of Envoy's API v3", "%q is no type of Envoy's API", name.text())
	}
	p.typed()
}

// typeNames matches the names of the messages that an Envoy may have. Not all of them are linked here.
var typeNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^(envoy(\.[a-z0-9_]+)+\.(v3|v3alpha|v2alpha|v1alpha)(\.[A-Z]\w*)+|(xds|udpa|google|istio|io\.istio|stats|opentelemetry|cel)(\.\w+)+)$`)
})

// fits checks the types of a value against a message, without the typed messages within it.
func (p fieldRef) fits(m proto.Message) {
	md := m.ProtoReflect().Descriptor()
	fix := "see Envoy's API of " + string(md.FullName())
	if md.ParentFile().Package() == "google.protobuf" && md.Name() != "Empty" {
		p.value(m)
		return
	}
	n := untyped(p.node)
	judged := &findings{}
	protoSchema{findings: judged, lenient: true}.message(n, md, p.path())
	for _, d := range judged.list {
		if at := p; d.Severity == diag.Error {
			at.base, at.name, at.istioAccepts = d.Field, "", p.istioAccepts || d.Code == "OneOf" ||
				d.Code == "DuplicateKey" || d.Code == "WrongType" && strings.HasSuffix(d.Message, "found null")
			at.bad(fix, "%s", d.Message)
		}
	}
	if HasErrors(judged.list) {
		return
	}
	var marks []mark
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(n.appendJSON(nil, &marks), m); err != nil {
		_, why := protoMessage(err)
		p.bad(fix, "%s", why)
	}
}

// value checks a message with the type of a well-known message of Protocol Buffers, such as StringValue or Struct. It
// has one field, value, with the JSON form of that message.
func (p fieldRef) value(m proto.Message) {
	v := p.at("value")
	if v.absent() {
		v.add(diag.Error, "MissingField", "add value", "a message of type %s has its content in value", m.ProtoReflect().Descriptor().FullName())
		return
	}
	if _, typed := m.(*anypb.Any); typed {
		v.any()
		return
	}
	var marks []mark
	if err := protojson.Unmarshal(v.node.appendJSON(nil, &marks), m); err != nil {
		_, why := protoMessage(err)
		v.bad("write it as "+string(m.ProtoReflect().Descriptor().FullName())+" is written in JSON", "%s", why)
	}
}

// untyped returns a copy of a tree without the messages that name their type, and without its own.
func untyped(n *node) *node {
	out := *n
	out.fields = nil
	for _, f := range n.fields {
		if f.name == "@type" || isTyped(f.name) || strings.HasPrefix(f.name, "typed_") || f.value.namesType() {
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
