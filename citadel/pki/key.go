package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Accepted key sizes in bits. Smaller RSA keys can be broken. Larger keys of workloads make each handshake expensive,
// and Go's TLS rejects larger RSA keys of CAs.
const (
	minRSA       = 2048
	maxRSA       = 4096
	maxAuthority = 8192
)

// CheckPublicKey returns an error unless a workload's certificate may have the key: RSA of 2048 to 4096 bits with
// exponent 65537, or ECDSA on P-256 or P-384. It does no public-key operation.
func CheckPublicKey(key crypto.PublicKey) error {
	return checkKey(key, maxRSA, elliptic.P256(), elliptic.P384())
}

// CheckAuthorityKey returns an error unless a CA may have the key: RSA of 2048 to 8192 bits with exponent 65537, or
// ECDSA on P-256, P-384 or P-521. It does no public-key operation.
func CheckAuthorityKey(key crypto.PublicKey) error {
	return checkKey(key, maxAuthority, elliptic.P256(), elliptic.P384(), elliptic.P521())
}

func checkKey(key crypto.PublicKey, most int, curves ...elliptic.Curve) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSA || n > most {
			return fmt.Errorf("an RSA key of %d bits: it must have %d to %d", n, minRSA, most)
		}
		if k.E != 65537 {
			return errors.New("an RSA key whose exponent is not 65537")
		}
		return nil
	case *ecdsa.PublicKey:
		if !slices.Contains(curves, k.Curve) {
			names := lists.Map(curves, func(c elliptic.Curve) string { return c.Params().Name })
			return fmt.Errorf("an ECDSA key on %s: it must be on one of %s", k.Params().Name, strings.Join(names, ", "))
		}
		return nil
	}
	return fmt.Errorf("a key of type %T: it must be RSA or ECDSA", key)
}

// GenerateKey returns a new ECDSA key on P-256.
func GenerateKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// EncodeKey returns a private key as PEM, in PKCS #8.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseKey returns the private key in a PEM text: PKCS #8, PKCS #1 or SEC 1, whatever its label. Its errors never
// contain text of the key.
func ParseKey(text []byte) (crypto.Signer, error) {
	if len(text) > maxKeyText {
		return nil, fmt.Errorf("the key has %d bytes, and may have %d", len(text), maxKeyText)
	}
	blocks, err := armor.Blocks(text)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		switch {
		case b.Type == "EC PARAMETERS": // openssl writes them in front of the key
			continue
		case !armor.IsPrivateKey(b):
			return nil, fmt.Errorf("a PEM block %.40q instead of a private key without a passphrase", b.Type)
		}
		key, _, err := armor.PrivateKey(b)
		if err != nil {
			return nil, err
		}
		return key, CheckAuthorityKey(key.Public())
	}
	return nil, errors.New("there is no private key in PEM")
}

// Bounds of input in bytes. A chain of 4 kB certificates may have some 16 of them.
const (
	maxKeyText         = 16 << 10
	maxCertificateText = 64 << 10
	maxRequestText     = 16 << 10
)

// EncodeCertificates returns certificates as PEM, one after the other.
func EncodeCertificates(list ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range list {
		out = append(out, EncodeCertificate(c.Raw)...)
	}
	return out
}

// EncodeCertificate returns the DER of a certificate as PEM.
func EncodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// ParseCertificates returns the certificates of a PEM text, in order. A block that is not a valid certificate is an
// error. Text outside the blocks is ignored. An empty text has no certificates.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	if len(text) > maxCertificateText {
		return nil, fmt.Errorf("%d bytes of certificates: there may be %d", len(text), maxCertificateText)
	}
	blocks, err := armor.Blocks(text)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		if b.Type != armor.Certificate {
			return nil, fmt.Errorf("a PEM block %.40q instead of a certificate", b.Type)
		}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	return armor.Certificates(text)
}
