package jwks

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Times that fetching a key set may take.
const (
	DefaultTimeout = 5 * time.Second
	MaxTimeout     = 30 * time.Second
)

// discovery is where an issuer says where its keys are, below its own URL.
const discovery = "/.well-known/openid-configuration"

// Remote is where a key set is fetched from.
type Remote struct {
	URI     string        // of the key set; empty: the issuer's document says where it is
	Issuer  string        // where there is no URI
	Timeout time.Duration // of all that it takes; 0 is DefaultTimeout, and there is no more than MaxTimeout
}

// Name returns the name of a Source, from which ParseSource makes it again.
func (s Remote) Name() string {
	timeout := min(cmp.Or(s.Timeout, DefaultTimeout), MaxTimeout)
	if s.URI != "" {
		return timeout.String() + " jwks " + s.URI
	}
	return timeout.String() + " issuer " + s.Issuer
}

// ParseSource returns the Source of a name.
func ParseSource(name string) (Remote, error) {
	timeout, rest, _ := strings.Cut(name, " ")
	what, at, ok := strings.Cut(rest, " ")
	d, err := time.ParseDuration(timeout)
	s := Remote{Timeout: d}
	switch {
	case !ok || err != nil || d <= 0 || d > MaxTimeout || at == "":
		return Remote{}, fmt.Errorf("%q names no source of keys", name)
	case what == "jwks":
		s.URI = at
	case what == "issuer":
		s.Issuer = at
	default:
		return Remote{}, fmt.Errorf("%q names no source of keys", name)
	}
	return s, nil
}

// Discovery returns the URL of the document in which an issuer says where its keys are.
func (s Remote) Discovery() (string, error) {
	u, err := url.Parse(s.Issuer)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", errors.New("the issuer is no URL, so it cannot be asked where its keys are: set jwksUri or jwks")
	}
	return strings.TrimSuffix(s.Issuer, "/") + discovery, nil
}
