package sds

import (
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Secrets makes secrets. Safe for concurrent use.
type Secrets struct {
	cache        *engine.Cache
	certificates *envoy.MemoTable[certificateKey]
	roots        *envoy.MemoTable[rootsKey]
}

// New returns Secrets with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, c *engine.Cache) *Secrets {
	return &Secrets{cache: c, certificates: envoy.NewMemoTable(m, buildCertificate), roots: envoy.NewMemoTable(m, buildRoots)}
}

// certificateKey is the whole input of a secret with a certificate.
type certificateKey struct {
	name string
	*credentials.Certificate
}

// rootsKey is the whole input of a secret with CA certificates.
type rootsKey struct {
	name string
	*credentials.Roots
}

// Get returns the secrets of a list of names. A secret that does not exist, or that no object names for the proxy, is
// missing.
func (m *Secrets) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	of := c.Client.Value()
	named := sync.OnceValue(func() map[string]struct{} { return ofGateways(of) })
	s := engine.GetByName(m.cache, engine.Key{Type: envoy.SecretType, Client: c.Client.Weak()}, v.Revision, list, engine.ByName{
		Affected: affected,
		Build: func(name string) *envoy.Resource {
			if _, ok := named()[name]; !ok && !v.DestinationRuleNames(name) {
				return nil
			}
			return m.build(v, of.Cluster, of.Namespace, name)
		},
	})
	return envoy.Union{Shared: s.Set}, s.Err()
}

// affected returns the names of a list whose secrets may be made from dirty objects.
func affected(d *scope.Dirty, list *envoy.Names) []string {
	if len(d.Credentials) == 0 {
		return nil
	}
	var out []string
	for name := range list.Each() {
		if slices.ContainsFunc(credentials.Reference{Resource: name}.Names(), func(object string) bool {
			_, found := slices.BinarySearch(d.Credentials, object)
			return found
		}) {
			out = append(out, name)
		}
	}
	return out
}

// ofGateways returns the names of the secrets that the Gateways of a proxy name.
func ofGateways(c cohort.Client) map[string]struct{} {
	all := map[string]struct{}{}
	for o := range c.Gateways.All {
		for _, r := range credentials.References(o) {
			all[r.Resource] = struct{}{}
		}
	}
	return all
}

// build returns a secret, or nil if there is no object for it. If there are several, the first that exists is used,
// even if it is unusable.
func (m *Secrets) build(v *view.View, cluster, namespace, name string) *envoy.Resource {
	s, ok := names.ParseSecret(name, namespace)
	if !ok {
		return nil
	}
	kind := kinds.SecretCredential
	if s.ConfigMap {
		kind = kinds.ConfigMapCredential
	}
	for _, object := range s.Objects() {
		o := v.Object(kinds.Key{Kind: kind, Cluster: v.SecretsOf(cluster), Namespace: s.Namespace, Name: object})
		if o == nil {
			continue
		}
		c := o.Spec.(*credentials.Credential)
		switch {
		case s.CA && c.Roots != nil:
			return m.roots.Get(rootsKey{name, c.Roots})
		case !s.CA && c.Certificate != nil:
			return m.certificates.Get(certificateKey{name, c.Certificate})
		}
		return nil
	}
	return nil
}

func buildCertificate(k certificateKey) *envoy.Resource {
	c := &tlsv3.TlsCertificate{CertificateChain: inline(k.Chain), PrivateKey: inline(k.Key)}
	if len(k.Staple) > 0 {
		c.OcspStaple = inline(k.Staple)
	}
	return envoy.NewResource(k.name, &tlsv3.Secret{Name: k.name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: c}})
}

func buildRoots(k rootsKey) *envoy.Resource {
	c := &tlsv3.CertificateValidationContext{TrustedCa: inline(k.Certificates)}
	if len(k.Revoked) > 0 {
		c.Crl = inline(k.Revoked)
	}
	return envoy.NewResource(k.name, &tlsv3.Secret{Name: k.name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: c}})
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
