package xds

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// Access decides whether an identity may have the Secrets of its namespace in a cluster, if membership of the namespace
// is not enough. cluster is the ID of the proxy's cluster, or empty for the server's own.
type Access interface {
	// Watch calls notify after each answer about an identity, from any goroutine, until stop is called.
	Watch(cluster string, id identity.ID, notify func()) (stop func())
	// Allowed returns the last answer about a watched identity. known is false if there is none that may be used for
	// new subscriptions.
	Allowed(cluster string, id identity.ID) (allowed, known bool)
}

// allowSecrets removes from a request the names of secrets that the client may not receive. They have no response, like
// unknown names. So a session never subscribes to a secret that its peer may not have. It reports whether the session
// must handle the rest of the request.
func (c *conn) allowSecrets(r *wire.Request, log *slog.Logger) bool {
	var allowed []string
	var why error
	denied := 0
	for _, name := range r.Names.Names.All() {
		if err := c.allowSecret(name); err != nil {
			denied, why = denied+1, cmp.Or(why, err)
			continue
		}
		allowed = append(allowed, name)
	}
	if denied > 0 {
		r.Names.Names = c.server.interner.Of(allowed)
		c.server.metrics.deniedSecrets.Add(float64(denied))
		c.server.warnings.log(
			log.Warn, c.warnings, "refusing secrets that the proxy may not receive", "type", envoy.ShortType(r.TypeURL), "denied", denied, "err",
			why,
		)
	}
	return allowed != nil || c.session.StatusOf(r.TypeURL) != nil
}

// allowSecret returns an error unless the client may receive the secret with that name.
func (c *conn) allowSecret(name string) error {
	if !c.profile.workload {
		return fmt.Errorf("secrets are not served to a %s", c.profile.name)
	}
	namespace, ok := names.SecretNamespace(name, c.proxy.Namespace)
	if !ok {
		return fmt.Errorf("%.200q is no name of a secret", name)
	}
	err := c.server.o.Authorizer.Secret(c.peer, namespace)
	if err == nil {
		return nil
	}
	if newest := c.server.newest(); newest != nil {
		// A share with a namespace is for accounts that may list the Secrets there, which only Access can tell.
		if shared, direct := newest.Shared.With(c.peer.ID, name); direct || shared && c.server.o.Access != nil {
			return c.server.o.Authorizer.SharedSecret(c.peer)
		}
	}
	return err
}

// sharedDirectly reports whether the client may receive the secret independent of Access: it is a proxy of the server's
// own cluster, and an object shares the secret with its service account or with all accounts.
func (c *conn) sharedDirectly(name string) bool {
	newest := c.server.newest()
	if newest == nil || !c.profile.workload || c.proxy.Cluster != "" && c.proxy.Cluster != newest.Cluster ||
		c.server.o.Authorizer.SharedSecret(c.peer) != nil {
		return false
	}
	_, direct := newest.Shared.With(c.peer.ID, name)
	return direct && c.inCluster()
}

// reviewSecrets handles a request for secrets. Without Access, all subscribed secrets are granted.
func (c *conn) reviewSecrets() {
	if a := c.server.o.Access; a != nil && c.stopAccessWatch == nil && c.session.Subscribed(envoy.SecretType).Len() > 0 {
		c.stopAccessWatch = a.Watch(c.proxy.Cluster, c.peer.ID, c.accessAnswered)
	}
	c.applyAccess()
}

// accessAnswered wakes the owner to apply a new answer of Access.
func (c *conn) accessAnswered() {
	c.mu.Lock()
	c.accessChanged = true
	c.mu.Unlock()
	c.rouse()
}

// applyAccess grants or withdraws the secrets that the client subscribes to. Until Access has answered, the client
// keeps the guarded secrets that it already has and receives no new ones. A shared secret is granted as long as it is
// shared.
func (c *conn) applyAccess() {
	subscribed := c.session.Subscribed(envoy.SecretType)
	c.shared = nil
	if newest := c.server.newest(); newest != nil {
		c.shared = newest.Shared
	}
	allowed, known := true, true
	if a := c.server.o.Access; a != nil {
		c.guarded = true
		allowed, known = a.Allowed(c.proxy.Cluster, c.peer.ID)
		known = known && (!allowed || c.inCluster())
	}
	had, sharedGrants := c.session.Granted(), map[string]bool{}
	var list []string
	denied, undecided, refused := false, false, ""
	for name := range subscribed.Each() {
		guarded := c.allowSecret(name) == nil
		switch {
		case guarded && known && allowed, guarded && !known && had != nil && had.Has(name) && !c.sharedGrants[name]:
		case guarded && c.sharedDirectly(name):
			sharedGrants[name] = true
		default:
			final := known || !guarded || c.sharedGrants[name]
			denied, undecided = denied || final, undecided || !final
			if guarded && known && !allowed {
				refused = cmp.Or(refused, name)
			}
			continue
		}
		list = append(list, name)
	}
	c.sharedGrants = sharedGrants
	c.markRefused(refused)
	granted := subscribed
	if len(list) != subscribed.Len() {
		c.guarded, granted = true, nil
		if len(list) > 0 {
			granted = c.server.interner.Of(list)
		}
	}
	if c.guarded {
		c.session.Guard()
		c.session.Grant(granted, denied, undecided)
	}
	c.demandSecrets(granted)
}

