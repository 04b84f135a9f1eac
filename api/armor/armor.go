package armor

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// Labels of PEM blocks.
const (
	Certificate = "CERTIFICATE"
	Revoked     = "X509 CRL"

	pkcs8 = "PRIVATE KEY"
	pkcs1 = "RSA PRIVATE KEY"
	sec1  = "EC PRIVATE KEY"
)

// Blocks returns the PEM blocks of a text. A malformed block is an error with its number, from 1; encoding/pem would
// skip it. The work is proportional to the text.
func Blocks(text []byte) ([]*pem.Block, error) {
	begin := []byte("-----BEGIN ")
	var list []*pem.Block
	for {
		block, rest := pem.Decode(text)
		read, begun := text[:len(text)-len(rest)], 1
		if block == nil {
			read, begun = text, 0
		}
		switch {
		case bytes.Count(read, begin) != begun:
			return nil, fmt.Errorf("PEM block %d cannot be read: "+
				"its BEGIN and END must be lines of their own, with the same label and base64 between", len(list)+1)
		case block == nil:
			return list, nil
		}
		list, text = append(list, block), rest
	}
}

// Join concatenates texts. It adds a line end to a text without one, so that no END and BEGIN share a line.
func Join(texts []string) []byte {
	var all []byte
	for _, text := range texts {
		if len(all) > 0 && all[len(all)-1] != '\n' {
			all = append(all, '\n')
		}
		all = append(all, text...)
	}
	return all
}

// Certificates returns the certificates of a text. Blocks with other labels are ignored. A text without any certificate
// is an error.
func Certificates(text []byte) ([]*x509.Certificate, error) {
	blocks, err := Blocks(text)
	if err != nil {
		return nil, err
	}
	var list []*x509.Certificate
	for _, b := range blocks {
		if b.Type != Certificate {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be parsed: %w", len(list)+1, err)
		}
		list = append(list, c)
	}
	if list == nil {
		return nil, errors.New("there is no certificate in PEM")
	}
	return list, nil
}

// AddRoots adds the certificates of a text to a pool.
func AddRoots(pool *x509.CertPool, text []byte) error {
	list, err := Certificates(text)
	for _, c := range list {
		pool.AddCert(c)
	}
	return err
}

// IsPrivateKey reports whether a block has the label of a private key, and is not encrypted.
func IsPrivateKey(b *pem.Block) bool {
	return (b.Type == pkcs8 || b.Type == pkcs1 || b.Type == sec1) && len(b.Headers) == 0
}

// PrivateKey returns the private key of a block, and the block with the label of its content, which Envoy requires.
// Some tools write another label. The error contains no part of the key.
func PrivateKey(b *pem.Block) (crypto.Signer, *pem.Block, error) {
	for _, form := range []struct {
		label string
		parse func([]byte) (any, error)
	}{
		{pkcs8, x509.ParsePKCS8PrivateKey},
		{pkcs1, func(der []byte) (any, error) { return x509.ParsePKCS1PrivateKey(der) }},
		{sec1, func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) }},
	} {
		key, err := form.parse(b.Bytes)
		if err != nil {
			continue
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, nil, fmt.Errorf("a private key of type %T", key)
		}
		return signer, &pem.Block{Type: form.label, Bytes: b.Bytes}, nil
	}
	return nil, nil, fmt.Errorf("the PEM block %.40q holds no private key of PKCS #8, PKCS #1 or SEC 1", b.Type)
}

// Labelled returns the first private key of a text with the label of its content. A text whose key has that label, or
// that has no key, is returned unchanged.
func Labelled(text []byte) []byte {
	blocks, err := Blocks(text)
	if err != nil {
		return text
	}
	for _, b := range blocks {
		if !IsPrivateKey(b) {
			continue
		}
		if _, labelled, err := PrivateKey(b); err == nil && labelled.Type != b.Type {
			return pem.EncodeToMemory(labelled)
		}
		break
	}
	return text
}

// IndexOf returns the index of the certificate of a key, or -1. Servers and clients show a chain whose index is 0.
func IndexOf(chain []*x509.Certificate, key crypto.Signer) int {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return slices.IndexFunc(chain, func(c *x509.Certificate) bool { return ok && public.Equal(c.PublicKey) })
}

// WrongOrder returns the message for a chain whose certificate for the key has an index other than 0.
func WrongOrder(index int) string {
	return fmt.Sprintf("the certificates are in the wrong order: "+
		"number %d is the certificate of the private key, and must be the first", index+1)
}

// KeyPair is tls.X509KeyPair, except that a malformed part of the chain is an error, and that the error names a wrong
// order.
func KeyPair(chain, key []byte) (tls.Certificate, error) {
	list, err := Certificates(chain)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(chain, key) // its errors contain no part of the key
	if blocks, failed := Blocks(key); err != nil && failed == nil {
		for _, b := range blocks {
			if signer, _, failed := PrivateKey(b); failed == nil && IndexOf(list, signer) > 0 {
				return pair, errors.New(WrongOrder(IndexOf(list, signer)))
			}
		}
	}
	return pair, err
}
