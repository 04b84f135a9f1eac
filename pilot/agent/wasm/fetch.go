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

// manifestTypes are the media types of manifests and of lists of manifests, of OCI and Docker.
const manifestTypes = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, " +
	"application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"

// fetch downloads the module of a URL and verifies its hash.
func (c *Cache) fetch(ctx context.Context, k key, pullSecret string) ([]byte, error) {
	if rest, ok := strings.CutPrefix(k.url, ociScheme); ok {
		return c.image(ctx, rest, k.sha256, pullSecret)
	}
	body, challenge, err := c.request(ctx, k.url, "*/*", "", c.o.Fetch.Size)
	if err == nil && challenge != "" {
		err = statusError(http.StatusUnauthorized)
	}
	if err != nil {
		return nil, err
	}
	if err := checkSum(body, k.sha256); err != nil {
		return nil, err
	}
	return unpack(body, c.o.Fetch.Size)
}

// statusError is the status of a failed response.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("the server returned status %d", int(e)) }

// networkError is the failure of a connection.
type networkError struct{ error }

func (e networkError) Unwrap() error { return e.error }

// temporary reports whether a retry may succeed.
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

// checkSum returns an error unless a text has the SHA-256 hash want, in hexadecimal. An empty hash matches any text.
func checkSum(text []byte, want string) error {
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); want != "" && got != want {
		return fmt.Errorf("the SHA-256 is %s, not %s", got, want)
	}
	return nil
}

// registry is a repository in a registry of images, with the credentials for it.
type registry struct {
	c             *Cache
	base          string // https://HOST/v2/REPOSITORY
	host          string
	user, pass    string
	authorization string
}

// image downloads the module in an image. sum is the SHA-256 hash of the image's manifest, or empty.
func (c *Cache) image(ctx context.Context, name, sum, pullSecret string) ([]byte, error) {
	host, repository, ok := strings.Cut(name, "/")
	if !ok || host == "" || repository == "" || strings.ContainsAny(name, "?#% ") {
		return nil, errors.New("the URL of an image must have the form oci://HOST/REPOSITORY:TAG")
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
	if err := r.credentials(pullSecret); err != nil {
		return nil, err
	}
	var manifest struct {
		Manifests, Layers []struct {
			MediaType, Digest string
			Size              int64
		}
	}
	for range 2 { // first a list of manifests, then a manifest
		text, err := r.get(ctx, "/manifests/"+reference, manifestTypes, maxManifest)
		if err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
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
			return nil, fmt.Errorf("manifest: %w", err)
		}
		if len(manifest.Layers) > 0 || len(manifest.Manifests) == 0 {
			break
		}
		reference, sum = manifest.Manifests[0].Digest, ""
	}
	if len(manifest.Layers) == 0 {
		return nil, errors.New("the image has no layers")
	}
	layer := manifest.Layers[len(manifest.Layers)-1]
	for _, l := range manifest.Layers {
		if l.MediaType == rawLayer || l.MediaType == otherRaw {
			layer = l
		}
	}
	digest, ok := strings.CutPrefix(layer.Digest, "sha256:")
	if !ok {
		return nil, fmt.Errorf("the digest %q of the layer is not SHA-256", layer.Digest)
	}
	body, err := r.get(ctx, "/blobs/"+layer.Digest, "*/*", c.o.Fetch.Size)
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	if err := checkSum(body, digest); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return unpack(body, c.o.Fetch.Size)
}

// credentials reads the user and the password for the registry from a pull secret in the format of Docker's
// config.json. Its errors contain no part of the secret.
func (r *registry) credentials(pullSecret string) error {
	if pullSecret == "" {
		return nil
	}
	var config struct {
		Auths map[string]struct{ Auth, Username, Password string }
	}
	if json.Unmarshal([]byte(pullSecret), &config) != nil {
		return errors.New("the image pull secret is not a Docker configuration in JSON")
	}
	for host, a := range config.Auths {
		host = strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://")
		if host, _, _ = strings.Cut(host, "/"); host != r.host {
			continue
		}
		r.user, r.pass = a.Username, a.Password
		if decoded, err := base64.StdEncoding.DecodeString(a.Auth); a.Auth != "" && err == nil {
			r.user, r.pass, _ = strings.Cut(string(decoded), ":")
		}
	}
	return nil
}

// get downloads a path of the repository. If the registry requires authorization, get requests it once and tries
// again.
func (r *registry) get(ctx context.Context, path, accept string, limit int64) ([]byte, error) {
	for firstAttempt := true; ; firstAttempt = false {
		body, challenge, err := r.c.request(ctx, r.base+path, accept, r.authorization, limit)
		if err != nil || challenge == "" {
			return body, err
		}
		switch {
		case !firstAttempt && r.user == "":
			return nil, errNoSecret
		case !firstAttempt:
			return nil, errors.New("the registry refused the credentials")
		}
		if err := r.authorize(ctx, challenge); err != nil {
			return nil, err
		}
	}
}

var errNoSecret = errors.New("the registry requires credentials, and the extension has no image pull secret for it")

// authorize follows the challenge in a WWW-Authenticate header.
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
		return errors.New("the registry's token server has no TLS")
	}
	body, refused, err := r.c.request(ctx, realm+"?"+query.Encode(), "application/json", basic, maxToken)
	if err == nil && refused != "" && basic == "" {
		err = errNoSecret
	} else if err == nil && refused != "" {
		err = errors.New("the token server refused the credentials")
	}
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err == nil && json.Unmarshal(body, &answer) != nil {
		err = errors.New("the response is not JSON")
	}
	if err != nil {
		return fmt.Errorf("failed to get a token for the registry: %w", err)
	}
	answer.Token = cmp.Or(answer.Token, answer.AccessToken)
	r.authorization = "Bearer " + answer.Token
	return nil
}

// request downloads a URL. If the server requires authorization, it returns the challenge and no body.
func (c *Cache) request(ctx context.Context, target, accept, authorization string, limit int64) (body []byte, challenge string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, "", errors.New("the URL is invalid")
	}
	request.Header.Set("Accept", accept)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := c.fetcher.Do(request)
	if err != nil {
		return nil, "", networkError{err}
	}
	defer func() { _ = response.Body.Close() }()
	if challenge := response.Header.Get("WWW-Authenticate"); response.StatusCode == http.StatusUnauthorized && challenge != "" {
		return nil, challenge, nil
	}
	if response.StatusCode != http.StatusOK {
		return nil, "", statusError(response.StatusCode)
	}
	if body, err = io.ReadAll(io.LimitReader(response.Body, limit+1)); err != nil {
		return nil, "", networkError{err}
	}
	if int64(len(body)) > limit {
		return nil, "", fmt.Errorf("the response has more than %d bytes", limit)
	}
	return body, "", nil
}
