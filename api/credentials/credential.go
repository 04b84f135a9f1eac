package credentials

import (
	"fmt"
	"io"
	"time"
)

// Credential is what one Secret or ConfigMap holds. It is frozen.
type Credential struct {
	Certificate *Certificate // nil: it has none that can be used
	Roots       *Roots       // nil likewise
}

// Certificate is a certificate with what belongs to it, in PEM.
type Certificate struct {
	Chain, Key []byte
	Staple     []byte // of OCSP, in DER; empty without one
	Expires    time.Time
}

// Roots are CA certificates, in PEM.
type Roots struct {
	Certificates []byte
	Revoked      []byte // lists of revoked certificates; empty without one

	Expires time.Time // of the one that is valid for longest
	Renewal time.Time // when the first of the lists should have been replaced; zero: never
}

// redacted stands for the content wherever it would be shown.
const redacted = "[redacted]"

// Format writes no content, whatever the verb.
func (Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// Format writes no content, whatever the verb.
func (Certificate) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// Format writes no content, whatever the verb.
func (Roots) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns no content, for encoders of JSON and logs.
func (Credential) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalText returns no content, for encoders of JSON and logs.
func (Certificate) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalText returns no content, for encoders of JSON and logs.
func (Roots) MarshalText() ([]byte, error) { return []byte(redacted), nil }
