package mesh

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func settings(t *testing.T, json string) (string, error) {
	t.Helper()
	s := &structpb.Struct{}
	must.Succeed(t, protojson.Unmarshal([]byte(json), s))
	return Settings(s)
}

// TestSettings shows that the settings of a proxy take the place of the mesh's, field by field.
func TestSettings(t *testing.T) {
	c := parse(t, "defaultConfig: {gatewayTopology: {numTrustedProxies: 1}, proxyHeaders: {server: {value: mesh}}}")
	own, err := settings(t, `{"discoveryAddress": "x:15012", `+
		`"gatewayTopology": {"forwardClientCertDetails": "FORWARD_ONLY", "later": 3}, "connectionSettings": {"httpIdleTimeout": "7s"}}`)
	must.Succeed(t, err)
	v := c.With(own)
	if p := v.GetDefaultConfig(); p.GetGatewayTopology().GetNumTrustedProxies() != 0 ||
		p.GetGatewayTopology().GetForwardClientCertDetails().String() != "FORWARD_ONLY" ||
		p.GetProxyHeaders().GetServer().GetValue() != "mesh" || p.GetConnectionSettings().GetHttpIdleTimeout().GetSeconds() != 7 {
		t.Errorf("%v", p)
	}
	if c.GetDefaultConfig().GetGatewayTopology().GetNumTrustedProxies() != 1 {
		t.Error("the mesh's own configuration changed")
	}
	same, _ := settings(t,
		`{"connectionSettings": {"httpIdleTimeout": "7.000s"}, "gatewayTopology": {"forwardClientCertDetails": 2}, "statusPort": 3}`)
	other, _ := settings(t, `{"connectionSettings": {"httpIdleTimeout": "8s"}}`)
	if same != own || c.With(same) != v || c.With(other) == v || c.With("") != c {
		t.Error("not one Config for equal settings, and another for others")
	}
	again, err := Settings(FormatSettings(own))
	if err != nil || again != own {
		t.Errorf("formatted and read again: %q, %v", again, err)
	}
	runtime.KeepAlive(v)
}

// TestSettingsAreForgotten shows that a Config for settings lives no longer than somebody uses it.
func TestSettingsAreForgotten(t *testing.T) {
	c := Default()
	own, _ := settings(t, `{"connectionSettings": {"httpIdleTimeout": "7s"}}`)
	if proto.Equal(c.With(own).MeshConfig, c.MeshConfig) {
		t.Fatal("the settings change nothing")
	}
	for {
		runtime.GC()
		c.own.mu.Lock()
		n := len(c.own.by)
		c.own.mu.Unlock()
		if n == 0 {
			return
		}
		runtime.Gosched()
	}
}

// TestBadSettings shows that values which Envoy would reject are refused, and named.
func TestBadSettings(t *testing.T) {
	for json, field := range map[string]string{
		`{"proxyHeaders": 3}`:                                                 "unexpected token",
		`{"connectionSettings": {"httpIdleTimeout": "-1s"}}`:                  "connectionSettings.httpIdleTimeout",
		`{"connectionSettings": {"httpMaxConcurrentStreams": 0}}`:             "connectionSettings.httpMaxConcurrentStreams",
		`{"connectionSettings": {"http2InitialStreamWindowSize": 3}}`:         "connectionSettings.http2InitialStreamWindowSize",
		`{"connectionSettings": {"clusterPerConnectionBufferLimitBytes":-1}}`: "connectionSettings.clusterPerConnectionBufferLimitBytes",
		`{"proxyHeaders": {"server": {"value": "a\nb"}}}`:                     "proxyHeaders.server.value",
		`{"privateKeyProvider": {"qat": {"pollDelay": "0s"}}}`:                "privateKeyProvider.qat.pollDelay",
	} {
		if s, err := settings(t, json); err == nil || !strings.Contains(err.Error(), field) || s != "" {
			t.Errorf("%s: %q, %v", json, s, err)
		}
	}
	_, found := Parse("mesh.yaml", []byte("defaultConfig:\n  connectionSettings:\n    httpRequestTimeout: -3s\n"))
	if len(found) != 1 || found[0].Field != "defaultConfig.connectionSettings.httpRequestTimeout" || found[0].Line != 3 {
		t.Errorf("findings: %+v", found)
	}
}
