package envoy

import (
	"fmt"
	"io"
)

// redacted replaces the content of a secret in anything that is printed.
const redacted = "[redacted]"

// Secret reports whether the resource is a secret. Its content is visible only to clients that are sent it.
func (r *Resource) Secret() bool { return r.secret }

// Redacted returns a resource that may be printed: a secret without its content.
func (r *Resource) Redacted() *Resource {
	if !r.secret {
		return r
	}
	return &Resource{Name: r.Name, Version: r.Version, Body: []byte{}, secret: true}
}

// String returns the name and the version. A Resource is always printed so, and never with its bytes.
func (r Resource) String() string {
	text := r.Name + "@" + r.Version
	if r.secret {
		text += " " + redacted
	}
	return text
}

// Format writes String for every verb.
func (r Resource) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// MarshalText returns String, for JSON encoders and logs.
func (r Resource) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
