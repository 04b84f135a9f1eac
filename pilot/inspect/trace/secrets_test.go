package trace_test

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

const tlsTypes = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3."

// secretConfigs returns the references to secrets of those names, of the stream (ads) or of the agent.
func secretConfigs(source string, names ...string) string {
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"name":%q,"sdsConfig":{%s}}`, name, source))
	}
	return strings.Join(list, ",")
}

const ads, agent = `"ads":{}`, `"apiConfigSource":{"apiType":"GRPC"}`

// TestSecrets: without a certificate of those that are named, or without the CA certificates, no handshake comes about.
func TestSecrets(t *testing.T) {
	for _, c := range []struct {
		name, tls string
		sent      []string // nil: it is not known
		missing   string
	}{
		{"there", `"tlsCertificateSdsSecretConfigs":[` + secretConfigs(ads, "kubernetes://one") + `]`, []string{"kubernetes://one"}, ""},
		{"missing", `"tlsCertificateSdsSecretConfigs":[` + secretConfigs(ads, "kubernetes://one") + `]`, []string{"kubernetes://two"},
			"kubernetes://one"},
		{"not known", `"tlsCertificateSdsSecretConfigs":[` + secretConfigs(ads, "kubernetes://one") + `]`, nil, ""},
		{"of the agent", `"tlsCertificateSdsSecretConfigs":[` + secretConfigs(agent, "default") + `]`, []string{}, ""},
		{"one of two", `"tlsCertificateSdsSecretConfigs":[` + secretConfigs(ads, "kubernetes://one", "kubernetes://two") + `]`,
			[]string{"kubernetes://two"}, ""},
		{"none of two", `"tlsCertificateSdsSecretConfigs":[` + secretConfigs(ads, "kubernetes://one", "kubernetes://two") + `]`,
			[]string{}, "kubernetes://one kubernetes://two"},
		{"no CA", `"tlsCertificateSdsSecretConfigs":[` + secretConfigs(ads, "kubernetes://one") +
			`],"combinedValidationContext":{"defaultValidationContext":{},"validationContextSdsSecretConfig":` +
			secretConfigs(ads, "kubernetes://one-cacert") + `}`,
			[]string{"kubernetes://one"}, "kubernetes://one-cacert"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := trace.Config{}
			if c.sent != nil {
				config[envoy.SecretType] = []*envoy.Resource{}
			}
			for _, name := range c.sent {
				config[envoy.SecretType] = append(config[envoy.SecretType], &envoy.Resource{Name: name})
			}
			with(t, config, "0.0.0.0_443", fmt.Sprintf(
				`{"name":"0.0.0.0_443","address":{"socketAddress":{"address":"0.0.0.0","portValue":443}},"filterChains":[{
				"transportSocket":{"name":"tls","typedConfig":{"@type":%q,"commonTlsContext":{%s}}},
				"filters":[{"name":"tcp","typedConfig":{"@type":"%snetwork.tcp_proxy.v3.TcpProxy","cluster":"web"}}]}]}`,
				tlsTypes+"DownstreamTlsContext", c.tls, types))
			config[envoy.ClusterType] = append(config[envoy.ClusterType], resource(t, "web", &clusterv3.Cluster{},
				fmt.Sprintf(`{"name":"web","type":"EDS","transportSocket":{"name":"tls","typedConfig":{"@type":%q,"commonTlsContext":{%s}}}}`,
					tlsTypes+"UpstreamTlsContext", c.tls)))
			config[envoy.EndpointType] = append(config[envoy.EndpointType], resource(t, "web", &endpointv3.ClusterLoadAssignment{},
				`{"clusterName":"web",`+
					`"endpoints":[{"lbEndpoints":[{"endpoint":{"address":{"socketAddress":{"address":"10.0.0.1","portValue":80}}}}]}]}`))
			with(t, config, "0.0.0.0_80", fmt.Sprintf(
				`{"name":"0.0.0.0_80","address":{"socketAddress":{"address":"0.0.0.0","portValue":80}},"filterChains":[{"filters":[
				{"name":"tcp","typedConfig":{"@type":"%snetwork.tcp_proxy.v3.TcpProxy","cluster":"web"}}]}]}`, types))
			for port, says := range map[uint32]string{443: "the TLS handshake fails: ", 80: "TLS to cluster web fails: "} {
				a := follow(t, config, trace.Request{Port: port, TLS: port == 443})
				if got := strings.Join(a.Secrets(), " "); got != c.missing {
					t.Errorf("port %d: it lacks %q, want %q", port, got, c.missing)
				}
				if c.missing == "" {
					if a.Status != 200 || a.Forwarded.TLS {
						t.Errorf("port %d: %d %s, and what is passed on is TLS: %t", port, a.Status, a.Reason, a.Forwarded.TLS)
					}
					continue
				}
				a.ExplainSecret(a.Secrets()[0], "because", "Gateway a/b", "mend it")
				if a.Status != 0 || !strings.HasPrefix(a.Reason, says) || !strings.Contains(a.Reason, " (because)") ||
					step(a, "secret").From != "Gateway a/b" {
					t.Errorf("port %d: %d %s, %+v", port, a.Status, a.Reason, step(a, "secret"))
				}
			}
			if a := follow(t, config, trace.Request{Port: 443}); a.Status != 0 ||
				a.Reason != "the chain terminates TLS, and the connection is plaintext" {
				t.Errorf("plaintext: %d %s", a.Status, a.Reason)
			}
		})
	}
}
