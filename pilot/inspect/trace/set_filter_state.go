package trace

import (
	statev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	httpstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	tcpstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
)

// httpSetFilterState sets the state of a request.
func httpSetFilterState(x *stream, f filter, m *httpstatev3.Config) bool {
	x.setState(f, m.GetOnRequestHeaders())
	return true
}

// networkSetFilterState sets the state of a connection.
func networkSetFilterState(x *stream, f filter, m *tcpstatev3.Config) bool {
	x.setState(f, m.GetOnNewConnection())
	return true
}

// setState records that state which is not evaluated may change the answer. The protocols that a stock Envoy announces
// to other proxies are in its clusters too.
func (x *stream) setState(f filter, list []*statev3.FilterStateValue) {
	for _, v := range list {
		if v.GetObjectKey() != "envoy.network.application_protocols" {
			x.depends("filter %s sets the state %s, which is not evaluated", x.named(f), v.GetObjectKey())
		}
	}
}
