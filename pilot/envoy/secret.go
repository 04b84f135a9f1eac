package envoy

import (
	"fmt"
	"io"
)

// redacted stands for what is in a secret wherever it would be shown.
const redacted = "[redacted]"

// Secret reports whether the resource is a secret. Only those that are sent it see what is in it.
func (r *Resource) Secret() bool { return r.secret }

// Redacted returns the resource as it may be shown: a secret comes without its content.
func (r *Resource) Redacted() *Resource {
	if !r.secret {
		return r
	}
	return &Resource{Name: r.Name, Version: r.Version, Body: []byte{}, secret: true}
}

// String returns the name and the version. It is how any Resource is printed, by whatever means: never with its bytes.
func (r Resource) String() string {
	text := r.Name + "@" + r.Version
	if r.secret {
		text += " " + redacted
	}
	return text
}

// Format writes String, whatever the verb.
func (r Resource) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// MarshalText returns String, for encoders of JSON and logs.
func (r Resource) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
