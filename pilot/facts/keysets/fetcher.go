package keysets

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// FetchOptions are the operator's settings for fetching URLs that users write.
type FetchOptions struct {
	// Allow and Block are address ranges, as in safe.FetchOptions.
	Allow, Block []netip.Prefix
	// ExtraRoots is the path of a file with roots to trust besides the system's. The file need not exist.
	ExtraRoots string
	Insecure   bool // do not verify servers' certificates
	// Proxy returns the proxy for a URL, or nil, as in safe.FetchOptions.
	Proxy func(*url.URL) (*url.URL, error)
}

// NewFetcher returns the Fetcher of a server. It logs a warning for each unsafe setting.
func NewFetcher(o FetchOptions, l limits.Limits, log *slog.Logger) (*safe.Fetcher, error) {
	if len(o.Allow) > 0 {
		log.Warn("any author of a RequestAuthentication can make this server send requests to addresses that are not public",
			"ALLOWED_CIDRS_IN_JWKS_URIS", o.Allow) //nolint:sloglint // the name of the variable
	}
	if o.Insecure {
		log.Warn("any client that can intercept the fetch of a key set can forge tokens: server certificates are not verified",
			"JWKS_RESOLVER_INSECURE_SKIP_VERIFY", true) //nolint:sloglint // the name of the variable
	}
	roots, err := rootsWith(o.ExtraRoots)
	if err != nil {
		return nil, fmt.Errorf("failed to read the roots for fetching key sets: %w", err)
	}
	base, _ := http.DefaultTransport.(*http.Transport)
	transport := base.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, InsecureSkipVerify: o.Insecure} //nolint:gosec // the operator's setting
	transport.MaxResponseHeaderBytes = l.KeySetHeader
	return safe.NewFetcher(safe.FetchOptions{
		Size: l.KeySet, Timeout: jwks.MaxTimeout, Redirects: l.KeySetRedirects, Allow: o.Allow, Block: o.Block, Transport: transport,
		Proxy: o.Proxy,
	}), nil
}

// rootsWith returns the system's roots and the roots in a file. It returns nil, which means the system's roots, if
// there is no file.
func rootsWith(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := safe.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if err := armor.AddRoots(roots, text); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return roots, nil
}