// markRefused records a secret that is refused because the client's service account may not list Secrets, or "" if
// there is none. It logs each name once.
func (c *conn) markRefused(name string) {
	if name != "" && name != c.refused {
		s := c.server
		s.metrics.deniedSecrets.Inc()
		s.warnings.log(
			s.o.Logger.Warn, c.warnings, "refusing secrets: the proxy's service account may not list Secrets", "conn", c.id, "secret", name,
			"fix", c.listAdvice(),
		)
	}
	c.refused = name
}

// listAdvice returns the fix for a service account that may not list Secrets.
func (c *conn) listAdvice() string {
	return "bind a Role that may get, watch and list secrets in namespace " + c.peer.ID.Namespace +
		" to its service account " + c.peer.ID.ServiceAccount
}

// inCluster reports whether the peer is in the cluster that its proxy names. A certificate is valid in every cluster,
// so the answer is false until a snapshot has the workload there, and true from then on.
func (c *conn) inCluster() bool {
	s := c.server
	if c.located || c.peer.Bound.Cluster != "" {
		return true
	}
	newest := s.newest()
	if c.located = newest != nil && s.o.World.InCluster(newest, c.peer, c.proxy); !c.located {
		s.warnings.log(s.o.Logger.Warn, c.warnings, "refusing secrets: the proxy's cluster is unverified",
			"conn", c.id, "cluster", c.proxy.Cluster, "fix", "let it present a token of its cluster, "+
				"or name it like its Pod or WorkloadEntry of service account "+c.peer.ID.ServiceAccount+" there")
	}
	return c.located
}

// standIns make the secrets that replace withdrawn ones, because an Envoy keeps a secret that is removed. They are a
// self-signed certificate with its key, and a different one for a CA, which has signed nothing and whose key is
// discarded. Both expired long ago, and no client trusts them. It is safe for concurrent use.
type standIns struct {
	once                 sync.Once
	certificate, key, ca []byte // PEM; nil if the system has no randomness
}

// of returns the stand-in for a secret, or nil if there is none.
func (s *standIns) of(name string) *envoy.Resource {
	secret, ok := names.ParseSecret(name, "x")
	s.once.Do(func() {
		s.certificate, s.key = selfSigned(false)
		s.ca, _ = selfSigned(true)
	})
	if !ok || s.certificate == nil || s.ca == nil {
		return nil
	}
	inline := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	m := &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(s.certificate), PrivateKey: inline(s.key)},
	}}
	if secret.CA {
		m.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.ca)}}
	}
	return envoy.NewResource(name, m)
}

// selfSigned returns a certificate that was valid for an hour in 1970, and its key. It returns nil if the system has no
// randomness.
func selfSigned(authority bool) (certificate, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "withdrawn"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(3600, 0),
		IsCA: authority, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if authority {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// waitsToBeLocated reports whether the client has requested secrets, and its cluster is unverified.
func (c *conn) waitsToBeLocated() bool {
	return c.stopAccessWatch != nil && !c.located && c.peer.Bound.Cluster == ""
}

// demandSecrets records the objects that the granted secrets of this stream are made of.
func (c *conn) demandSecrets(list *envoy.Names) {
	wanted := map[kinds.Key]bool{}
	for name := range list.Each() {
		s, ok := names.ParseSecret(name, c.proxy.Namespace)
		if !ok {
			continue
		}
		kind := kinds.Secret
		if s.ConfigMap {
			kind = kinds.ConfigMap
		}
		for _, object := range s.Objects() {
			wanted[kinds.Key{Kind: kind, Cluster: c.proxy.Cluster, Namespace: s.Namespace, Name: object}] = true
		}
	}
	c.server.replaceDemand(c.wanted, wanted)
	c.wanted = wanted
}

// leaveSecrets withdraws the stream's demand.
func (c *conn) leaveSecrets() {
	if c.stopAccessWatch != nil {
		c.stopAccessWatch()
	}
	c.server.replaceDemand(c.wanted, nil)
	c.wanted = nil
}

// demand counts the streams that may be sent the contents of each Secret and ConfigMap.
type demand struct {
	mu    sync.Mutex
	count map[kinds.Key]int
}

// replaceDemand replaces the demand of a stream.
func (s *Server) replaceDemand(was, is map[kinds.Key]bool) {
	if maps.Equal(was, is) {
		return
	}
	d := &s.demand
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[kinds.Key]int{}
	}
	turned := false
	for k := range is {
		if d.count[k]++; d.count[k] == 1 {
			turned = true
		}
	}
	for k := range was {
		if d.count[k]--; d.count[k] == 0 {
			delete(d.count, k)
			turned = true
		}
	}
	if turned {
		s.o.World.WantSecrets(slices.SortedFunc(maps.Keys(d.count), func(a, b kinds.Key) int {
			return cmp.Or(
				cmp.Compare(a.Kind.Name, b.Kind.Name), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace),
				cmp.Compare(a.Name, b.Name),
			)
		}))
	}
}
