package validation

import (
	"net/url"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/patches"
	"github.com/istiod-lite/istiod-lite/api/substitution"
	"github.com/istiod-lite/istiod-lite/galley/validation/lua"
)

func envoyFilter(p fieldRef) {
	p.tolerated().exclusive("workloadSelector", "targetRefs")
	p.at("workloadSelector").workload("labels")
	if refs := p.at("targetRefs"); !refs.absent() {
		p.tolerated().target()
	}
	if p.at("configPatches").empty() {
		p.at("configPatches").warn("add configPatches", "the object patches nothing")
	}
	for _, c := range p.at("configPatches").items() {
		configPatch(c)
	}
}

func configPatch(c fieldRef) {
	apply := c.at("applyTo").text()
	match := c.at("match")
	waypoint := match.at("context").is("WAYPOINT")
	if waypoint { // Istio's webhook does not check patches of waypoints
		c, match = c.tolerated(), match.tolerated()
	}
	if apply == "" || apply == "INVALID" {
		c.missing("applyTo", "say what to patch: LISTENER, HTTP_FILTER, CLUSTER and so on", "applyTo is required")
		return
	}
	match.at("proxy").at("proxyVersion").regexp()
	object := match.exclusive("listener", "routeConfiguration", "cluster", "waypoint")
	if want := matchOf(apply); len(object) == 1 && object[0] != want && !(waypoint && object[0] == "waypoint") {
		fix := "use " + want
		if want == "" {
			fix = "remove it"
		}
		at := match.at(object[0])
		const none = "%s has no effect: %s cannot be matched by it, and is patched wherever the other fields match"
		switch {
		case want == "" || apply == "LISTENER_FILTER" || waypoint:
			at.warn(fix, none, object[0], apply)
		case c.at("patch").at("operation").is("REMOVE"): // it would remove more than the intended objects
			at.bad(fix, "%s cannot be matched by %s", apply, object[0])
		default:
			at.refuse(fix, none, object[0], apply)
		}
	}
	patch := c.at("patch")
	operation := patch.at("operation").text()
	if operation == "" || operation == "INVALID" {
		patch.missing("operation", "use MERGE, ADD, REMOVE, REPLACE or an INSERT", "operation is required")
		return
	}
	if operation != "REMOVE" && patch.at("value").absent() {
		patch.missing("value", "add value", "operation %s needs a value", operation)
	}
	if v := patch.at("value"); operation != "REMOVE" && !v.absent() {
		v.patch(apply)
	}
	if operation == "REMOVE" && !patch.at("value").absent() {
		patch.at("value").warn("remove it", "operation REMOVE reads no value")
	}
	of := networkingv1alpha3.EnvoyFilter_ApplyTo(networkingv1alpha3.EnvoyFilter_ApplyTo_value[apply])
	does := networkingv1alpha3.EnvoyFilter_Patch_Operation(networkingv1alpha3.EnvoyFilter_Patch_Operation_value[operation])
	if effective := patches.Operations(of); len(effective) > 0 && !slices.Contains(effective, does) {
		patch.at("operation").warn("use "+effective[0].String(), "%s of %s has no effect", operation, apply)
	}
	l := match.at("listener")
	if f := l.at("filterChain").at("filter"); !f.absent() && object[0] == "listener" &&
		slices.Contains([]string{"LISTENER", "FILTER_CHAIN", "NETWORK_FILTER", "HTTP_FILTER"}, apply) {
		filterMatch(f, apply, operation)
	}
	const sockets = "envoy.transport_sockets."
	if s := l.at("filterChain").at("transportSocket"); slices.Contains([]string{"tls", "raw_buffer", "quic"}, s.text()) {
		s.warn("write "+sockets+s.text(), "no filter chain has the transport socket %q: the patch applies to none", s.text())
	}
	if f := l.at("listenerFilter"); !f.absent() && apply != "LISTENER_FILTER" {
		f.warn("remove it", "listenerFilter has no effect: only LISTENER_FILTER is matched by it")
	} else {
		f.currentFilter()
	}
	if apply == "LISTENER_FILTER" && !l.at("filterChain").absent() {
		l.at("filterChain").warn("use listenerFilter", "listener filters stand outside of filter chains")
	}
}

const connectionManager = "envoy.filters.network.http_connection_manager"

