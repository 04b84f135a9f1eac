package envoyfilter

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/durations"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/patches"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// filters caches compiled EnvoyFilters. It is safe for concurrent use.
type filters struct {
	compiled sync.Map // func() *compiled, by weak.Pointer[kinds.Object]
}

// compiled is an object with its compiled patches.
type compiled struct {
	patches  []compiledPatch // one for each patch of the object
	findings []diag.Diagnostic
}

// compiledPatch is one patch of an object.
type compiledPatch struct {
	*networkingv1alpha3.EnvoyFilter_EnvoyConfigObjectPatch
	usable  bool           // whether the patch is valid and supported
	value   proto.Message  // nil if the operation has none
	version *regexp.Regexp // nil if it applies to any version
}

// of returns an object compiled. It is compiled once, and dropped with the object.
func (f *filters) of(o *kinds.Object) *compiled {
	key := weak.Make(o)
	if c, ok := f.compiled.Load(key); ok {
		return c.(func() *compiled)()
	}
	c, loaded := f.compiled.LoadOrStore(key, sync.OnceValue(func() *compiled { return compile(o) }))
	if !loaded {
		held := weak.Make(f)
		runtime.AddCleanup(o, func(key weak.Pointer[kinds.Object]) {
			if f := held.Value(); f != nil {
				f.compiled.Delete(key)
			}
		}, key)
	}
	return c.(func() *compiled)() // the function drops the object once it has returned
}

func compile(o *kinds.Object) *compiled {
	c := &compiled{}
	for i, p := range spec(o).ConfigPatches {
		patch := compiledPatch{EnvoyFilter_EnvoyConfigObjectPatch: p}
		field := fmt.Sprintf("spec.configPatches[%d]", i)
		c.findings = append(c.findings, patch.compile(field)...)
		c.patches = append(c.patches, patch)
	}
	return c
}

// Short names for the targets of patches, and for operations.
const (
	toListener       = networkingv1alpha3.EnvoyFilter_LISTENER
	toChain          = networkingv1alpha3.EnvoyFilter_FILTER_CHAIN
	toNetworkFilter  = networkingv1alpha3.EnvoyFilter_NETWORK_FILTER
	toHTTPFilter     = networkingv1alpha3.EnvoyFilter_HTTP_FILTER
	toListenerFilter = networkingv1alpha3.EnvoyFilter_LISTENER_FILTER
	toRoutes         = networkingv1alpha3.EnvoyFilter_ROUTE_CONFIGURATION
	toHost           = networkingv1alpha3.EnvoyFilter_VIRTUAL_HOST
	toRoute          = networkingv1alpha3.EnvoyFilter_HTTP_ROUTE
	toCluster        = networkingv1alpha3.EnvoyFilter_CLUSTER
	toExtension      = networkingv1alpha3.EnvoyFilter_EXTENSION_CONFIG

	merge        = networkingv1alpha3.EnvoyFilter_Patch_MERGE
	add          = networkingv1alpha3.EnvoyFilter_Patch_ADD
	remove       = networkingv1alpha3.EnvoyFilter_Patch_REMOVE
	insertBefore = networkingv1alpha3.EnvoyFilter_Patch_INSERT_BEFORE
	insertAfter  = networkingv1alpha3.EnvoyFilter_Patch_INSERT_AFTER
	insertFirst  = networkingv1alpha3.EnvoyFilter_Patch_INSERT_FIRST
	replace      = networkingv1alpha3.EnvoyFilter_Patch_REPLACE
	mergeLists   = networkingv1alpha3.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
)

// message returns an empty message of the type that a patch changes.
func message(to networkingv1alpha3.EnvoyFilter_ApplyTo) proto.Message {
	switch to {
	case toListener:
		return &listenerv3.Listener{}
	case toChain:
		return &listenerv3.FilterChain{}
	case toNetworkFilter:
		return &listenerv3.Filter{}
	case toHTTPFilter:
		return &hcmv3.HttpFilter{}
	case toListenerFilter:
		return &listenerv3.ListenerFilter{}
	case toRoutes:
		return &routev3.RouteConfiguration{}
	case toHost:
		return &routev3.VirtualHost{}
	case toRoute:
		return &routev3.Route{}
	case toCluster:
		return &clusterv3.Cluster{}
	case toExtension:
		return &corev3.TypedExtensionConfig{}
	}
	return nil
}

