package credentials

import (
	"fmt"
	"io"
	"time"
)

// Credential is the content of one Secret or ConfigMap. It is immutable.
type Credential struct {
	Certificate *Certificate // nil if it has no usable certificate
	Roots       *Roots       // nil if it has no usable CA certificates
}

// Certificate is a certificate with its key and chain, in PEM.
type Certificate struct {
	Chain, Key []byte
	Staple     []byte // OCSP response in DER; empty if there is none
	Expires    time.Time
}

// Roots are CA certificates, in PEM.
type Roots struct {
	Certificates []byte
	Revoked      []byte // certificate revocation lists; empty if there are none

	Expires time.Time // latest expiry of the certificates
	Renewal time.Time // earliest next update of the lists; zero if there is none
}

// redacted replaces the content in any output.
const redacted = "[redacted]"

// Format never prints content.
func (Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// Format never prints content.
func (Certificate) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// Format never prints content.
func (Roots) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText never returns content.
func (Credential) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalText never returns content.
func (Certificate) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalText never returns content.
func (Roots) MarshalText() ([]byte, error) { return []byte(redacted), nil }
