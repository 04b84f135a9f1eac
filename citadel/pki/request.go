package pki

import (
	"bytes"
	"crypto"
	"crypto/fips140"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// Request is a certificate request whose signature proves that the caller has the key. Only the key is certified; the
// identity comes from the authenticated caller.
type Request struct {
	Key crypto.PublicKey

	uris  []string
	other bool // asks for names other than URIs
	// subject reports whether the request has a subject, or an extension other than its names, which a signer might
	// certify.
	subject bool
}

// ParseRequest returns the request in a PEM text, which must have no other block. It checks the sizes and the kind of
// the key before any expensive decoding or verification.
func ParseRequest(text []byte) (*Request, error) {
	if len(text) > maxRequestText {
		return nil, fmt.Errorf("the certificate request has %d bytes, and may have %d", len(text), maxRequestText)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, errors.New("the certificate request is no PEM")
	case block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST":
		return nil, fmt.Errorf("the PEM block is %.40q and not a certificate request", block.Type)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("there is more after the certificate request")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate request cannot be parsed: %w", err)
	}
	if err := CheckPublicKey(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("the certificate request has %w", err)
	}
	// CheckSignature accepts SHA-1 in requests, and panics then in Go's mode fips140=only.
	switch a := csr.SignatureAlgorithm; a {
	case x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1:
		if fips140.Enforced() {
			return nil, fmt.Errorf("the certificate request is signed with %s, which FIPS 140-3 does not approve", a)
		}
	default:
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, errors.New("the signature of the certificate request is wrong")
	}
	r := &Request{Key: csr.PublicKey, other: len(csr.DNSNames)+len(csr.EmailAddresses)+len(csr.IPAddresses) > 0}
	r.subject = slices.ContainsFunc(csr.Subject.Names, func(n pkix.AttributeTypeAndValue) bool { return n.Value != "" }) ||
		slices.ContainsFunc(csr.Extensions, func(e pkix.Extension) bool { return !e.Id.Equal(subjectAltName()) })
	for _, u := range csr.URIs {
		r.uris = append(r.uris, u.String())
	}
	return r, nil
}

// subjectAltName is the extension that holds names: RFC 5280, section 4.2.1.6.
func subjectAltName() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, 17} }

// AsksFor reports whether the request asks for no name, or only for this URI. Other names are never certified.
func (r *Request) AsksFor(uri string) bool {
	return !r.other && (len(r.uris) == 0 || len(r.uris) == 1 && r.uris[0] == uri)
}

// AsksOnlyFor reports whether the request asks for this URI and for no other name.
func (r *Request) AsksOnlyFor(uri string) bool {
	return !r.other && !r.subject && len(r.uris) == 1 && r.uris[0] == uri
}
