package wasm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

const (
	ociScheme = "oci://"

	rawLayer    = "application/vnd.module.wasm.content.layer.v1+wasm"
	otherRaw    = "application/wasm"
	maxManifest = 4 << 20
	maxToken    = 1 << 20
)

// manifestTypes are the types of manifests and of lists of them, of OCI and of Docker.
const manifestTypes = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, " +
	"application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"

// fetch returns the module of a URL, checked.
func (c *Cache) fetch(ctx context.Context, k key, secret string) ([]byte, error) {
	if rest, ok := strings.CutPrefix(k.url, ociScheme); ok {
		return c.image(ctx, rest, k.sha256, secret)
	}
	body, challenge, err := c.request(ctx, k.url, "*/*", "", c.o.Size)
	if err == nil && challenge != "" {
		err = statusError(http.StatusUnauthorized)
	}
	if err != nil {
		return nil, err
	}
	if err := checkSum(body, k.sha256); err != nil {
		return nil, err
	}
	return unpack(body, c.o.Size)
}

// statusError is the status of an answer that is none of a module.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("the server answers with status %d", int(e)) }

// networkError is a fault of a connection.
type networkError struct{ error }

func (e networkError) Unwrap() error { return e.error }

// temporary reports whether another try may have another result.
func temporary(err error) bool {
	var status statusError
	if errors.As(err, &status) {
		return status == http.StatusTooManyRequests || status >= 500
	}
	var connection networkError
	var number syscall.Errno
	var name *net.DNSError
	var network net.Error
	return errors.As(err, &connection) && (errors.As(err, &number) || errors.As(err, &name) || errors.As(err, &network) && network.Timeout() ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
}

// checkSum returns an error unless a text has a hash. An empty hash is any.
func checkSum(text []byte, want string) error {
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); want != "" && got != want {
		return fmt.Errorf("its SHA-256 is %s, and should be %s", got, want)
	}
	return nil
}

// registry is a repository of a registry, and what proves who asks.
type registry struct {
	c             *Cache
	base          string // https://HOST/v2/REPOSITORY
	host          string
	user, pass    string
	authorization string
}

// image returns the module of an image. sum is the hash of its manifest, if not empty.
func (c *Cache) image(ctx context.Context, name, sum, secret string) ([]byte, error) {
	host, repository, ok := strings.Cut(name, "/")
	if !ok || host == "" || repository == "" || strings.ContainsAny(name, "?#% ") {
		return nil, errors.New("write oci://HOST/REPOSITORY:TAG")
	}
	reference := "latest"
	if before, digest, ok := strings.Cut(repository, "@"); ok {
		repository, reference = before, digest
		repository, _, _ = strings.Cut(repository, ":")
	} else if before, tag, ok := strings.Cut(repository, ":"); ok {
		repository, reference = before, tag
	}
	scheme := "https"
	if slices.Contains(c.o.Insecure, host) {
		scheme = "http"
	}
	r := &registry{c: c, base: scheme + "://" + host + "/v2/" + repository, host: host}
	if err := r.credentials(secret); err != nil {
		return nil, err
	}
	var manifest struct {
		Manifests, Layers []struct {
			MediaType, Digest string
			Size              int64
		}
	}
	for range 2 { // a list of manifests, then a manifest
		text, err := r.get(ctx, "/manifests/"+reference, manifestTypes, maxManifest)
		if err != nil {
			return nil, fmt.Errorf("its manifest: %w", err)
		}
		if err := checkSum(text, sum); err != nil {
			return nil, err
		}
		if digest, ok := strings.CutPrefix(reference, "sha256:"); ok {
			if err := checkSum(text, digest); err != nil {
				return nil, err
			}
		}
		manifest.Manifests, manifest.Layers = nil, nil
		if err := json.Unmarshal(text, &manifest); err != nil {
			return nil, fmt.Errorf("its manifest: %w", err)
		}
		if len(manifest.Layers) > 0 || len(manifest.Manifests) == 0 {
			break
		}
		reference, sum = manifest.Manifests[0].Digest, ""
	}
	if len(manifest.Layers) == 0 {
		return nil, errors.New("it has no layers")
	}
	layer := manifest.Layers[len(manifest.Layers)-1]
	for _, l := range manifest.Layers {
		if l.MediaType == rawLayer || l.MediaType == otherRaw {
			layer = l
		}
	}
	digest, ok := strings.CutPrefix(layer.Digest, "sha256:")
	if !ok {
		return nil, fmt.Errorf("its layer has the digest %q, and not one of SHA-256", layer.Digest)
	}
	body, err := r.get(ctx, "/blobs/"+layer.Digest, "*/*", c.o.Size)
	if err != nil {
		return nil, fmt.Errorf("its layer: %w", err)
	}
	if err := checkSum(body, digest); err != nil {
		return nil, fmt.Errorf("its layer: %w", err)
	}
	return unpack(body, c.o.Size)
}