// merges reports whether an operation merges a value.
func merges(o networkingv1alpha3.EnvoyFilter_Patch_Operation) bool {
	return o == merge || o == mergeLists
}

// filterName returns the name of the filter that a patch matches, or "" for any.
func (p *compiledPatch) filterName() string {
	l := p.GetMatch().GetListener()
	switch p.GetApplyTo() {
	case toListenerFilter:
		return l.GetListenerFilter()
	case toHTTPFilter:
		return l.GetFilterChain().GetFilter().GetSubFilter().GetName()
	}
	return l.GetFilterChain().GetFilter().GetName()
}

// holdsFilters reports whether the value of a patch is or contains a filter. A filter in which a field is misspelled
// may allow calls that it should deny.
func (p *compiledPatch) holdsFilters() bool {
	switch p.GetApplyTo() {
	case toListener, toChain, toNetworkFilter, toHTTPFilter, toListenerFilter, toExtension:
		return true
	}
	return false
}

// compile parses a patch and returns its findings. A patch that is invalid or not supported is not usable. All findings
// are warnings, because the other patches of the object apply.
func (p *compiledPatch) compile(field string) (found []diag.Diagnostic) {
	p.usable = true
	lacks := func(at, message, fix string) {
		p.usable = false
		found = append(found, feature.NotImplemented(field+at, message, fix))
	}
	fails := func(at, message, fix string) {
		p.usable = false
		found = append(found, diag.Diagnostic{Severity: diag.Warning, Code: codeLeftOut, Field: field + at,
			Message: "the patch is left out: " + message, Fix: fix})
	}
	ignored := func(at, message, fix string) {
		found = append(found, diag.Diagnostic{Severity: diag.Warning, Code: "NoEffect", Field: field + at, Message: message, Fix: fix})
	}
	op := p.GetPatch().GetOperation()
	switch {
	case p.GetApplyTo() == networkingv1alpha3.EnvoyFilter_BOOTSTRAP:
		lacks(".applyTo", "the bootstrap is made by the agent beside the proxy, not by this server",
			"set it in the proxy's ProxyConfig or by a custom bootstrap")
		return found
	case p.GetMatch().GetContext() == networkingv1alpha3.EnvoyFilter_WAYPOINT || p.GetMatch().GetWaypoint() != nil:
		lacks(".match", "waypoints are not served", "")
		return found
	case message(p.GetApplyTo()) == nil:
		fails(".applyTo", "it does not say what to patch", "write LISTENER, HTTP_FILTER, CLUSTER or so on")
		return found
	}
	if !slices.Contains(patches.Operations(p.GetApplyTo()), op) {
		p.usable = false // package validation reports it
		return found
	}
	if expr := p.GetMatch().GetProxy().GetProxyVersion(); expr != "" {
		_, err := safe.RegexSize(limits.Default(), expr)
		if err == nil {
			p.version, err = regexp.Compile(expr) //nolint:forbidigo // its size was checked
		}
		if err != nil {
			fails(".match.proxy.proxyVersion", err.Error(), "write a regular expression of RE2")
		}
	}
	for key, value := range p.GetMatch().GetProxy().GetMetadata() {
		if len(key) > 256 || len(value) > 256 {
			lacks(".match.proxy.metadata", "proxy metadata of more than 256 bytes is not stored: this matches no proxy", "match other metadata")
		}
	}
	l := p.GetMatch().GetListener()
	if l.GetPortName() != "" {
		ignored(".match.listener.portName", "listeners are not matched by the names of ports", "remove it")
	}
	if r := p.GetMatch().GetRouteConfiguration(); p.GetMatch().GetContext() != networkingv1alpha3.EnvoyFilter_GATEWAY {
		const alone = "it is used for gateways only: sidecars match regardless of it"
		if r.GetGateway() != "" {
			ignored(".match.routeConfiguration.gateway", alone, "write the context GATEWAY, or remove it")
		}
		if r.GetPortName() != "" {
			ignored(".match.routeConfiguration.portName", alone, "write the context GATEWAY, or portNumber")
		}
	}
	if op == replace && p.filterName() == "" {
		lacks(".match", "REPLACE replaces the filter that is matched by its name, and none is", "name the filter")
	}
	if p.GetPatch().GetFilterClass() != 0 && (p.GetApplyTo() != toHTTPFilter && p.GetApplyTo() != toNetworkFilter || op != add) {
		ignored(".patch.filterClass", "it is used only for HTTP and network filters with the operation ADD", "remove it")
	}
	if op == remove {
		return found
	}
	value, odd, err := decode(p.GetApplyTo(), p.GetPatch())
	if err != nil {
		fix := "write it in the form of Envoy's v3 API"
		if strings.Contains(err.Error(), "unable to resolve") {
			fix = "correct the type; if it is one of a newer Envoy, write a xds.type.v3.TypedStruct with type_url and value, which the " +
				"proxy resolves"
		}
		fails(".patch.value", err.Error(), fix)
		return found
	}
	for _, r := range odd {
		const fix = "write it in the form of Envoy's v3 API"
		switch at := ".patch.value" + r.at; {
		case r.unset:
			ignored(at, r.message, "remove it")
		case !merges(op) && p.holdsFilters():
			fails(at, r.message, fix)
		default:
			found = append(found, diag.Diagnostic{Severity: diag.Warning, Code: "UnknownField", Field: field + at,
				Message: r.message + ": it is left out", Fix: fix})
		}
	}
	if f, is := value.(filter); is && merges(op) {
		for _, name := range keepConfiguration(f) {
			ignored(".patch.value."+name, "only the name and the typed_config of a filter are merged: this field has no effect",
				"remove it; use REMOVE to remove the filter, or REPLACE to replace it")
		}
	}
	p.value = value
	if err := validValue(p.value, op); err != nil {
		fails(".patch.value", "Envoy would refuse it: "+err.Error(), "see Envoy's API v3")
	}
	return found
}

