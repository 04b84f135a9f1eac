package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	authv1 "istio.io/api/security/v1alpha1"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Issuer requests certificates from a control plane, each for the account of its token.
type Issuer struct {
	binary, stateDir string
	client           authv1.IstioCertificateServiceClient
}

// Issuer connects to the secure port. It trusts the roots or, without any, the roots in the state folder.
func (p *Process) Issuer(roots ...*x509.Certificate) (*Issuer, error) {
	pool := x509.NewCertPool()
	for _, r := range roots {
		pool.AddCert(r)
	}
	if len(roots) == 0 {
		text, err := os.ReadFile(filepath.Join(p.o.StateDir, "ca", "ca", "root-cert.pem"))
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, errors.New("the state folder has no roots")
		}
	}
	conn, err := grpc.NewClient(p.SecureGRPC,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "istiod.istio-system.svc"})))
	if err != nil {
		return nil, err
	}
	return &Issuer{p.o.Binary, p.o.StateDir, authv1.NewIstioCertificateServiceClient(conn)}, nil
}

// Issue returns a certificate with its chain, its key, and the roots to trust, as PEM, for a service account.
func (i *Issuer) Issue(ctx context.Context, namespace, account string) (chain, key, roots []byte, err error) {
	token, err := exec.CommandContext(ctx, i.binary, "token", namespace, account, "--stateDir", i.stateDir).Output()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a token: %w", err)
	}
	private, err := pki.GenerateKey()
	if err != nil {
		return nil, nil, nil, err
	}
	if key, err = pki.EncodeKey(private); err != nil {
		return nil, nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		return nil, nil, nil, err
	}
	answer, err := i.client.CreateCertificate(
		metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+string(bytes.TrimSpace(token))),
		&authv1.IstioCertificateRequest{Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))},
	)
	if err != nil {
		return nil, nil, nil, err
	}
	last := len(answer.CertChain) - 1
	return []byte(strings.Join(answer.CertChain[:last], "")), key, []byte(answer.CertChain[last]), nil
}
