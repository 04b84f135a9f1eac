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

// Key is the kind of keys to generate. The zero value is ECDSA on P-256.
type Key struct {
	// RSA is the size of RSA keys in bits, from 2048 to 4096. Zero means ECDSA.
	RSA int
	// Curve is P256, which is the default, or P384.
	Curve string
	// PKCS8 encodes keys in PKCS #8. Otherwise they are in PKCS #1 or SEC 1.
	PKCS8 bool
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

// request returns a new key and a certificate request for the identity id, both in PEM.
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
		return nil, nil, fmt.Errorf("failed to make a key: %w", err)
	}
	block := &pem.Block{Type: "PRIVATE KEY"}
	switch private := signer.(type) {
	case *rsa.PrivateKey:
		if !k.PKCS8 {
			block = &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}
		}
	case *ecdsa.PrivateKey:
		if !k.PKCS8 {
			block.Type = "EC PRIVATE KEY"
			block.Bytes, err = x509.MarshalECPrivateKey(private)
		}
	}
	if err == nil && block.Bytes == nil {
		block.Bytes, err = x509.MarshalPKCS8PrivateKey(signer)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed to encode a key: %w", err)
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
		return nil, nil, fmt.Errorf("failed to make a certificate request: %w", err)
	}
	return pem.EncodeToMemory(block), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// checkPair returns the leaf certificate of a chain. It is an error if the key is not the leaf's.
func checkPair(chain, key []byte) (*x509.Certificate, error) {
	pair, err := armor.KeyPair(chain, key) // its errors contain no part of the key
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// splitPEM returns each block of a PEM text separately, without headers.
func splitPEM(text []byte) (list [][]byte) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return list
		}
		list = append(list, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
}

// earliestExpiry returns the time at which the first of the certificates expires.
func earliestExpiry(list []*x509.Certificate) time.Time {
	earliest := list[0].NotAfter
	for _, c := range list[1:] {
		if c.NotAfter.Before(earliest) {
			earliest = c.NotAfter
		}
	}
	return earliest
}