// keepConfiguration clears the fields of a filter that are not merged into another one, all except its name and its
// typed configuration. Others could disable a filter that denies requests. It returns the names of these fields.
func keepConfiguration(f filter) (cleared []string) {
	m := f.ProtoReflect()
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.Name() != "name" && fd.Name() != "typed_config" {
			cleared = append(cleared, string(fd.Name()))
			m.Clear(fd)
		}
		return true
	})
	slices.Sort(cleared)
	return cleared
}

// decode returns the value of a patch as a message, and remarks about fields that are not in the message.
func decode(to networkingv1alpha3.EnvoyFilter_ApplyTo, p *networkingv1alpha3.EnvoyFilter_Patch) (m proto.Message, odd []remark, err error) {
	m = message(to)
	value := proto.CloneOf(p.GetValue())
	durations.Rewrite(m.ProtoReflect().Descriptor(), value)
	text, err := protojson.Marshal(value)
	if err != nil {
		return nil, nil, err
	}
	odd = remarks(m.ProtoReflect().Descriptor(), p.GetValue(), merges(p.GetOperation()))
	strict := (protojson.UnmarshalOptions{Resolver: resolver{protoregistry.GlobalTypes}}).Unmarshal(text, m)
	if strict == nil {
		return m, odd, nil
	}
	proto.Reset(m)
	if err = (protojson.UnmarshalOptions{Resolver: protoregistry.GlobalTypes, DiscardUnknown: true}).Unmarshal(text, m); err != nil {
		return nil, nil, fmt.Errorf("%s", plain(err))
	}
	if !slices.ContainsFunc(odd, func(r remark) bool { return !r.unset }) {
		odd = append(odd, remark{message: plain(strict)})
	}
	return m, odd, nil
}

// plain returns an error of package protojson without its prefix, which varies, and without a position, which is no
// position in a file.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "proto: "), "syntax error ")
	if strings.HasPrefix(text, "(line ") {
		if _, rest, ok := strings.Cut(text, "): "); ok {
			text = rest
		}
	}
	return text
}

// resolver resolves types that are not linked as messages without fields: an empty one has an empty value for any type.
type resolver struct{ *protoregistry.Types }

// FindMessageByURL returns the type of a URL.
func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := r.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (&corev3.AggregatedConfigSource{}).ProtoReflect().Type(), nil
}
