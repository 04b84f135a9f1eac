package mtls_test

import (
	"slices"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mtls"
	"github.com/istiod-lite/istiod-lite/registry"
)

func policies(t *testing.T, specs ...string) frozen.List[*kinds.Object] {
	t.Helper()
	var list []*kinds.Object
	for _, s := range specs {
		spec := &securityv1.PeerAuthentication{}
		if err := protojson.Unmarshal([]byte(s), spec); err != nil {
			t.Fatal(err)
		}
		list = append(list, &kinds.Object{Spec: spec})
	}
	return frozen.ListOf(list...)
}

// TestModes: policies come in the order mesh, namespace, workload. A policy that leaves the mode unset inherits it from
// the one before.
func TestModes(t *testing.T) {
	const (
		strict, permissive, disable, unset = `{"mtls":{"mode":"STRICT"}}`, `{"mtls":{"mode":"PERMISSIVE"}}`, `{"mtls":{"mode":"DISABLE"}}`, `{"mtls":{"mode":"UNSET"}}`
		ports                              = `{"selector":{"matchLabels":{"app":"web"}},"portLevelMtls":{"8080":{"mode":"DISABLE"},"8081":{"mode":"UNSET"},"90":{"mode":"STRICT"}}}`
		workload                           = `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"8080":{"mode":"STRICT"}}}`
		wide                               = `{"mtls":{"mode":"STRICT"},"portLevelMtls":{"8080":{"mode":"DISABLE"}}}`
	)
	for _, c := range []struct {
		name              string
		specs             []string
		all, p8080, p8081 mtls.Mode
		ports             []uint32
		meshDisabled      bool // if the first were the mesh's
	}{
		{name: "none"},
		{name: "mesh", specs: []string{strict}, all: mtls.Strict, p8080: mtls.Strict, p8081: mtls.Strict},
		{name: "mesh off", specs: []string{disable}, all: mtls.Disable, p8080: mtls.Disable, p8081: mtls.Disable, meshDisabled: true},
		{name: "empty", specs: []string{`{}`}},
		{name: "namespace over mesh", specs: []string{strict, permissive}},
		{name: "namespace unset", specs: []string{strict, unset}, all: mtls.Strict, p8080: mtls.Strict, p8081: mtls.Strict},
		{name: "namespace empty", specs: []string{disable, `{}`}, all: mtls.Disable, p8080: mtls.Disable, p8081: mtls.Disable, meshDisabled: true},
		{name: "ports over namespace", specs: []string{strict, ports}, all: mtls.Strict, p8080: mtls.Disable, p8081: mtls.Strict, ports: []uint32{90, 8080, 8081}},
		{name: "workload over mesh and namespace", specs: []string{disable, strict, workload}, all: mtls.Permissive, p8080: mtls.Strict, p8081: mtls.Permissive, ports: []uint32{8080}, meshDisabled: true},
		{name: "ports count only with a selector", specs: []string{wide}, all: mtls.Strict, p8080: mtls.Strict, p8081: mtls.Strict},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := policies(t, c.specs...)
			for port, want := range map[uint32]mtls.Mode{0: c.all, 8080: c.p8080, 8081: c.p8081} {
				if got := mtls.ModeOf(list, port); got != want {
					t.Errorf("port %d: mode %d, want %d", port, got, want)
				}
			}
			if got := mtls.Ports(list); !slices.Equal(got, c.ports) {
				t.Errorf("ports %v", got)
			}
			with, without := &registry.Endpoint{Port: 8080, TLSMode: "istio"}, &registry.Endpoint{Port: 8080}
			if mtls.AcceptsMTLS(with, list) != (c.p8080 != mtls.Disable) || mtls.AcceptsMTLS(without, list) {
				t.Error("endpoints")
			}
		})
	}
}

// TestContexts shows what each side offers and demands.
func TestContexts(t *testing.T) {
	for _, c := range []struct {
		http2, exchange bool
		alpn            []string
	}{
		{false, false, []string{"istio"}},
		{true, false, []string{"istio", "h2"}},
		{false, true, []string{"istio-peer-exchange", "istio"}},
		{true, true, []string{"istio-peer-exchange", "istio", "h2"}},
	} {
		up := &tlsv3.UpstreamTlsContext{}
		if err := mtls.Upstream("sni", []string{"spiffe://a", "spiffe://b"}, c.http2, c.exchange).GetTypedConfig().UnmarshalTo(up); err != nil {
			t.Fatal(err)
		}
		if err := up.ValidateAll(); err != nil {
			t.Error(err)
		}
		sans := up.CommonTlsContext.GetCombinedValidationContext().DefaultValidationContext.MatchSubjectAltNames //nolint:staticcheck // as on the wire
		if !slices.Equal(up.CommonTlsContext.AlpnProtocols, c.alpn) || up.Sni != "sni" || len(sans) != 2 || sans[1].GetExact() != "spiffe://b" {
			t.Errorf("%+v: %v", c, up)
		}
	}
	for _, c := range []struct {
		http, exchange bool
		alpn           []string
	}{
		{true, true, []string{"h2", "http/1.1"}},
		{true, false, []string{"h2", "http/1.1"}},
		{false, true, []string{"istio-peer-exchange", "h2", "http/1.1"}},
		{false, false, []string{"h2", "http/1.1"}},
	} {
		down := &tlsv3.DownstreamTlsContext{}
		if err := mtls.Downstream([]string{"cluster.local", "old"}, c.http, c.exchange).GetTypedConfig().UnmarshalTo(down); err != nil {
			t.Fatal(err)
		}
		if err := down.ValidateAll(); err != nil {
			t.Error(err)
		}
		sans := down.CommonTlsContext.GetCombinedValidationContext().DefaultValidationContext.MatchSubjectAltNames //nolint:staticcheck // as on the wire
		if !slices.Equal(down.CommonTlsContext.AlpnProtocols, c.alpn) || !down.RequireClientCertificate.GetValue() || len(sans) != 2 || sans[1].GetPrefix() != "spiffe://old/" {
			t.Errorf("%+v: %v", c, down)
		}
	}
}
