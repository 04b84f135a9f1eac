package trace

import (
	"strings"

	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
)

// statefulSession lets a request choose its endpoint by a cookie or a header. Without them the endpoint is chosen as
// for any other request.
func statefulSession(x *stream, f filter, m *sessionv3.StatefulSession) bool {
	route := &sessionv3.StatefulSessionPerRoute{}
	if x.override(f, route) {
		if route.GetDisabled() {
			return true
		}
		m = route.GetStatefulSession()
	}
	cookie, header := &cookiev3.CookieBasedSessionState{}, &headerstatev3.HeaderBasedSessionState{}
	switch config := m.GetSessionState().GetTypedConfig(); {
	case config == nil:
	case config.MessageIs(cookie) && config.UnmarshalTo(cookie) == nil:
		x.chooses = strings.Contains("; "+x.request.Headers["cookie"], "; "+cookie.GetCookie().GetName()+"=")
	case config.MessageIs(header) && config.UnmarshalTo(header) == nil:
		_, x.chooses = x.request.Headers[strings.ToLower(header.GetName())]
	default:
		x.depends("HTTP filter %s may choose the endpoint by a part of the request that is not evaluated", x.named(f))
	}
	return true
}
