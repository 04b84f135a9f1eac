package bundles

import (
	"crypto/fips140"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Parse returns the roots in the bundle of a trust domain, in the format of
// https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Trust_Domain_and_Bundle.md. It skips keys for tokens. A
// bundle without a root is an error.
func Parse(text []byte) ([]*x509.Certificate, error) {
	var set jose.JSONWebKeySet
	var err error
	// go-jose computes the SHA-1 thumbprint of each certificate, which panics in Go's mode fips140=only. Nothing here
	// depends on the thumbprint.
	fips140.WithoutEnforcement(func() { err = json.Unmarshal(text, &set) })
	if err != nil {
		return nil, errors.New("the bundle is not a JSON Web Key Set")
	}
	var roots []*x509.Certificate
	for i, k := range set.Keys {
		if k.Use != "x509-svid" {
			continue
		}
		if len(k.Certificates) != 1 {
			return nil, fmt.Errorf("keys[%d] has %d certificates: it must have one", i, len(k.Certificates))
		}
		if c := k.Certificates[0]; !c.IsCA {
			return nil, fmt.Errorf("keys[%d] has a certificate that is not a CA's", i)
		}
		roots = append(roots, k.Certificates[0])
	}
	if roots == nil {
		return nil, errors.New("the bundle has no root")
	}
	return roots, nil
}
