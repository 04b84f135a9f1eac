package bootstrap

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/ra"
)

// Signing are signers of Kubernetes in the place of the CA.
type Signing struct {
	Workloads bool   // they sign workloads' certificates: EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API
	Default   string // for callers that name none: K8S_SIGNER
	Domain    string // of those that callers name: CERT_SIGNER_DOMAIN
	Server    string // of the server's own certificate: PILOT_CERT_PROVIDER=k8s.io/<signer>; empty for none
	Roots     string // file with the roots of signers that the mesh configuration has none for
}

// registrar has certificates signed by signers of Kubernetes.
type registrar struct {
	*ra.Authority
	o Signing
}

// newRegistrar returns the registrar of a server; nil if signers sign nothing.
func (s *Server) newRegistrar(a *anchors) (*registrar, error) {
	o := s.o.Certificates.Signing
	switch {
	case !o.Workloads && o.Server == "":
		return nil, nil
	case !s.o.member():
		return nil, errors.New("signers of Kubernetes sign for a server that is a pod of its cluster alone: EXTERNAL_CA and PILOT_CERT_PROVIDER=k8s.io/... need POD_NAME")
	case o.Workloads && o.Server == "" && s.o.Certificates.Serving == (ServingFiles{}):
		return nil, errors.New("with EXTERNAL_CA the server has no CA for its own certificate: set PILOT_CERT_PROVIDER=k8s.io/<signer>, or --tlsCertFile and --tlsKeyFile")
	case o.Workloads && o.Default == "" && o.Domain == "":
		return nil, errors.New("EXTERNAL_CA needs a signer: set K8S_SIGNER or CERT_SIGNER_DOMAIN")
	}
	client, err := dynamic.NewForConfig(s.o.Client)
	if err != nil {
		return nil, fmt.Errorf("client of certificate requests: %w", err)
	}
	return &registrar{ra.New(ra.Options{
		Client: client, Signer: o.Default, Domain: o.Domain, TTL: s.o.Certificates.TTL, MaxTTL: s.o.Certificates.MaxTTL,
		Roots: func(signer string) []*x509.Certificate { return a.ofSigner(signer, o.Roots) },
		Now:   time.Now, Logger: s.o.Logger.With("scope", "ca"),
	}), o}, nil
}

// complete has an Authority's certificates signed elsewhere, as far as they are.
func (r *registrar) complete(o *authority.Options) {
	o.Elsewhere = r.o.Workloads
	if r.o.Server != "" {
		o.Sign = func(ctx context.Context, names []string, key crypto.Signer, ttl time.Duration) (*ca.Issued, error) {
			return r.IssueServer(ctx, r.o.Server, names, key, ttl)
		}
	}
}

// signerRoots returns the roots of the signers that this server asks by itself.
func (r *registrar) signerRoots() []*x509.Certificate {
	if !r.o.Workloads {
		return nil
	}
	var roots []*x509.Certificate
	for _, signer := range []string{r.o.Default, r.o.Server} {
		if signer != "" {
			roots = append(roots, r.Roots(signer)...)
		}
	}
	return roots
}
