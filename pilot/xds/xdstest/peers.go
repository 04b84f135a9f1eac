package xdstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Peers are a server and clients that trust each other's certificates.
type Peers struct {
	server  tls.Certificate
	clients []tls.Certificate
	pool    *x509.CertPool
}

// NewPeers makes a server, and a client for each list of URIs in its certificate. A client without URIs has no
// certificate.
func NewPeers(t testing.TB, clients ...[]string) *Peers {
	t.Helper()
	p := &Peers{server: certificate(t), pool: x509.NewCertPool()}
	p.pool.AddCert(p.server.Leaf)
	for _, uris := range clients {
		c := tls.Certificate{}
		if len(uris) > 0 {
			c = certificate(t, uris...)
			p.pool.AddCert(c.Leaf)
		}
		p.clients = append(p.clients, c)
	}
	return p
}

// Server returns the credentials of a server that verifies the certificates of clients, if they have any.
func (p *Peers) Server() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{p.server}, ClientCAs: p.pool, ClientAuth: tls.VerifyClientCertIfGiven,
	})
}

// Client returns the credentials of one of the clients.
func (p *Peers) Client(i int) credentials.TransportCredentials {
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.pool, ServerName: "server"}
	if p.clients[i].Certificate != nil {
		c.Certificates = []tls.Certificate{p.clients[i]}
	}
	return credentials.NewTLS(c)
}

// Authenticate identifies the peer of a call by the certificate of its connection.
func (p *Peers) Authenticate(ctx context.Context) (identity.Peer, error) {
	from, _ := peer.FromContext(ctx)
	out := identity.Peer{}
	out.Address, _ = netip.ParseAddrPort(from.Addr.String())
	if chains := from.AuthInfo.(credentials.TLSInfo).State.VerifiedChains; len(chains) > 0 {
		id, err := identity.Parse(chains[0][0].URIs[0].String())
		if err != nil {
			return out, err
		}
		out.ID, out.Proof = id, identity.Certificate
	}
	return out, nil
}

// certificate returns a self-signed certificate with some URIs.
func certificate(t testing.TB, uris ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"server"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
