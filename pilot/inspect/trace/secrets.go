package trace

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// stepSecret is the What of a Step about a secret that a proxy lacks. Its Name is the resource's name.
const stepSecret = "secret"

// Secrets returns the names of the secrets that an answer reports as missing.
func (a *Answer) Secrets() (names []string) {
	for _, s := range a.Steps {
		if s.What == stepSecret {
			names = append(names, s.Name)
		}
	}
	return names
}

// ExplainSecret adds to a missing secret of an answer why the proxy lacks it, which object names it, and the remedy.
func (a *Answer) ExplainSecret(name, reason, from, fix string, objects ...kinds.Key) {
	for n := range a.Steps {
		if s := &a.Steps[n]; s.What == stepSecret && s.Name == name {
			s.Reason, s.From, s.Objects, s.Details = reason, from, objects, []string{fix}
		}
	}
	a.Reason = strings.Replace(a.Reason, lackOf(name), lackOf(name)+" ("+reason+")", 1)
}

// UnknownSecrets is the key, in a Config, of the names of secrets of which it is not known whether the proxy was sent
// them.
const UnknownSecrets = "unknown secrets"

// doubt adds to an answer the secrets of TLS settings of which it is not known whether the proxy was sent them.
func (c Config) doubt(a *Answer, t *tlsv3.CommonTlsContext) {
	named := append(slices.Clone(t.GetTlsCertificateSdsSecretConfigs()), rootsOf(t)...)
	for _, r := range c[UnknownSecrets] {
		if slices.ContainsFunc(named, func(s *tlsv3.SdsSecretConfig) bool { return s.GetName() == r.Name && s.GetSdsConfig().GetAds() != nil }) {
			a.depends("TLS needs the secret %s, and whether the proxy has it is not known here", r.Name)
		}
	}
}

// doubtCluster is doubt for the TLS settings of a cluster.
func (c Config) doubtCluster(a *Answer, cluster *clusterv3.Cluster) {
	sockets := append(lists.Map(cluster.GetTransportSocketMatches(), func(m *clusterv3.Cluster_TransportSocketMatch) *corev3.TransportSocket {
		return m.GetTransportSocket()
	}), cluster.GetTransportSocket())
	for _, s := range sockets {
		if t, _ := upstreamTLS(s); t != nil {
			c.doubt(a, t.GetCommonTlsContext())
		}
	}
}

// rootsOf returns the secrets with the CA certificates by which TLS settings verify the other side. Some are nil.
func rootsOf(t *tlsv3.CommonTlsContext) []*tlsv3.SdsSecretConfig {
	return []*tlsv3.SdsSecretConfig{t.GetValidationContextSdsSecretConfig(),
		t.GetCombinedValidationContext().GetValidationContextSdsSecretConfig()}
}

// lackOf returns the message for a missing secret.
func lackOf(name string) string { return "the proxy has no secret " + name }

// lacks returns the secrets that a proxy needs for TLS and was not sent: Envoy needs one of the named certificates, and
// the CA certificates. The result is empty if it is not known what the proxy was sent. Secrets that the agent beside
// the proxy serves are never missing.
func (c Config) lacks(t *tlsv3.CommonTlsContext) (missing []string) {
	sent, known := c[envoy.SecretType]
	if !known {
		return nil
	}
	isMissing := func(s *tlsv3.SdsSecretConfig) bool {
		return s.GetSdsConfig().GetAds() != nil && !slices.ContainsFunc(sent, func(r *envoy.Resource) bool { return r.Name == s.GetName() })
	}
	certificates := t.GetTlsCertificateSdsSecretConfigs()
	if len(certificates) > 0 && !slices.ContainsFunc(certificates, func(s *tlsv3.SdsSecretConfig) bool { return !isMissing(s) }) {
		for _, s := range certificates {
			missing = append(missing, s.GetName())
		}
	}
	for _, s := range rootsOf(t) {
		if s != nil && isMissing(s) {
			missing = append(missing, s.GetName())
		}
	}
	return missing
}

// waits adds the secrets for which a listener waits, because chains that do not take the connection need them.
func (c Config) waits(a *Answer, l *listenerv3.Listener, chosen *listenerv3.FilterChain) {
	for _, chain := range append(slices.Clone(l.GetFilterChains()), l.GetDefaultFilterChain()) {
		if chain == chosen {
			continue
		}
		for _, name := range c.lacks(downstreamTLS(chain).GetCommonTlsContext()) {
			if !slices.Contains(a.Waits, name) {
				a.Waits = append(a.Waits, name)
			}
		}
	}
}

func lacking(names []string) string {
	list := lists.Map(names, lackOf)
	return strings.Join(list, ", and ")
}
