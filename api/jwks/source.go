package jwks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Timeouts of fetching a key set.
const (
	DefaultTimeout = 5 * time.Second
	MaxTimeout     = 30 * time.Second
)

// discovery is the path, below an issuer's URL, of the document that names the location of its keys.
const discovery = "/.well-known/openid-configuration"

// Remote is the origin of a fetched key set.
type Remote struct {
	URI     string        // URI of the key set; if empty, the issuer's document has it
	Issuer  string        // used if there is no URI
	Timeout time.Duration // for all requests; 0 stands for DefaultTimeout, and MaxTimeout is the maximum
}

// Name returns the name of a Remote, which ParseSource parses.
func (s Remote) Name() string {
	timeout := min(cmp.Or(s.Timeout, DefaultTimeout), MaxTimeout)
	if s.URI != "" {
		return timeout.String() + " jwks " + s.URI
	}
	return timeout.String() + " issuer " + s.Issuer
}

// ParseSource returns the Remote with a name.
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

// Discovery returns the URL of the document that names the location of an issuer's keys.
func (s Remote) Discovery() (string, error) {
	u, err := url.Parse(s.Issuer)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", errors.New("the issuer is no URL, so it cannot be asked where its keys are: set jwksUri or jwks")
	}
	return strings.TrimSuffix(s.Issuer, "/") + discovery, nil
}

// Fetcher returns the body of a URL. It bounds size and time, and refuses addresses that may not be fetched from.
type Fetcher interface {
	Get(ctx context.Context, url string) ([]byte, error)
}

// Fetch returns the key set.
func (s Remote) Fetch(ctx context.Context, from Fetcher) (*Set, error) {
	ctx, cancel := context.WithTimeout(ctx, min(cmp.Or(s.Timeout, DefaultTimeout), MaxTimeout))
	defer cancel()
	uri, what := s.URI, s.URI
	if uri == "" {
		var err error
		if uri, err = s.discover(ctx, from); err != nil {
			return nil, err
		}
		what = "the keys that " + s.Issuer + " names" // messages do not repeat the URI, which is part of the answer
	}
	body, err := from.Get(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	set, err := Parse(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return set, nil
}

// discover returns the URI of the keys that the issuer's own document names.
func (s Remote) discover(ctx context.Context, from Fetcher) (string, error) {
	at, err := s.Discovery()
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.Issuer, err)
	}
	body, err := from.Get(ctx, at)
	if err != nil {
		return "", fmt.Errorf("%s: %w", at, err)
	}
	uri, err := ParseDiscovery(body)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", at, err)
	case strings.HasPrefix(at, "https:") && !strings.HasPrefix(uri, "https:"):
		return "", fmt.Errorf("%s names keys that are not served over https", at)
	}
	return uri, nil
}

// ParseDiscovery returns the URI of the keys in an issuer's document.
func ParseDiscovery(body []byte) (string, error) {
	var document struct {
		URI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return "", errors.New("no JSON object")
	}
	if document.URI == "" {
		return "", errors.New("it has no jwks_uri")
	}
	return document.URI, nil
}
