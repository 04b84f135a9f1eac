package trace

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// connectionManager evaluates the connection manager of a chain.
func connectionManager(x *stream, f filter) (bool, error) {
	h := &hcmv3.HttpConnectionManager{}
	if err := f.config.UnmarshalTo(h); err != nil {
		return false, err
	}
	return false, x.http(h)
}

// http evaluates the filters of a connection manager and routes the request.
func (x *stream) http(h *hcmv3.HttpConnectionManager) error {
	x.HTTP, x.manager = true, h
	if x.request.Opaque {
		x.end(accesslog.Client, 0, "the listener reads HTTP, and the connection carries another protocol")
		return nil
	}
	if !takesMethod(h, x.request) {
		x.end(accesslog.Client, 400, "Envoy rejects HTTP/1.1 requests with the method %s: methods are in upper case, and of a fixed list",
			x.request.Method)
		return nil
	}
	path, refusal := normalized(h, x.request.Path)
	if refusal != "" {
		x.end(accesslog.Client, 400, "%s", refusal)
		return nil
	}
	if path != x.request.Path {
		x.step(Step{What: "path", Name: path, Reason: "that is what " + x.request.Path + " is normalized to"})
		x.request.Path = path
	}
	if !x.request.Proxyless {
		x.identify(h)
	}
	x.routes = h.GetRouteConfig()
	name := h.GetRds().GetRouteConfigName()
	if name != "" {
		var err error
		if x.routes, err = named[routev3.RouteConfiguration](x.config[envoy.RouteType], name); err != nil {
			return err
		}
	}
	if x.routes != nil {
		if err := onDemand(x.config, x.routes); err != nil {
			return err
		}
	}
	x.match()
	if kind, refused := x.upgrade(h); refused {
		x.end(accesslog.Client, 403, "neither the route nor the listener takes an upgrade to %s", kind)
		return nil
	}
	switch reached, err := x.requestFilters(h.GetHttpFilters()); {
	case err != nil:
		return err
	case !reached:
		return nil
	case x.routes == nil && name != "":
		x.end(accesslog.NoRoute, 404, "route configuration %s is not there", name)
		return nil
	}
	return x.forward()
}

// upgrade returns the protocol to which the request asks to upgrade, and whether that is refused. The settings of the
// route go before those of the connection manager.
func (x *stream) upgrade(h *hcmv3.HttpConnectionManager) (kind string, refused bool) {
	kind = x.request.Headers["upgrade"]
	asks := slices.ContainsFunc(strings.Split(x.request.Headers["connection"], ","), func(s string) bool {
		return strings.EqualFold(strings.TrimSpace(s), "upgrade")
	})
	if kind == "" || !asks || strings.EqualFold(kind, "h2c") { // the codec removes h2c
		return kind, false
	}
	for _, u := range x.route.GetRoute().GetUpgradeConfigs() {
		if strings.EqualFold(u.GetUpgradeType(), kind) {
			return kind, u.GetEnabled() != nil && !u.GetEnabled().GetValue()
		}
	}
	return kind, !slices.ContainsFunc(h.GetUpgradeConfigs(), func(u *hcmv3.HttpConnectionManager_UpgradeConfig) bool {
		return strings.EqualFold(u.GetUpgradeType(), kind) && (u.GetEnabled() == nil || u.GetEnabled().GetValue())
	})
}

// takesMethod reports whether the codec of a connection manager accepts the method of a request. The HTTP/1.1 codec
// knows a list of methods. A request from another proxy has passed such a codec already.
func takesMethod(h *hcmv3.HttpConnectionManager, r Request) bool {
	if r.Inbound && !r.Gateway && r.Identity != "" || r.Proxyless || r.HTTP3 || slices.Contains(r.ALPN, "h2") ||
		h.GetCodecType() == hcmv3.HttpConnectionManager_HTTP2 || h.GetHttpProtocolOptions().GetAllowCustomMethods() {
		return true
	}
	switch r.Method {
	case "ACL", "BIND", "CHECKOUT", "CONNECT", "COPY", "DELETE", "GET", "HEAD", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR",
		"MKCOL", "MOVE", "MSEARCH", "NOTIFY", "OPTIONS", "PATCH", "POST",
		"PROPFIND", "PROPPATCH", "PURGE", "PUT", "REBIND", "REPORT", "SEARCH", "SOURCE", "SUBSCRIBE", "TRACE", "UNBIND", "UNLINK",
		"UNLOCK", "UNSUBSCRIBE":
		return true
	}
	return false
}

// isHTTP reports whether a chain reads HTTP.
func isHTTP(chain *listenerv3.FilterChain) bool {
	return slices.ContainsFunc(chain.GetFilters(), func(f *listenerv3.Filter) bool {
		return f.GetTypedConfig().MessageIs(&hcmv3.HttpConnectionManager{})
	})
}