// filterMatch checks the match of a network filter, and of an HTTP filter within it. A patch that inserts a filter at
// an end of the list, or that is for a listener or a chain, applies without the name of a filter. Such a match is no
// error in force, because the filter that the patch adds may refuse requests.
func filterMatch(f fieldRef, apply, operation string) {
	sub := f.at("subFilter")
	atEnd := operation == "ADD" || operation == "INSERT_FIRST"
	switch {
	case f.at("name").empty() && (apply == "HTTP_FILTER" || apply == "NETWORK_FILTER" && !atEnd):
		f.missing("name", "name the network filter, such as "+connectionManager, "the match names no network filter")
	case f.at("name").empty():
		f.refuse("name the network filter, such as "+connectionManager, "the match names no network filter")
	case sub.absent():
	case apply != "HTTP_FILTER":
		sub.refuse("remove it", "only HTTP_FILTER has filters within filters")
	case !f.at("name").is(connectionManager) && formerFilters[f.at("name").text()] != connectionManager:
		f.at("name").bad("write "+connectionManager, "only %s holds HTTP filters", connectionManager)
	case sub.at("name").empty() && atEnd:
		sub.refuse("name the HTTP filter", "the match names no HTTP filter")
	case sub.at("name").empty():
		sub.missing("name", "name the HTTP filter", "the match names no HTTP filter")
	}
	f.at("name").currentFilter()
	sub.at("name").currentFilter()
}

// formerFilters maps former names of Envoy's filters to the current ones. Proxies do not know the former names.
var formerFilters = map[string]string{
	"envoy.buffer":                  "envoy.filters.http.buffer",
	"envoy.client_ssl_auth":         "envoy.filters.network.client_ssl_auth",
	"envoy.cors":                    "envoy.filters.http.cors",
	"envoy.csrf":                    "envoy.filters.http.csrf",
	"envoy.ext_authz":               "envoy.filters.http.ext_authz",
	"envoy.fault":                   "envoy.filters.http.fault",
	"envoy.grpc_http1_bridge":       "envoy.filters.http.grpc_http1_bridge",
	"envoy.grpc_json_transcoder":    "envoy.filters.http.grpc_json_transcoder",
	"envoy.grpc_web":                "envoy.filters.http.grpc_web",
	"envoy.gzip":                    "envoy.filters.http.gzip",
	"envoy.health_check":            "envoy.filters.http.health_check",
	"envoy.http_connection_manager": connectionManager,
	"envoy.http_dynamo_filter":      "envoy.filters.http.dynamo",
	"envoy.ip_tagging":              "envoy.filters.http.ip_tagging",
	"envoy.listener.http_inspector": "envoy.filters.listener.http_inspector",
	"envoy.listener.original_dst":   "envoy.filters.listener.original_dst",
	"envoy.listener.original_src":   "envoy.filters.listener.original_src",
	"envoy.listener.proxy_protocol": "envoy.filters.listener.proxy_protocol",
	"envoy.listener.tls_inspector":  "envoy.filters.listener.tls_inspector",
	"envoy.lua":                     "envoy.filters.http.lua",
	"envoy.mongo_proxy":             "envoy.filters.network.mongo_proxy",
	"envoy.rate_limit":              "envoy.filters.http.ratelimit",
	"envoy.ratelimit":               "envoy.filters.network.ratelimit",
	"envoy.redis_proxy":             "envoy.filters.network.redis_proxy",
	"envoy.router":                  "envoy.filters.http.router",
	"envoy.squash":                  "envoy.filters.http.squash",
	"envoy.tcp_proxy":               "envoy.filters.network.tcp_proxy",
}

// currentFilter warns of a former name of a filter, which no proxy knows.
func (p fieldRef) currentFilter() {
	if now := formerFilters[p.text()]; now != "" {
		p.warn("write "+now, "%q is a former name: no proxy has a filter of that name, and the patch matches nothing", p.text())
	}
}

// matchOf returns the field of a match that selects objects of a kind.
func matchOf(applyTo string) string {
	switch applyTo {
	case "LISTENER", "FILTER_CHAIN", "NETWORK_FILTER", "HTTP_FILTER", "LISTENER_FILTER":
		return "listener"
	case "ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE":
		return "routeConfiguration"
	case "CLUSTER":
		return "cluster"
	}
	return ""
}

func telemetry(p fieldRef) {
	p.target()
	for _, t := range p.at("tracing").items() {
		if providers := t.at("providers").items(); len(providers) > 1 {
			t.at("providers").warn("keep one", "tracing takes one provider: the first counts")
		}
		providers(t)
		t.at("randomSamplingPercentage").between(0, 100)
		t.at("customTags").each(func(name string, tag fieldRef) {
			if name == "" {
				tag.bad("name the tag", "an empty tag name")
			}
			switch {
			case !tag.at("literal").absent():
				tag.at("literal").required("value")
			case !tag.at("environment").absent():
				tag.at("environment").required("name")
			case !tag.at("header").absent():
				tag.at("header").required("name")
			case !tag.at("formatter").absent():
				if f := tag.tolerated().at("formatter"); f.required("value") {
					f.at("value").format(substitution.Extended)
					f.at("value").older()
				}
			default:
				tag.warn("add literal, environment, header or formatter", "the tag has no source, and so no effect")
			}
		})
	}
	for _, m := range p.at("metrics").items() {
		providers(m)
		m.at("reportingInterval").tolerated().interval()
		for _, o := range m.at("overrides").items() {
			if custom := o.at("match").at("customMetric"); !custom.absent() && custom.empty() {
				custom.bad("name the metric", "customMetric is empty")
			}
			o.at("tagOverrides").each(func(_ string, tag fieldRef) {
				switch op := tag.at("operation").text(); {
				case (op == "" || op == "UPSERT") && tag.at("value").empty():
					tag.missing("value", "add value, or use operation REMOVE", "operation UPSERT needs a value")
				case op == "REMOVE" && !tag.at("value").empty():
					tag.at("value").bad("remove it", "operation REMOVE takes no value")
				}
			})
		}
	}
	for _, a := range p.at("accessLogging").items() {
		providers(a)
		if f := a.at("filter"); !f.absent() && f.at("expression").empty() {
			f.missing("expression", "write a CEL expression", "the filter has no expression")
		} else if !f.absent() {
			f.at("expression").expression()
		}
	}
}

