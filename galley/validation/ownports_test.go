package validation

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// TestOwnPorts: an object that asks for a port on which injected proxies listen themselves has a warning, unless the
// address is another.
func TestOwnPorts(t *testing.T) {
	for _, c := range []struct {
		kind *kinds.Kind
		spec string
		warn bool
	}{
		{kinds.ServiceEntry, "{hosts: [a.b], ports: [{number: 15021, name: a, protocol: TCP}]}", true},
		{kinds.ServiceEntry, "{hosts: [a.b], addresses: [10.0.0.1], ports: [{number: 15021, name: a, protocol: TCP}]}", false},
		{kinds.ServiceEntry, "{hosts: [a.b], addresses: [10.0.0.1], ports: [{number: 15090, name: a, protocol: HTTP}]}", true},
		{kinds.ServiceEntry, "{hosts: [a.b], addresses: [10.0.0.0/8], ports: [{number: 15090, name: a, protocol: TCP}]}", true},
		{kinds.ServiceEntry, "{hosts: [a.b], ports: [{number: 15022, name: a, protocol: HTTP}]}", false},
		{kinds.Gateway, "{servers: [{port: {number: 15021, name: a, protocol: HTTP}, hosts: ['*']}]}", true},
		{kinds.Gateway, "{servers: [{port: {number: 15021, name: a, protocol: HTTP}, hosts: ['*'], bind: 127.0.0.1}]}", false},
		{kinds.Gateway, "{servers: [{port: {number: 15020, name: a, protocol: HTTP}, hosts: ['*']}]}", true},
		{kinds.Gateway, "{servers: [{port: {number: 15001, name: a, protocol: HTTP}, hosts: ['*']}]}", false},
		{kinds.ServiceEntry, "{hosts: [a.b], ports: [{number: 15006, name: a, protocol: TCP}]}", true},
		{kinds.ServiceEntry, "{hosts: [a.b], ports: [{number: 15020, name: a, protocol: TCP}]}", false},
		{kinds.Sidecar, "{egress: [{port: {number: 15021, name: a, protocol: HTTP}, hosts: ['*/*']}]}", true},
		{kinds.Sidecar, "{egress: [{port: {number: 15001, name: a, protocol: TCP}, hosts: ['*/*']}]}", true},
		{kinds.Sidecar, "{egress: [{port: {number: 15020, name: a, protocol: HTTP}, hosts: ['*/*']}]}", false},
		{kinds.Sidecar, "{egress: [{port: {number: 15020, name: a, protocol: HTTP}, bind: 0.0.0.0, captureMode: NONE, hosts: ['*/*']}]}", true},
		{kinds.Sidecar, "{egress: [{port: {number: 15021, name: a, protocol: HTTP}, captureMode: NONE, hosts: ['*/*']}]}", false},
		{kinds.Sidecar, "{egress: [{port: {number: 15021, name: a, protocol: HTTP}, bind: 10.0.0.1, hosts: ['*/*']}]}", false},
		{kinds.KubeGateway, "{gatewayClassName: istio, listeners: [{name: a, port: 15021, protocol: HTTP}]}", true},
		{kinds.KubeGateway, "{gatewayClassName: istio, listeners: [{name: a, port: 15000, protocol: TCP}]}", true},
		{kinds.KubeGateway, "{gatewayClassName: istio, listeners: [{name: a, port: 15443, protocol: HTTP}]}", false},
		{kinds.ListenerSet, "{parentRef: {name: g}, listeners: [{name: a, port: 15090, protocol: HTTP}]}", true},
	} {
		found := decode(document(c.kind, "spec:\n  "+c.spec+"\n")).Findings()
		if got := len(found) > 0; got != c.warn || HasErrors(found) {
			t.Errorf("%s %s: %v", c.kind.Name, c.spec, found)
		}
	}
}
