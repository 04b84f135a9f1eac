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
)

// Key sizes that are accepted. Smaller RSA keys can be broken, larger ones make each handshake expensive.
const (
	minRSA = 2048
	maxRSA = 4096
)

// CheckPublicKey returns an error unless certificates for a key are issued and trusted: RSA of 2048 to 4096 bits with
// exponent 65537, ECDSA on P-256 or P-384. It does no public-key operation.
func CheckPublicKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSA || n > maxRSA {
			return fmt.Errorf("an RSA key of %d bits: it must have %d to %d", n, minRSA, maxRSA)
		}
		if k.E != 65537 {
			return errors.New("an RSA key whose exponent is not 65537")
		}
		return nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return fmt.Errorf("an ECDSA key on %s: it must be on P-256 or P-384", k.Params().Name)
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

// ParseKey returns the private key of a PEM text: PKCS #8, PKCS #1 or SEC 1. An error never has text of the key.
func ParseKey(text []byte) (crypto.Signer, error) {
	if len(text) > maxKeyText {
		return nil, fmt.Errorf("the key has %d bytes, and may have %d", len(text), maxKeyText)
	}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("there is no private key in PEM")
		}
		if text = rest; block.Type == "EC PARAMETERS" { // openssl writes them before the key
			continue
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			return nil, fmt.Errorf("a PEM block %.40q in the place of a private key", block.Type)
		}
		if err != nil {
			return nil, errors.New("the private key cannot be parsed")
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("a private key of type %T", key)
		}
		return signer, CheckPublicKey(signer.Public())
	}
}

// Sizes of what is read. A chain of 4 kB certificates may have some 16.
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

// ParseCertificates returns the certificates of a PEM text, in order. Any other block, and text that is no PEM, is an
// error. An empty text has none.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	if len(text) > maxCertificateText {
		return nil, fmt.Errorf("%d bytes of certificates: there may be %d", len(text), maxCertificateText)
	}
	var list []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		switch {
		case block == nil && len(bytes.TrimSpace(text)) > 0:
			return nil, fmt.Errorf("text that is no PEM after %d certificates", len(list))
		case block == nil:
			return list, nil
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("a PEM block %.40q in the place of a certificate", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(list)+1, err)
		}
		list, text = append(list, c), rest
	}
}