func providers(p fieldRef) {
	for _, ref := range p.at("providers").items() {
		ref.required("name")
	}
}

func proxyConfig(p fieldRef) {
	p.at("selector").workload("matchLabels")
	p.at("concurrency").atLeast(0)
	p.at("environmentVariables").each(func(name string, value fieldRef) {
		if name == "" || strings.ContainsAny(name, "= ") {
			value.warn("use letters, digits and underscores", "%q is not the name of an environment variable", name)
		}
	})
}

func wasmPlugin(p fieldRef) {
	p.target()
	wasm(p)
	for _, m := range p.at("match").items() {
		for _, port := range m.at("ports").items() {
			port.at("number").port()
		}
	}
}

func trafficExtension(p fieldRef) {
	p.target()
	if p.at("wasm").absent() && p.at("lua").absent() {
		p.missing("wasm", "add wasm or lua", "the extension has no code")
	}
	if w := p.at("wasm"); !w.absent() {
		wasm(w)
	}
	if l := p.at("lua"); !l.absent() && l.required("inlineCode") {
		l.at("inlineCode").script()
	}
	for _, m := range p.at("match").items() {
		for _, port := range m.at("ports").items() {
			port.at("number").port()
		}
	}
}

// script checks the script of a TrafficExtension.
func (p fieldRef) script() {
	if len(p.text()) > 64<<10 {
		p.bad("shorten it", "the code is longer than 64 KiB")
		return
	}
	p.loads(p.text())
}

// loads checks that a Lua script loads: a proxy refuses a whole listener if its script does not.
func (p fieldRef) loads(script string) {
	if err := lua.Check(script); err != nil {
		p.tolerated().bad("write Lua that LuaJIT loads", "the script does not load: %v", err)
	}
}

func wasm(p fieldRef) {
	if p.required("url") {
		u := p.at("url")
		parsed, err := url.ParseRequestURI(u.text())
		if err != nil {
			parsed, err = url.ParseRequestURI("oci://" + u.text())
		}
		switch {
		case err != nil:
			u.bad("write oci://, https:// or file://", "url is not a URL")
		case strings.Contains(parsed.Scheme, "."):
			u.refuse("write oci:// before it", "unknown scheme %q", parsed.Scheme)
		case !slices.Contains([]string{"", "oci", "http", "https", "file"}, parsed.Scheme):
			u.bad("use oci, http, https or file", "unknown scheme %q", parsed.Scheme)
		case strings.Contains(u.text(), "://"):
			if _, err := url.Parse(u.text()); err != nil {
				u.tolerated().bad("write oci://, https:// or file://, a host and a path", "url is not a URL")
			}
		}
	}
	if sum := p.at("sha256"); !sum.empty() && (len(sum.text()) != 64 || strings.Trim(strings.ToLower(sum.text()), "0123456789abcdef") != "") {
		sum.bad("write 64 hexadecimal digits", "sha256 is not a SHA-256 sum")
	} else if strings.ToLower(sum.text()) != sum.text() {
		sum.refuse("write it in lower case", "sha256 has capital letters")
	}
	if name := p.at("imagePullSecret"); len(name.text()) > 253 {
		name.bad("shorten it", "the name is longer than 253 characters")
	}
	if name := p.at("pluginName"); len(name.text()) > 256 {
		name.bad("shorten it", "the name is longer than 256 characters")
	}
	names := unique{}
	for _, e := range p.at("vmConfig").at("env").items() {
		if e.required("name") {
			names.add(e.at("name"), "variable")
			if n := len(e.at("name").text()); n > 256 {
				e.at("name").refuse("shorten it", "the name has %d bytes, more than 256", n)
			}
		}
		if e.at("valueFrom").is("HOST") && !e.at("value").empty() {
			e.at("value").bad("remove it", "a variable from the host takes no value")
		}
	}
}
