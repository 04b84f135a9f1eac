package secrets

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"time"

	"github.com/istiod-lite/istiod-lite/api/armor"
)

// Key says which keys are made. The zero value is ECDSA on P-256.
type Key struct {
	RSA   int    // bits: 2048 to 4096; 0: ECDSA
	Curve string // P256 or P384; empty: P256
	PKCS8 bool   // keys are encoded in PKCS #8, not in PKCS #1 or SEC 1
}

func (k Key) check() error {
	if k.RSA != 0 && (k.RSA < 2048 || k.RSA > 4096) {
		return fmt.Errorf("WORKLOAD_RSA_KEY_SIZE %d: write 2048 to 4096", k.RSA)
	}
	if k.Curve != "" && k.Curve != "P256" && k.Curve != "P384" {
		return fmt.Errorf("ECC_CURVE %q: write P256 or P384", k.Curve)
	}
	return nil
}

// request returns a new key and a request for a certificate of it that names an ID, both in PEM.
func (k Key) request(id string) (key, csr []byte, err error) {
	var signer crypto.Signer
	switch {
	case k.RSA != 0:
		signer, err = rsa.GenerateKey(rand.Reader, k.RSA)
	case k.Curve == "P384":
		signer, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	default:
		signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	block := &pem.Block{Type: "PRIVATE KEY"}
	switch own := signer.(type) {
	case *rsa.PrivateKey:
		if !k.PKCS8 {
			block = &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(own)}
		}
	case *ecdsa.PrivateKey:
		if !k.PKCS8 {
			block.Type = "EC PRIVATE KEY"
			block.Bytes, err = x509.MarshalECPrivateKey(own)
		}
	}
	if err == nil && block.Bytes == nil {
		block.Bytes, err = x509.MarshalPKCS8PrivateKey(signer)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	template := &x509.CertificateRequest{}
	if id != "" {
		u, err := url.Parse(id)
		if err != nil {
			return nil, nil, fmt.Errorf("identity %q: %w", id, err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return pem.EncodeToMemory(block), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// checkPair returns the certificate of a chain, whose key must be this one.
func checkPair(chain, key []byte) (*x509.Certificate, error) {
	pair, err := armor.KeyPair(chain, key) // its errors have nothing of the key
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// splitPEM returns each certificate of a text, as PEM of its own.
func splitPEM(text []byte) (list [][]byte) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return list
		}
		list = append(list, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
}

// firstEnd returns when the first of some certificates ends.
func firstEnd(list []*x509.Certificate) time.Time {
	first := list[0].NotAfter
	for _, c := range list[1:] {
		if c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}