// credentials reads user and password from a text as Docker's config.json is. An error has nothing of the text.
func (r *registry) credentials(secret string) error {
	if secret == "" {
		return nil
	}
	var config struct {
		Auths map[string]struct{ Auth, Username, Password string }
	}
	if json.Unmarshal([]byte(secret), &config) != nil {
		return errors.New("its image pull secret is no Docker configuration")
	}
	for host, a := range config.Auths {
		host = strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://")
		if host, _, _ = strings.Cut(host, "/"); host != r.host {
			continue
		}
		r.user, r.pass = a.Username, a.Password
		if both, err := base64.StdEncoding.DecodeString(a.Auth); a.Auth != "" && err == nil {
			r.user, r.pass, _ = strings.Cut(string(both), ":")
		}
	}
	return nil
}

// get returns a path of the repository. Where the registry wants a token, it is asked for once.
func (r *registry) get(ctx context.Context, path, accept string, most int64) ([]byte, error) {
	for first := true; ; first = false {
		body, challenge, err := r.c.request(ctx, r.base+path, accept, r.authorization, most)
		if err != nil || challenge == "" {
			return body, err
		}
		switch {
		case !first && r.user == "":
			return nil, errNoSecret
		case !first:
			return nil, errors.New("the registry refuses its credentials")
		}
		if err := r.authorize(ctx, challenge); err != nil {
			return nil, err
		}
	}
}

var errNoSecret = errors.New("the registry wants credentials, and the control plane has sent no image pull secret")

// authorize does what a WWW-Authenticate header asks for.
func (r *registry) authorize(ctx context.Context, challenge string) error {
	basic := ""
	if r.user != "" {
		basic = "Basic " + base64.StdEncoding.EncodeToString([]byte(r.user+":"+r.pass))
	}
	scheme, rest, _ := strings.Cut(challenge, " ")
	switch {
	case strings.EqualFold(scheme, "Basic") && basic != "":
		r.authorization = basic
		return nil
	case !strings.EqualFold(scheme, "Bearer"):
		return errNoSecret
	}
	query := url.Values{}
	realm := ""
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch value = strings.Trim(value, `"`); name {
		case "realm":
			realm = value
		case "service", "scope":
			query.Set(name, value)
		}
	}
	if base, _ := url.Parse(realm); base == nil || base.Scheme != "https" && !strings.HasPrefix(r.base, "http://") {
		return errors.New("the registry sends its clients for a token to where there is no TLS")
	}
	body, refused, err := r.c.request(ctx, realm+"?"+query.Encode(), "application/json", basic, maxToken)
	if err == nil && refused != "" && basic == "" {
		err = errNoSecret
	} else if err == nil && refused != "" {
		err = errors.New("the credentials are refused")
	}
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err == nil && json.Unmarshal(body, &answer) != nil {
		err = errors.New("the answer is no JSON")
	}
	if err != nil {
		return fmt.Errorf("a token of the registry: %w", err)
	}
	answer.Token = cmp.Or(answer.Token, answer.AccessToken)
	r.authorization = "Bearer " + answer.Token
	return nil
}

// request returns the body of a URL, or the challenge of a server that wants to know who asks.
func (c *Cache) request(ctx context.Context, to, accept, authorization string, most int64) (body []byte, challenge string, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return nil, "", errors.New("no URL")
	}
	q.Header.Set("Accept", accept)
	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}
	a, err := c.fetcher.Do(q)
	if err != nil {
		return nil, "", networkError{err}
	}
	defer func() { _ = a.Body.Close() }()
	if challenge := a.Header.Get("WWW-Authenticate"); a.StatusCode == http.StatusUnauthorized && challenge != "" {
		return nil, challenge, nil
	}
	if a.StatusCode != http.StatusOK {
		return nil, "", statusError(a.StatusCode)
	}
	if body, err = io.ReadAll(io.LimitReader(a.Body, most+1)); err != nil {
		return nil, "", networkError{err}
	}
	if int64(len(body)) > most {
		return nil, "", fmt.Errorf("it has more than %d bytes", most)
	}
	return body, "", nil
}
